"""Charts of a bias audit as SVG: distributions by group, and differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..evaluation import charts
from ..evaluation.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    ChartFrame,
    draw_axes,
    find_ticks,
    label_ticks,
    series_style,
    svg,
)
from ..evaluation.statistics import MeanEstimate
from ..plurals import say_count
from ..viz.pages import render_page

WIDTH, HEIGHT = 760, 320
BINS = 28
CENTRAL = (0.005, 0.995)  # of all values; what lies further out is counted in the outermost bins
ROW = 34
NAMES = 300


def histogram(values: Mapping[str, Sequence[float]], x_label: str) -> str:
    """The share of each group's values in every bin, as steps; a line shows each group's mean.

    Groups of different size are comparable because each has its own total. What lies outside the range that is drawn is
    counted at its ends.
    """
    edges = bins([value for many in values.values() for value in many])
    shares = {name: bin_shares(many, edges) for name, many in values.items()}
    top = find_ticks(0.0, max(max(found) for found in shares.values()))
    frame = ChartFrame((edges[0], edges[-1]), (0.0, top[-1]), WIDTH, HEIGHT)
    across = [v for v in find_ticks(*frame.x, wanted=10) if frame.x[0] <= v <= frame.x[1]]
    parts = [*draw_axes(frame, across, top, x_label, "share of the group's mentions"), zero(frame)]
    for number, (name, found) in enumerate(shares.items()):
        parts.append(steps(number, name, found, edges, frame))
    for number, (name, many) in enumerate(values.items()):
        parts.append(mean_mark(number, name, float(np.mean(many)), frame))
    return svg(frame, parts, f"distribution of relevance of {', '.join(values)}")


def histogram_file(values: Mapping[str, Sequence[float]], x_label: str) -> str:
    """The histogram as a file of its own, with its colours for light and dark and the names of the groups."""
    style = f"<style>{render_page('colours.css')}{charts.STYLE}{STYLE}.chart {{ background: var(--ground); }}</style>"
    names = "".join(draw_group_key(number, name, len(many)) for number, (name, many) in enumerate(values.items()))
    head, rest = histogram(values, x_label).split("<title>", 1)
    return f"{head}{style}<title>{rest.removesuffix('</svg>')}{names}</svg>\n"


def draw_group_key(number: int, name: str, mentions: int) -> str:
    """A group's line and marker with its name, below the ones before, in the upper left corner."""
    style, dash, marker = series_style(number)
    x, y = LEFT + 14, TOP + 14 + 18 * number
    line = f'<line x1="{x}" x2="{x + 38}" y1="{y}" y2="{y}" stroke-dasharray="{dash}"/>{marker(x + 19, y)}'
    said = f'<text x="{x + 46}" y="{y + 4}">{escape(name)}: {say_count(mentions, "mention")}</text>'
    return f'<g class="{style}">{line}</g>{said}'


def bins(values: Sequence[float]) -> list[float]:
    """Round edges around the middle 99 % of the values."""
    low, high = np.quantile(values, CENTRAL)
    ticks = find_ticks(min(float(low), 0.0), max(float(high), 0.0), BINS)
    return ticks if len(ticks) > 2 else find_ticks(-1.0, 1.0, BINS)


def bin_shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return [float(count) / max(1, len(values)) for count in counts]


def steps(number: int, name: str, shares: Sequence[float], edges: Sequence[float], frame: ChartFrame) -> str:
    """The outline of one histogram, filled lightly."""
    style, dash, _ = series_style(number)
    corners = [(edges[0], 0.0)]
    for left, right, value in zip(edges[:-1], edges[1:], shares, strict=True):
        corners += [(left, value), (right, value)]
    corners.append((edges[-1], 0.0))
    path = " ".join("{:.1f},{:.1f}".format(*frame.at(x, y)) for x, y in corners)
    return (
        f'<g class="{style}"><title>{escape(name)}</title>'
        f'<polygon class="under" points="{path}"/><polyline points="{path}" stroke-dasharray="{dash}"/></g>'
    )


def mean_mark(number: int, name: str, value: float, frame: ChartFrame) -> str:
    style, dash, marker = series_style(number)
    x, bottom = frame.at(value, 0.0)
    _, top = frame.at(value, frame.y[1])
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{top:.1f}" stroke-dasharray="{dash}"/>'
    return f'<g class="{style} mean"><title>mean of {escape(name)}: {value:+.3f}</title>{line}{marker(x, top)}</g>'


def zero(frame: ChartFrame) -> str:
    x, bottom = frame.at(0.0, frame.y[0])
    _, top = frame.at(0.0, frame.y[1])
    return f'<line class="diagonal" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'


@dataclass(frozen=True)
class ForestRow:
    """A named estimate and what is said behind it; `strong` for the one that counts."""

    name: str
    estimate: MeanEstimate
    said: str
    strong: bool = False


def forest(rows: Sequence[ForestRow], x_label: str, described: str) -> str:
    """Estimates with their intervals, one below the other, around zero."""
    ends = [v for row in rows for v in (row.estimate.low, row.estimate.high, row.estimate.value) if math.isfinite(v)]
    ticks = find_ticks(min([*ends, 0.0]), max([*ends, 0.0]))
    height = TOP + ROW * len(rows) + BOTTOM
    frame = ChartFrame((ticks[0], ticks[-1]), (0.0, float(len(rows))), WIDTH, height)
    inner = ChartFrame(frame.x, frame.y, WIDTH - NAMES + LEFT + RIGHT, height)
    parts = [draw_scale(inner, ticks, x_label, height)]
    for number, row in enumerate(rows):
        parts.append(estimate_row(row, inner, len(rows) - number - 0.5))
    return svg(frame, parts, described)


def shift_right(x: float) -> float:
    """Names stand on the left, so the scale begins further right."""
    return x + NAMES - LEFT - RIGHT


def draw_scale(inner: ChartFrame, ticks: Sequence[float], x_label: str, height: int) -> str:
    parts = []
    for value, text in zip(ticks, label_ticks(ticks), strict=True):
        x, y = inner.at(value, 0.0)
        _, top = inner.at(value, inner.y[1])
        style = "diagonal" if abs(value) < 1e-12 else "grid"
        at = shift_right(x)
        parts.append(f'<line class="{style}" x1="{at:.1f}" x2="{at:.1f}" y1="{y:.1f}" y2="{top:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{y + 16:.1f}" text-anchor="middle">{text}</text>')
    middle = shift_right((inner.at(ticks[0], 0)[0] + inner.at(ticks[-1], 0)[0]) / 2)
    parts.append(f'<text x="{middle:.1f}" y="{height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def estimate_row(row: ForestRow, inner: ChartFrame, place: float) -> str:
    found = row.estimate
    low, high = (value if math.isfinite(value) else found.value for value in (found.low, found.high))
    (a, y), (b, _), (c, _) = inner.at(low, place), inner.at(high, place), inner.at(found.value, place)
    style = "s s0" if row.strong else "s s0 hollow"
    drawn = f'<line x1="{shift_right(a):.1f}" x2="{shift_right(b):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    drawn += f'<circle cx="{shift_right(c):.1f}" cy="{y:.1f}" r="{5 if row.strong else 4}"/>'
    weight = ' class="strong"' if row.strong else ""
    return (
        f'<text{weight} x="0" y="{y - 2:.1f}">{escape(row.name)}</text>'
        f'<text class="said" x="0" y="{y + 11:.1f}">{escape(row.said)}</text><g class="{style}">{drawn}</g>'
    )


STYLE = """
.drawn { overflow-x: auto; } .drawn .chart { min-width: 34rem; max-width: 60rem; display: block; }
.under { stroke: none; fill-opacity: .13; }
.mean line { stroke-width: 1.2; }
.strong { font-weight: 600; } .chart text.strong { fill: var(--ink); }
"""
