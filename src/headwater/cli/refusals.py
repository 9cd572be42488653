"""What the library refuses becomes one message on standard error and an exit code, without a traceback.

1: what was found could not be written. 2: refused, nothing was done. 3: the data hold rows that cannot be explained.
4: stopped in the middle, to be resumed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperGroup

from headwater.errors import BadRow, HeadwaterError, InputError, JobStopped, MissingExtra
from headwater.results.readable import visible_lines

from .help import group_lines, line_width
from .wording import in_options, options_of

Code = int | str | None
UNWRITTEN, REFUSED, BAD_ROWS, STOPPED = 1, 2, 3, 4


EXPERIMENTS = ("answers", "bench", "bundled", "image", "paper", "zoo")  # commands of headwater-experiments


class Commands(TyperGroup):
    """A group of commands that answers bad input instead of crashing on it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in EXPERIMENTS and self.get_command(ctx, args[0]) is None:
            raise MissingExtra(f"`headwater {args[0]}`", "all", "headwater-experiments")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(group_lines(self, ctx, line_width())) + "\n")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as refusal:
            typer.echo(f"headwater: {visible_lines(self.word(ctx, refusal))}", err=True)
            raise typer.Exit(code_of(refusal)) from refusal
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            typer.echo("headwater: there is not enough memory. Ask for less at once, or see --memory-limit.", err=True)
            raise typer.Exit(REFUSED) from error

    def word(self, ctx: Any, refusal: HeadwaterError) -> str:
        """The message, with arguments named as the options of the command that was given."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        return str(refusal) if command is None else in_options(str(refusal), options_of([command]))


def out_of_memory(error: Exception) -> bool:
    """Torch says it of a card by a class of its own, and of main memory in a sentence."""
    return type(error).__name__ in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error)


def code_of(refusal: HeadwaterError) -> int:
    return BAD_ROWS if isinstance(refusal, BadRow) else STOPPED if isinstance(refusal, JobStopped) else REFUSED


def run_command(command: Callable[[], object], arguments: Sequence[str]) -> Code:
    """Runs the whole command: its exit code, after all that it said has been written."""
    try:
        for number, argument in enumerate(arguments, 1):
            check_written(f"argument {number}", argument)
        code = code_at_end(command)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read has seen enough, as `head` does
        return nothing_more(UNWRITTEN)
    except InputError as refusal:
        return print_error(str(refusal), REFUSED)
    except UnicodeEncodeError as error:
        lost = error.object[error.start : error.end]
        return print_error(f"{lost!r} cannot be written in {error.encoding}. Set PYTHONIOENCODING=utf-8.", UNWRITTEN)
    except UnicodeDecodeError as error:
        return print_error(f"what was read is no {error.encoding}: {error.reason}. Convert it to UTF-8.", REFUSED)
    except OSError as error:
        what = "the output cannot be written" if error.filename is None else str(error.filename)
        return print_error(f"{what}: {error.strerror or error}.", UNWRITTEN)


def code_at_end(command: Callable[[], object]) -> Code:
    try:
        command()
    except SystemExit as end:
        return end.code
    return 0


def print_error(message: str, code: int) -> int:
    with suppress(OSError):
        typer.echo(f"headwater: {visible_lines(message)}", err=True)
    return nothing_more(code)


def nothing_more(code: int) -> int:
    """Python itself writes out what is left when it ends, and would fail with a traceback: it goes nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def check_written(what: str, text: str) -> None:
    """Refuses bytes that are no UTF-8: Python keeps them in a text as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is no UTF-8 at character {error.start + 1}. Convert it to UTF-8.") from error
