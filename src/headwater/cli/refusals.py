"""What the library refuses becomes one message on standard error and an exit code, without a traceback.

2: refused, nothing was done. 3: the data hold rows that cannot be explained. 4: stopped in the middle, to be resumed.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from headwater.errors import BadRow, HeadwaterError, JobStopped

REFUSED, BAD_ROWS, STOPPED = 2, 3, 4


class Commands(TyperGroup):
    """A group of commands that answers bad input instead of crashing on it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as refusal:
            typer.echo(f"headwater: {refusal}", err=True)
            raise typer.Exit(code_of(refusal)) from refusal


def code_of(refusal: HeadwaterError) -> int:
    return BAD_ROWS if isinstance(refusal, BadRow) else STOPPED if isinstance(refusal, JobStopped) else REFUSED
