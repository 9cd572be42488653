"""`headwater report`: a finished evaluation as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.errors import UsageError

from .screen import print_json, save_file, waiting

PAGE = Path("report.html")
EXAMPLES = (
    "headwater report evaluation",
    'headwater report evaluation --out page.html --title "Which method?"',
)


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What `headwater evaluate --out DIR` wrote.")],
    out: Annotated[Path | None, typer.Option(help="The page to write. Default: report.html.")] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The results as JSON on standard output; a page then only with --out.")
    ] = False,
) -> None:
    """Make one self-contained HTML page of an evaluation: curves, tables with intervals, how to repeat it."""
    with waiting("reading"):
        from headwater.evaluation.files import RESULT, SAMPLES, load_evaluation, to_json
        from headwater.evaluation.report import page

        found = load_evaluation(directory)
    file = PAGE if out is None else out
    if any(file.resolve() == (directory / name).resolve() for name in (RESULT, SAMPLES)):
        raise UsageError(f"{file} is a file of the evaluation, and would be written over: name another one.")
    if as_json:
        print_json(to_json(found.to_dict()))
    if out is not None or not as_json:
        save_file(file, page(found) if title is None else page(found, title))
