"""The page of the matrix: which versions were tried, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- matrix -->\n", "<!-- end of the matrix -->\n"  # Markdown that shows nothing


def write_page(
    page: Path, environments: Sequence[Any], sizes: dict[str, int], missing: list[str], machine: str
) -> None:
    """The results between the two marks of the page; what people wrote around them stays."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    commands = dict.fromkeys(command for one in environments for command in one.commands)
    lines = ["", "<!-- not run: installs packages -->", "```sh", *commands, "```", "", f"On {system_of(machine)}."]
    if missing:
        lines += [f"Not tried, for want of it on that machine: Python {', '.join(missing)}."]
    lines += ["", *versions_table(environments), "", *results_table(environments), "", *size_lines(sizes), ""]
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


def size_lines(sizes: dict[str, int]) -> list[str]:
    return [f"`{name}`: {size / 1e6:.1f} MB." for name, size in sorted(sizes.items())]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
