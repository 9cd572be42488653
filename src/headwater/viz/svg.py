"""What the terminal shows, as an SVG image that loads nothing from elsewhere."""

from __future__ import annotations

import io
import re

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

from .colour import GROUND, INK, Theme

ANSI = [(24, 24, 27), (192, 45, 45), (60, 140, 70), (190, 140, 40), (38, 92, 204), (150, 70, 160), (50, 140, 150)]
FONT = re.compile(r"@font-face\s*{[^}]*}\s*")


def picture(renderable: RenderableType, *, width: int = 80, title: str = "headwater", theme: Theme = "dark") -> str:
    """The picture of a renderable at this width in characters. Text stays text: it can be searched and copied."""
    console = Console(
        file=io.StringIO(),
        width=width,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    console.print(renderable)
    drawn = console.export_svg(title=title, theme=TerminalTheme(GROUND[theme], INK[theme], [*ANSI, INK[theme]]))
    return FONT.sub("", drawn)
