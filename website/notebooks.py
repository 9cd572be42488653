"""The notebooks of `examples` as pages, with the outputs that are stored in them. Nothing is run."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from sources import ROOT, turn_links

LIST = """# Tutorials

Longer than a question, with every step run. The first are pages of the docs. The others are notebooks of `examples/`,
shown with the outputs that are stored in them (`make notebooks` makes them again). Tests run all of them.

"""


def write_tutorials(into: Path) -> list[str]:
    """A page per notebook, and one that lists them; gives the names of the pages."""
    (into / "tutorials").mkdir(exist_ok=True)
    listed = LIST
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        listed += f"- [{title_of(page.read_text(encoding='utf-8'))}](tutorials/{page.name})\n"
    names = []
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        page = "\n\n".join(show_cell(cell) for cell in cells)
        page = turn_links(page, PurePosixPath("examples") / path.name)
        (into / "tutorials" / f"{path.stem}.md").write_text(page + "\n", encoding="utf-8")
        listed += f"- [{title_of(page)}](tutorials/{path.stem}.md)\n"
        names.append(f"tutorials/{path.stem}")
    (into / "tutorials.md").write_text(listed, encoding="utf-8")
    return names


def title_of(page: str) -> str:
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    if found is None:
        raise ValueError("a notebook begins with a heading")
    return found[1]


def show_cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return text
    return "\n\n".join([f"```python\n{text}\n```", *map(show_output, cell["outputs"])])


def show_output(output: dict[str, Any]) -> str:
    """Drawn results as they are drawn in a notebook, all else as text."""
    data = output.get("data", {})
    if "text/html" in data:
        drawn = "".join(data["text/html"])
        return f'````{{raw}} html\n<div class="output">{drawn}</div>\n````'
    said = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{said.rstrip()}\n```"
