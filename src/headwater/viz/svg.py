"""What the terminal shows, as an SVG image that loads nothing from elsewhere."""

from __future__ import annotations

import io
import re

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

from .colour import GROUND, INK, Theme

ANSI = [(24, 24, 27), (192, 45, 45), (60, 140, 70), (190, 140, 40), (38, 92, 204), (150, 70, 160), (50, 140, 150)]
FONT = re.compile(r"@font-face\s*{[^}]*}\s*")


# What rich draws around the text, a terminal's window, is left out, and nothing is asked of another server.
BARE = """\
<svg class="rich-terminal" viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" fill="GROUND"/>
<g clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
SIZE = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def picture(
    renderable: RenderableType,
    *,
    width: int = 80,
    title: str = "headwater",
    theme: Theme = "dark",
    frame: bool = True,
) -> str:
    """The picture of a renderable at this width in characters. Text stays text: it can be searched and copied.

    Without `frame` there is no window around it, and it says that it is twice as large, as slides want it.
    """
    console = Console(
        file=io.StringIO(),
        width=width,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    console.print(renderable)
    colours = TerminalTheme(GROUND[theme], INK[theme], [*ANSI, INK[theme]])
    if frame:
        return FONT.sub("", console.export_svg(title=title, theme=colours))
    bare = BARE.replace("GROUND", "#{:02x}{:02x}{:02x}".format(*GROUND[theme]))
    return twice_as_large(console.export_svg(title=title, theme=colours, code_format=bare))


def twice_as_large(drawn: str) -> str:
    """The drawing with its size said: two pixels for each unit."""
    return SIZE.sub(lambda m: f'width="{2 * float(m[1]):g}" height="{2 * float(m[2]):g}" {m[0]}', drawn, count=1)
