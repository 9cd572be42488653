"""Where output goes: drawings on a terminal, plain text in a pipe; talk on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from headwater.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.viz.colour import Theme


FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")  # what makes rich take a pipe for a terminal


def may_be_terminal(stream: TextIO | None) -> bool:
    """Whether rich could find a terminal there. Where it cannot, rich need not be loaded."""
    if any(name in os.environ for name in FORCED):
        return True
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def show(draw: Callable[[Theme], RenderableType], write: Callable[[], str], plain: bool = False) -> None:
    """A drawing where a person looks at a terminal that can show it, else text. NO_COLOR leaves the colours out."""
    if plain or not may_be_terminal(sys.stdout):
        typer.echo(write())
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        typer.echo(write())
    else:
        console.print(draw(theme()))


def theme() -> Theme:
    """Light or dark, as the terminal says in COLORFGBG (`ink;ground`; 7 and from 9 on are light); else dark."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground.isdigit() and int(ground) in (7, *range(9, 16)) else "dark"


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
