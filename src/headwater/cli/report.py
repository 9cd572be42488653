"""`headwater report`: a finished evaluation as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .screen import print_json, save_file, waiting

EXAMPLES = (
    "headwater report evaluation",
    'headwater report evaluation --out page.html --title "Which method?"',
)


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What `headwater evaluate --out DIR` wrote.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The results as JSON on standard output instead.")] = False,
) -> None:
    """Make one self-contained HTML page of an evaluation: curves, tables with intervals, how to repeat it."""
    with waiting("reading"):
        from headwater.evaluation.files import load_evaluation, to_json
        from headwater.evaluation.report import page

        found = load_evaluation(directory)
    if as_json:
        print_json(to_json(found.to_dict()))
        return
    save_file(out, page(found) if title is None else page(found, title))
