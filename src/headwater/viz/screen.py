"""Whether somebody looks at a terminal, and on which ground: who draws in colour asks here. Loads nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .colour import Theme

FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")  # what makes rich take a pipe for a terminal


def may_be_terminal(stream: TextIO | None) -> bool:
    """Whether rich could find a terminal there. Where it cannot, rich need not be loaded."""
    if any(name in os.environ for name in FORCED):
        return True
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def theme() -> Theme:
    """Light or dark, as the terminal says in COLORFGBG (`ink;ground`; 7 and from 9 on are light); else dark."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground.isdigit() and int(ground) in (7, *range(9, 16)) else "dark"


def draws_on_terminal(draw: Callable[[Theme], RenderableType]) -> bool:
    """Draws where a person looks at a terminal that can show it, else gives False. NO_COLOR leaves the colours out."""
    if not may_be_terminal(sys.stdout):
        return False
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        return False
    console.print(draw(theme()))
    return True
