"""Where output goes: drawings on a terminal, plain text in a pipe; talk on standard error."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.errors import UsageError
from headwater.results.readable import visible_lines
from headwater.viz.screen import draws_on_terminal, may_be_terminal
from headwater.viz.screen import theme as theme

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.viz.colour import Theme

INTERRUPTED = 130


def show(draw: Callable[[Theme], RenderableType], write: Callable[[], str], plain: bool = False) -> None:
    """A drawing where a person looks at a terminal that can show it, else text. NO_COLOR leaves the colours out."""
    if plain or not draws_on_terminal(draw):
        typer.echo(write())


def print_json(found: Any) -> None:
    """A line of JSON on standard output."""
    typer.echo(json.dumps(found, ensure_ascii=False))


def say(message: str) -> None:
    """Talk: to the person, not into the data. A terminal obeys nothing in it that came from a file or a name."""
    typer.echo(visible_lines(message), err=True)


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


@contextmanager
def interruptions(out: Path | None, option: str = "--out") -> Iterator[None]:
    """Ctrl-C, and the signal by which schedulers end a job, leave what is written in order and say how to go on.

    `out` is what was given as the `option` that keeps what is done.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as stop:
        kept = f"what is done lies in {out}, and the same command goes on from there"
        none = f"nothing was kept: with {option} the same command goes on where it stopped"
        say(f"stopped; {kept if out else none}")
        raise typer.Exit(INTERRUPTED) from stop
    finally:
        signal.signal(signal.SIGTERM, before)
