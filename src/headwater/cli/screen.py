"""Where output goes: drawings on a terminal, plain text in a pipe; talk on standard error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headwater.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.viz.colour import Theme


def show(draw: Callable[[Theme], RenderableType], write: Callable[[], str], plain: bool = False) -> None:
    """A drawing where a person looks at a terminal that can show it, else text. NO_COLOR leaves the colours out."""
    from rich.console import Console

    console = Console(highlight=False)
    if plain or not console.is_terminal or console.is_dumb_terminal:
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
