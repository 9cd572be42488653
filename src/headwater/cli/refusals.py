"""What the library refuses becomes one message on standard error and exit code 2, without a traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from headwater.errors import HeadwaterError

REFUSED = 2


class Commands(TyperGroup):
    """A group of commands that answers bad input instead of crashing on it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as refusal:
            typer.echo(f"headwater: {refusal}", err=True)
            raise typer.Exit(REFUSED) from refusal
