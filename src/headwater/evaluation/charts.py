"""Line charts and scatter plots as SVG: no script, text stays text, colour is never the only sign.

A chart stands in a page, or below others in a file.

Every series has its own dash and marker beside its colour, so that a chart can be read in black and white. Colours are
CSS variables of `STYLE`, which has a light and a dark set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 44
HEAD, BETWEEN, LINE, MARGIN = 28, 18, 22, 12  # of a sheet of charts

DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "2 2 6 2", "1 4")
LIGHT = ("#1f5fbf", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490", "#854d0e", "#444")
DARK = ("#7ab0ff", "#fb923c", "#4ade80", "#d8a4ff", "#ff8a8a", "#67e8f9", "#fcd34d", "#ccc")


@dataclass(frozen=True)
class Series:
    """A named row of points; its place among the others gives it colour, dash and marker."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def circle(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'


def polygon(points: Sequence[tuple[float, float]]) -> Callable[[float, float], str]:
    def draw(x: float, y: float) -> str:
        return '<polygon points="' + " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in points) + '"/>'

    return draw


def strokes(path: str) -> Callable[[float, float], str]:
    return lambda x, y: f'<path d="M{x:.1f},{y:.1f}{path}"/>'


MARKERS: tuple[Callable[[float, float], str], ...] = (
    circle,
    polygon([(-3, -3), (3, -3), (3, 3), (-3, 3)]),
    polygon([(0, -4), (3.8, 3), (-3.8, 3)]),
    polygon([(0, -4.2), (4.2, 0), (0, 4.2), (-4.2, 0)]),
    polygon([(0, 4), (3.8, -3), (-3.8, -3)]),
    strokes("m-3.5,-3.5l7,7m0,-7l-7,7"),
    strokes("m-4,0h8m-4,-4v8"),
    polygon([(-4, 0), (2.8, -3.6), (2.8, 3.6)]),
)


def series_style(number: int) -> tuple[str, str, Callable[[float, float], str]]:
    """Colour class, dash and marker of a series; past the eighth, markers are hollow and meet other dashes."""
    turn, place = divmod(number, len(MARKERS))
    name = f"s s{place}" + (" hollow" if turn % 2 else "")
    return name, DASHES[(place + 3 * turn) % len(DASHES)], MARKERS[place]


@dataclass(frozen=True)
class ChartFrame:
    """Where data lie in the picture."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int = WIDTH
    height: int = HEIGHT

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return (
            LEFT + across * (self.width - LEFT - RIGHT),
            self.height - BOTTOM - up * (self.height - TOP - BOTTOM),
        )


def line_chart(series: Sequence[Series], x_label: str, y_label: str, described: str) -> str:
    """Lines with a marker at every point."""
    values = [v for one in series for v in one.y if math.isfinite(v)]
    ticks = find_ticks(min(values), max(values))
    frame = ChartFrame((min(series[0].x), max(series[0].x)), (ticks[0], ticks[-1]))
    across = [v for v in find_ticks(*frame.x) if frame.x[0] <= v <= frame.x[1]]
    body = [_line(one, number, frame) for number, one in enumerate(series)]
    return svg(frame, [*draw_axes(frame, across, ticks, x_label, y_label), *body], described)


def _line(series: Series, number: int, frame: ChartFrame) -> str:
    name, dash, marker = series_style(number)
    places = [frame.at(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = f'<polyline points="{path}" fill="none" stroke-dasharray="{dash}"/>' + "".join(
        marker(x, y) for x, y in places
    )
    return f'<g class="{name}"><title>{escape(series.name)}</title>{drawn}</g>'


def scatter(series: Series, x_label: str, y_label: str, described: str, size: int = 250) -> str:
    """Points, on one scale for both axes where that leaves something to see, and the diagonal where both are equal."""
    finite = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    horizontal, vertical = find_ticks(*_ends([x for x, _ in finite])), find_ticks(*_ends([y for _, y in finite]))
    frame = ChartFrame((horizontal[0], horizontal[-1]), (vertical[0], vertical[-1]), size + LEFT - BOTTOM, size)
    low, high = max(frame.x[0], frame.y[0]), min(frame.x[1], frame.y[1])
    parts = draw_axes(frame, horizontal, vertical, x_label, y_label)
    if low < high:
        (a, b), (c, d) = frame.at(low, low), frame.at(high, high)
        parts.append(f'<line class="diagonal" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>')
    dots = "".join('<circle cx="{:.1f}" cy="{:.1f}" r="1.8"/>'.format(*frame.at(x, y)) for x, y in finite)
    return svg(frame, [*parts, f'<g class="dots">{dots}</g>'], described)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (0.0, 1.0)


def draw_axes(
    frame: ChartFrame,
    across: Sequence[float],
    up: Sequence[float],
    x_label: str,
    y_label: str,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Fine lines, numbers and the names of both axes. `names` stand in for the numbers across."""
    parts = []
    for value, text in zip(up, label_ticks(up), strict=True):
        (left, y), (right, _) = frame.at(frame.x[0], value), frame.at(frame.x[1], value)
        parts.append(f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>')
    for value, text in zip(across, label_ticks(across) if names is None else names, strict=True):
        x, y = frame.at(value, frame.y[0])
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{text}</text>')
    middle = (LEFT + frame.width - RIGHT) / 2
    half = (TOP + frame.height - BOTTOM) / 2
    parts.append(f'<text x="{middle:.1f}" y="{frame.height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(
        f'<text transform="translate(13 {half:.1f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return parts


def svg(frame: ChartFrame, parts: Sequence[str], described: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(described)}</title>{"".join(parts)}</svg>'
    )


def chart_legend(names: Sequence[str]) -> str:
    """The series of all charts that share their order, each with its line and marker."""
    entries = []
    for number, name in enumerate(names):
        style, dash, marker = series_style(number)
        drawn = f'<line x1="1" x2="39" y1="7" y2="7" stroke-dasharray="{dash}"/>{marker(20, 7)}'
        sample = f'<svg viewBox="0 0 40 14" aria-hidden="true"><g class="{style}">{drawn}</g></svg>'
        entries.append(f"<li>{sample}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def find_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that enclose the range, about as many as wanted."""
    if not high > low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    raw = (high - low) / wanted
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def label_ticks(values: Sequence[float]) -> list[str]:
    """Numbers with the places that tell them apart."""
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    if max(map(abs, values), default=0) >= 1e5 or step < 1e-4:
        return [f"{v:.1e}" for v in values]
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step * 10**places, 6) != round(step * 10**places):
        places += 1
    return [f"{v:.{places}f}".replace("-0." + "0" * places, "0." + "0" * places) for v in values]


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--s{i}: {colour};" for i, colour in enumerate(colours))


STYLE = f"""
:root {{ {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
.chart {{ width: 100%; height: auto; font: 11px system-ui, sans-serif; }}
.chart text {{ fill: var(--soft); }}
.grid {{ stroke: var(--line); stroke-width: .7; }} .tick {{ stroke: var(--soft); stroke-width: .7; }}
.diagonal {{ stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 3; }}
.dots {{ fill: var(--s0); fill-opacity: .45; }}
.s {{ stroke: currentColor; stroke-width: 1.6; fill: currentColor; }} .s.hollow circle, .s.hollow polygon {{
  fill: var(--ground); }}
.s polyline, .s path {{ fill: none; }}
{" ".join(f".s{i} {{ color: var(--s{i}); }}" for i in range(len(LIGHT)))}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .5rem 0; }}
.legend li {{ display: flex; align-items: center; gap: .4rem; }} .legend svg {{ width: 40px; height: 14px; }}
"""


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
