"""Faithfulness against cost: one point per method, and a line along the most faithful at each cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, count

from ...errors import UsageError
from ..charts import RIGHT, STYLE, ChartFrame, circle, draw_axes, find_ticks, svg
from .faithfulness import NO_EXPLANATIONS, Faithfulness

WIDTH, HEIGHT = 720, 420
TICKS = (0, 1, 3, 10, 30, 100, 300, 1000)
LETTER = 7.2  # width of one, about
LINE = 13
DOT = 5
GROUND = (
    ":root { --soft: #555; --line: #ddd; --ground: #fff; --ink: #1f5fbf; } @media (prefers-color-scheme: dark) "
    "{ :root { --soft: #bbb; --line: #444; --ground: #18181b; --ink: #7ab0ff; } }"
)
OWN_STYLE = (
    ".front { fill: none; stroke: var(--ink); stroke-width: 1.4; } .on { fill: var(--ink); } "
    ".off { fill: var(--ground); stroke: var(--soft); } .chart .name { fill: var(--soft); } "
    ".chart .on-name { fill: var(--ink); font-weight: 600; } .ground { fill: var(--ground); }"
)


@dataclass(frozen=True)
class CostPoint:
    """A method: its cost in forward passes, and the mean of its totals over all sets."""

    method: str
    cost: float
    faithfulness: float


def cost_points(found: Faithfulness) -> list[CostPoint]:
    """Methods that have both, by cost. What is no explanation but the order of words costs nothing."""
    points = []
    for method in found.methods:
        cost, value = found.cost(method), found.faithfulness(method)
        if cost is not None and value is not None:
            points.append(CostPoint(method, 0.0 if method in NO_EXPLANATIONS else cost, value))
    return sorted(points, key=lambda point: (point.cost, -point.faithfulness))


def frontier(points: Sequence[CostPoint]) -> list[CostPoint]:
    """The points that no cheaper one reaches: the most faithful at each cost."""
    best = [-math.inf, *accumulate((point.faithfulness for point in points), max)]
    return [point for point, before in zip(points, best, strict=False) if point.faithfulness > before]


def draw_costs(found: Faithfulness) -> str:
    """One SVG, which takes the reader's light or dark theme. Across: forward passes, on a scale of log(1 + cost)."""
    points = cost_points(found)
    if not points:
        raise UsageError("the picture shows the totals of single-token: ask for that protocol, too.")
    ticks = [tick for tick in TICKS if tick <= max(3.0, *(point.cost for point in points)) * 1.5]
    up = find_ticks(min(p.faithfulness for p in points), max(p.faithfulness for p in points))
    across = [math.log1p(tick) for tick in ticks]
    right = max(across[-1], *(math.log1p(point.cost) for point in points))
    frame = ChartFrame((0.0, right * 1.02), (up[0], up[-1]), WIDTH, HEIGHT)
    names = [f"{tick:,}" for tick in ticks]
    lines = draw_axes(frame, across, up, "cost in forward passes", "mean total: recovery minus disruption", names)
    front = frontier(points)
    path = " ".join("{:.1f},{:.1f}".format(*place(frame, point)) for point in front)
    parts = [
        f"<style>{GROUND}{STYLE}{OWN_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        *lines,
        f'<polyline class="front" points="{path}"/>',
        *draw_methods(frame, points, front),
    ]
    return svg(frame, parts, f"Faithfulness against cost of {', '.join(point.method for point in points)}")


def place(frame: ChartFrame, point: CostPoint) -> tuple[float, float]:
    return frame.at(math.log1p(point.cost), point.faithfulness)


Box = tuple[float, float, float]  # left, the middle of its height, width


def draw_methods(frame: ChartFrame, points: Sequence[CostPoint], front: Sequence[CostPoint]) -> list[str]:
    """Filled on the line, hollow below it, each with its name; a name that would hide another, or a point, moves."""
    places = {point.method: place(frame, point) for point in points}
    taken: list[Box] = [(x - DOT, y, 2 * DOT) for x, y in places.values()]
    parts = []
    for point in sorted(points, key=lambda p: p not in front):
        x, y = places[point.method]
        boxes = possible_boxes(frame, x, y, LETTER * len(point.method))
        box = next(box for box in boxes if not hides(taken, box))
        taken.append(box)
        kind = "on" if point in front else "off"
        name = "on-name" if point in front else "name"
        parts.append(f'<g class="{kind}">{circle(x, y)}</g>')
        parts.append(f'<text class="{name}" x="{box[0]:.1f}" y="{box[1] + 4:.1f}">{escape(point.method)}</text>')
    return parts


def possible_boxes(frame: ChartFrame, x: float, y: float, width: float) -> Iterator[Box]:
    """Where a name can stand: right or left of its point, then further and further above and below.

    One that fits on neither side ends at the right border.
    """
    last = frame.width - RIGHT - width
    sides = [left for left in (x + 7, x - 7 - width) if 0 < left < last] or [last]
    for step in count():
        for left in sides:
            yield from ((left, y + step * LINE / 2 * side, width) for side in (1, -1))


def hides(taken: Sequence[Box], box: Box) -> bool:
    left, y, width = box
    return any(abs(y - b) < LINE and left < a + w and a < left + width for a, b, w in taken)
