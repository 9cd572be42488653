"""Charts as one SVG file: one below the other under their titles, and what their lines mean."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .charts import HEIGHT, LIGHT, STYLE, WIDTH, series_style

HEAD, BETWEEN, LINE, MARGIN = 28, 18, 22, 12


def chart_sheet(drawn: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """`drawn` are titles and line charts, `names` the series that all of them share. On white, in any theme."""
    parts, y = [], MARGIN
    for title, chart in drawn:
        parts.append(chart_text(MARGIN, y + 15, title, 15))
        parts.append(chart.replace("<svg ", f'<svg y="{y + HEAD}" width="{WIDTH}" height="{HEIGHT}" ', 1))
        y += HEAD + HEIGHT + BETWEEN
    for number, name in enumerate(names):
        style, dash, marker = series_style(number)
        line = f'<line x1="1" x2="39" y1="7" y2="7" stroke-dasharray="{dash}"/>{marker(20, 7)}'
        parts.append(
            f'<g class="{style}" transform="translate({MARGIN} {y})">{line}</g>{chart_text(64, y + 12, name, 13)}'
        )
        y += LINE
    size = f'viewBox="0 0 {WIDTH} {y + MARGIN}" width="{WIDTH}" height="{y + MARGIN}"'
    ground = f'<rect width="{WIDTH}" height="{y + MARGIN}" fill="#fff"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}{PAPER}</style>{ground}{"".join(parts)}</svg>\n'
    )


def chart_text(x: float, y: float, content: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" font-family="system-ui, sans-serif">{escape(content)}</text>'


# After the other rules, so that a dark theme does not lighten lines on white.
PAPER = (
    ":root { --ink: #111; --soft: #595959; --line: #d4d4d8; --ground: #fff; "
    + " ".join(f"--s{i}: {colour};" for i, colour in enumerate(LIGHT))
    + " }"
)
