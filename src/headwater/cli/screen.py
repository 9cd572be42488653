"""Where output goes: drawings on a terminal, plain text in a pipe; talk on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headwater.errors import UsageError
from headwater.viz.screen import draws_on_terminal, may_be_terminal
from headwater.viz.screen import theme as theme

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.viz.colour import Theme


def show(draw: Callable[[Theme], RenderableType], write: Callable[[], str], plain: bool = False) -> None:
    """A drawing where a person looks at a terminal that can show it, else text. NO_COLOR leaves the colours out."""
    if plain or not draws_on_terminal(draw):
        typer.echo(write())


def say(message: str) -> None:
    """Talk: to the person, not into the data."""
    typer.echo(message, err=True)


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """A sign of life while something takes its time, on a terminal only."""
    if not may_be_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    talk = Console(stderr=True)
    if not talk.is_terminal:
        yield
        return
    with talk.status(message):
        yield


def save_file(file: Path, content: str | bytes) -> None:
    """Write a file that the person asked for, and say so."""
    try:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    say(f"wrote {file}")
