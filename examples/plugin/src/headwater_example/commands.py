"""A command: `headwater longest FILE` says which text of a file is the longest."""

from pathlib import Path
from typing import Annotated

import typer


def longest(file: Annotated[Path, typer.Argument(help="A text a line.")]) -> None:
    """Print the longest line of a file."""
    typer.echo(max(file.read_text(encoding="utf-8").splitlines(), key=len))
