"""What pictures of graphs share: a row per sample, a column per method, sums below, and a key of the two signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import UsageError
from headwater.viz.colour import NEGATIVE, POSITIVE

from .marks import label
from .page import SMALL, beside
from .sentences import choose_rows, hexadecimal, minus, total

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.results.comparison import Comparison
    from headwater.results.explanation import Explanation

VISIBLE = 0.05  # of full colour: fainter parts get no mark of their sign
MARK = "#0b2a6b"  # hatching and dashes on blue
SWATCH = 0.13  # inches
FULL = "full colour: the largest relevance of its picture"

RED, BLUE = hexadecimal(POSITIVE["light"]), hexadecimal(NEGATIVE["light"])


def columns_of(every: Sequence[Comparison], methods: Sequence[str] | None) -> list[list[Explanation]]:
    """The explanations of each sample by the methods asked for; all samples must have the same."""
    rows = [choose_rows(found, methods) for found in every]
    if not rows or not rows[0]:
        raise UsageError("there is nothing to draw: no comparison holds a method that was asked for.")
    if len({tuple(e.method for e in row) for row in rows}) != 1:
        raise UsageError("the samples were explained by different methods. Compare all by the same.")
    return rows


def write_heads(axes: Sequence[Axes], names: Sequence[str]) -> None:
    """The name of each column."""
    for axis, name in zip(axes, names, strict=True):
        axis.set_title(name, fontsize=SMALL, pad=4)


def method_labels(rows: Sequence[Sequence[Explanation]]) -> list[str]:
    return [label(e.method) for e in rows[0]]


def write_below(axes: Axes, text: str) -> None:
    """A line under a picture."""
    axes.annotate(
        text, (0.5, 0), (0, -2), "axes fraction", "offset points", ha="center", va="top", fontsize=SMALL, color="0.25"
    )


def write_sum(axes: Axes, explanation: Explanation) -> None:
    write_below(axes, total(explanation))


def score_text(explanation: Explanation) -> str:
    return minus(f"score {explanation.score:+.2f}")


def draw_colour_key(figure: Figure, left: float, low: float, cue: str, mark: Any) -> None:
    """Both colours with their meaning; `mark` draws the sign of what takes away over its swatch, in inches."""
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    second = left + 0.62
    for x, colour in ((left, RED), (second, BLUE)):
        axes.add_patch(Rectangle((x, low), SWATCH, SWATCH, facecolor=colour))
    mark(axes, second, low)
    middle = low + SWATCH / 2
    beside(figure, left + SWATCH + 0.06, middle, "adds", va="center")
    beside(figure, second + SWATCH + 0.06, middle, f"takes away ({cue})", va="center")
    said = f"{FULL}; below: what its relevance adds up to"
    beside(figure, second + SWATCH + 1.5, middle, said, va="center", color="0.35")
