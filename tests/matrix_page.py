"""The page of the matrix: which versions were tried, and what came of it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What the library's wheel holds beside code, by folder of the package.
FOLDERS = {
    "models/weights": "three small models, and their cards",
    "web/documents": "the pages of `docs`, which the explorer shows",
    "bias/lists": "lists of words for audits, and their terms",
    "web/static": "the explorer's page",
    "viz/templates": "templates of saved pages",
    "cli": "the methods' names, for help without torch",
}
BEGIN, END = "<!-- matrix -->\n", "<!-- end of the matrix -->\n"  # Markdown that shows nothing


def write_page(
    page: Path, environments: Sequence[Any], wheels: Sequence[Path], missing: list[str], machine: str
) -> None:
    """The results between the two marks of the page; what people wrote around them stays."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    commands = dict.fromkeys(command for one in environments for command in one.commands)
    lines = ["", "<!-- not run: installs packages -->", "```sh", *commands, "```", "", f"On {system_of(machine)}."]
    if missing:
        lines += [f"Not tried, for want of it on that machine: Python {', '.join(missing)}."]
    lines += ["", *versions_table(environments), "", *results_table(environments), "", *size_lines(wheels), ""]
    page.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def system_of(machine: str) -> str:
    """Kind and architecture; the rest is about one machine."""
    return "Linux, x86_64" if "x86_64" in machine and "Linux" in machine else machine


def versions_table(environments: Sequence[Any]) -> list[str]:
    names = list(dict.fromkeys(name for one in environments for name in one.found if name != "python"))
    head = ["Python", "versions", *names]
    rows = [[one.found["python"], one.versions, *(one.found.get(name, "") for name in names)] for one in environments]
    return table(head, rows)


def results_table(environments: Sequence[Any]) -> list[str]:
    tried = list(dict.fromkeys(what for one in environments for what in one.results))
    shown = [what for what in tried if not what.endswith("--help")]
    head = ["tried", *(f"{one.python} {one.versions}" for one in environments)]
    rows = [[what, *(without_folders(one.results.get(what, "")) for one in environments)] for what in shown]
    helps = [sum(how == "ok" for what, how in one.results.items() if what.endswith("--help")) for one in environments]
    asked = [sum(what.endswith("--help") for what in one.results) for one in environments]
    rows.insert(
        1, ["`--help` of every command", *(f"{a} of {b}" if b else "" for a, b in zip(helps, asked, strict=True))]
    )
    return table(head, rows)


def without_folders(said: str) -> str:
    """Where packages lie on that machine is nobody's business."""
    return re.sub(r"/\S*site-packages/", "", said)


def size_lines(wheels: Sequence[Path]) -> list[str]:
    lines = [f"`{wheel.name}`: {wheel.stat().st_size / 1e6:.1f} MB." for wheel in sorted(wheels)]
    library = next((wheel for wheel in wheels if wheel.name.startswith("headwater-")), None)
    return lines if library is None else [*lines, "", *contents_table(library)]


def contents_table(wheel: Path) -> list[str]:
    """What is in the library's wheel, and how much of it that is, packed."""
    taken: dict[str, int] = {}
    with zipfile.ZipFile(wheel) as packed:
        for one in packed.infolist():
            taken[kind_of(one.filename)] = taken.get(kind_of(one.filename), 0) + one.compress_size
    rows = [[kind, f"{size / 1e6:.2f}"] for kind, size in sorted(taken.items(), key=lambda pair: -pair[1])]
    return table([f"in `{wheel.name}`", "MB"], rows)


def kind_of(name: str) -> str:
    """What a file of the wheel is, in words; a name of no known kind is an error."""
    inside = name.removeprefix("headwater/")
    if name.endswith((".py", "/py.typed")):
        return "code, with its types"
    if name.startswith("headwater-"):
        return "metadata, and the licences and notices of all parts"
    return next(f"{said}: `headwater/{folder}`" for folder, said in FOLDERS.items() if inside.startswith(f"{folder}/"))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
