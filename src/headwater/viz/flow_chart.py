"""Relevance on its way from the score to the inputs, drawn: at every layer what is still there, taken and lost.

At each layer three bars follow each other: relevance begins at zero, what biases and constants took begins where it
ends, and what was lost after that. So the last one always ends at the score, which a line marks. The drawing is SVG
that takes the ink of where it stands; what was taken is hollow and what was lost is dashed, so that colour is not the
only sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headwater.results.audit import Audit

from .layers import LayerSum, layer_sums
from .reading import decimals, with_sign
from .sums import round_to_sum

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 24, 56
LOOKS = {
    "relevance": "fill='#2f8f9d'",
    "taken": "fill='#b7791f' fill-opacity='.22' stroke='#b7791f' stroke-width='1.4'",
    "lost": "fill='#d64545' fill-opacity='.12' stroke='#d64545' stroke-width='1.4' stroke-dasharray='3 2'",
}
NAMES = {"relevance": "relevance", "taken": "biases, constants", "lost": "lost"}
NAMED = 12  # layers that have room for a name
TEXT = "font-size='13' fill='currentColor'"


def flow_chart(audit: Audit) -> str:
    """The drawing of one audit."""
    found, score = layer_sums(audit), audit.explanation.ledger.score
    title = f"{audit.explanation.method}: relevance, taken and lost at every layer, together the score"
    y = scale_of(found, score)
    step = (WIDTH - LEFT - RIGHT) / len(found)
    bars = "".join(layer_bars(one, LEFT + i * step, step, y, score) for i, one in enumerate(found))
    names = "".join(layer_name(one, LEFT + (i + 0.5) * step, i, len(found)) for i, one in enumerate(found))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' class='flow'>"
        f"<title>{escape(title)}</title>{ground(y, score)}{bars}{names}{legend()}</svg>"
    )


class Scale:
    """Amounts to heights in the drawing."""

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    def __call__(self, value: float) -> float:
        return TOP + (self.high - value) / (self.high - self.low or 1.0) * (HEIGHT - TOP - BOTTOM)


def scale_of(found: Sequence[LayerSum], score: float) -> Scale:
    ends = [0.0, score, *(end for one in found for end in (one.relevance, one.relevance + one.taken))]
    return Scale(min(ends), max(ends))


def layer_bars(one: LayerSum, left: float, step: float, y: Scale, score: float) -> str:
    """Three bars, each from where the one before it ended; the last ends at the score."""
    wide, ends = step * 0.26, (0.0, one.relevance, one.relevance + one.taken, score)
    places = decimals([score], digits=3)
    shown = round_to_sum((one.relevance, one.taken, one.lost), score, places)
    drawn = []
    for k, (kind, amount) in enumerate(zip(LOOKS, shown, strict=True)):
        if not amount:
            continue
        top, low = sorted((y(ends[k]), y(ends[k + 1])))
        said = f"{one.name}: {NAMES[kind]} {with_sign(amount, places).strip()}"
        place = (
            f"x='{left + step * 0.11 + k * wide:.1f}' y='{top:.1f}' width='{wide:.1f}' height='{max(1, low - top):.1f}'"
        )
        drawn.append(f"<rect {place} {LOOKS[kind]}><title>{escape(said)}</title></rect>")
    return "".join(drawn)


def layer_name(one: LayerSum, x: float, number: int, count: int) -> str:
    """A layer's number, or the last part of its name; of many layers every other one."""
    every = -(-count // NAMED)
    if number % every and number != count - 1:
        return ""
    last = one.name.rpartition(".")[2]
    small = last if len(last) <= 9 else f"{last[:8]}…"
    return f"<text x='{x:.1f}' y='{HEIGHT - BOTTOM + 16}' text-anchor='middle' {TEXT}>{escape(small)}</text>"


def ground(y: Scale, score: float) -> str:
    """Zero, and the score that every layer reaches."""
    number = with_sign(score, decimals([score], digits=3)).strip()
    right = WIDTH - RIGHT
    return (
        f"<line x1='{LEFT}' x2='{right}' y1='{y(0):.1f}' y2='{y(0):.1f}' stroke='currentColor' stroke-opacity='.5'/>"
        f"<text x='{LEFT - 6}' y='{y(0) + 4:.1f}' text-anchor='end' {TEXT}>0</text>"
        f"<line x1='{LEFT}' x2='{right}' y1='{y(score):.1f}' y2='{y(score):.1f}' stroke='currentColor' "
        f"stroke-width='1.2' stroke-dasharray='6 3'/>"
        f"<text x='{LEFT - 6}' y='{y(score) + 4:.1f}' text-anchor='end' font-weight='600' {TEXT}>{number}</text>"
        f"<text x='2' y='12' {TEXT}>score</text>"
    )


def legend() -> str:
    parts, x = [], LEFT
    for kind, looks in LOOKS.items():
        parts.append(f"<rect x='{x}' y='{HEIGHT - 22}' width='12' height='12' {looks}/>")
        parts.append(f"<text x='{x + 17}' y='{HEIGHT - 12}' {TEXT}>{NAMES[kind]}</text>")
        x += 30 + round(7.2 * len(NAMES[kind]))
    return "".join(parts)
