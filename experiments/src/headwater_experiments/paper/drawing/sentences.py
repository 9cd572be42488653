"""Sentences as heatmaps, several methods one below the other: red adds, blue with a line below takes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import UsageError
from headwater.viz.colour import NEGATIVE, POSITIVE, Shade, largest, shade
from headwater.viz.reading import with_sign

from .marks import label
from .page import PAGE, PLAIN, SMALL, blank, use_style
from .wrapping import Placed, legible, wide, word_cells, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.results.comparison import Comparison
    from headwater.results.explanation import Explanation

WIDTH = 72 * PAGE  # all lengths are points
EDGE, GAP = 4.0, 8.0
LEADING = 1.55  # of the letters' size, from line to line
ROWS, BLOCKS = 3.5, 12.0  # between two methods (twice that where lines wrap), between two sentences
TINY = 6.5
VISIBLE = 0.04  # the opacity from which a colour can be seen, and its sign is marked
DEEP, HIGH = 0.34, 0.98  # a word's box below and above its line, in sizes of its letters
FULL = "full colour: the largest relevance of its row"
INK = "#111111"


@dataclass(frozen=True)
class HeatmapRow:
    """A method's heatmap, set in lines."""

    name: str
    total: str
    lines: list[list[Placed]]
    scale: float

    @property
    def height(self) -> float:
        return len(self.lines) * LEADING * PLAIN + (ROWS if len(self.lines) == 1 else 2 * ROWS)


@dataclass(frozen=True)
class SentenceBlock:
    """A sentence by several methods."""

    heading: str
    rows: list[HeatmapRow]

    @property
    def height(self) -> float:
        return LEADING * PLAIN + ROWS + sum(row.height for row in self.rows)


@use_style()
def heatmaps(comparisons: Mapping[str, Comparison], methods: Sequence[str] | None = None) -> Figure:
    """A block a sentence under its title, a row per method; sub-words are joined, long sentences wrap.

    Each row has full colour at its own largest relevance, because methods differ in unit and size; behind it stands
    what its relevance adds up to. What takes away is underlined, so that the sign shows without colour.
    """
    chosen = {title: choose_rows(found, methods) for title, found in comparisons.items()}
    every = [e for rows in chosen.values() for e in rows]
    if not every:
        raise UsageError("there is nothing to draw: no comparison holds a method that was asked for.")
    left = EDGE + max(wide(label(e.method), SMALL) for e in every) + GAP
    right = max(wide(text, SMALL) for text in [*map(total, every), "sum"]) + GAP + EDGE
    blocks = [
        SentenceBlock(block_heading(title, rows[0]), [set_in(e, WIDTH - left - right) for e in rows])
        for title, rows in chosen.items()
        if rows
    ]
    return lay_out_blocks(blocks, left)


def choose_rows(comparison: Comparison, methods: Sequence[str] | None) -> list[Explanation]:
    """The explanations by the methods asked for, in that order; one that gave none for this sentence is left out."""
    if methods is None:
        return list(comparison.explanations)
    from headwater.methods import resolve_method

    by_name = {e.method: e for e in comparison.explanations}
    names = [resolve_method(method).name for method in methods]
    return [by_name[name] for name in names if name in by_name]


def block_heading(title: str, explanation: Explanation) -> str:
    facts = f"{explanation.target}, score {minus(with_sign(explanation.score, 2).strip())}"
    return legible(f"{title}: {facts}" if title else facts)


def total(explanation: Explanation) -> str:
    return minus(with_sign(explanation.ledger.inputs, 2).strip())


def minus(number: str) -> str:
    return number.replace("-", "−")


def set_in(explanation: Explanation, room: float) -> HeatmapRow:
    line = word_cells(explanation)
    scale = largest(cell.relevance for cell in line)
    return HeatmapRow(label(explanation.method), total(explanation), wrap(line, room, PLAIN, TINY), scale)


def lay_out_blocks(blocks: Sequence[SentenceBlock], left: float) -> Figure:
    """All blocks, one below the other, on a sheet as tall as they need."""
    key = LEADING * PLAIN + 4
    height = 2 * EDGE + sum(block.height for block in blocks) + BLOCKS * (len(blocks) - 1) + key
    figure = blank(PAGE, height / 72)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    down = EDGE
    for block in blocks:
        draw_block(axes, block, left, down)
        down += block.height + BLOCKS
    draw_key(axes, left, down - BLOCKS + 4 + HIGH * PLAIN)
    return figure


def draw_block(axes: Axes, block: SentenceBlock, left: float, down: float) -> None:
    line = down + HIGH * PLAIN
    write_text(axes, EDGE, line, block.heading, PLAIN, fontweight="bold")
    write_text(axes, WIDTH - EDGE, line, "sum", SMALL, ha="right", color="0.35")
    down += LEADING * PLAIN
    axes.plot([EDGE, WIDTH - EDGE], [down, down], color="0.6", linewidth=0.5)
    down += ROWS
    for row in block.rows:
        draw_row(axes, row, left, down + HIGH * PLAIN)
        down += row.height


def draw_row(axes: Axes, row: HeatmapRow, left: float, line: float) -> None:
    write_text(axes, EDGE, line, row.name, SMALL)
    write_text(axes, WIDTH - EDGE, line, row.total, SMALL, ha="right")
    for number, placed in enumerate(row.lines):
        for word in placed:
            draw_word(axes, word, left, line + number * LEADING * PLAIN, shade(word.cell.relevance, row.scale))


def draw_word(axes: Axes, word: Placed, left: float, line: float, look: Shade) -> None:
    """A box in the colour of the relevance, the word on it, and a line below what takes away."""
    from matplotlib.patches import Rectangle

    x = left + word.left
    if look.opacity >= VISIBLE:
        colour = hexadecimal(POSITIVE["light"] if look.sign > 0 else NEGATIVE["light"])
        size = (word.width, (HIGH + DEEP) * PLAIN)
        axes.add_patch(Rectangle((x, line - HIGH * PLAIN), *size, facecolor=colour, alpha=look.opacity))
        if look.sign < 0:
            below, thick = line + 0.2 * PLAIN, 0.5 + 0.6 * look.opacity
            axes.plot(
                [x, x + word.width], [below] * 2, color=INK, linewidth=thick, solid_capstyle="butt", label="minus"
            )
    write_text(axes, x, line, word.cell.text, word.size, color=INK)


def draw_key(axes: Axes, left: float, line: float) -> None:
    """The two colours with their meaning."""
    from headwater.viz.reading import TokenCell

    x = 0.0
    for meaning, relevance in (("adds", 1.0), ("takes away", -1.0)):
        draw_word(
            axes, Placed(TokenCell(meaning, relevance), x, wide(meaning, SMALL), SMALL), left, line, shade(relevance, 1)
        )
        x += wide(meaning, SMALL) + GAP
    write_text(axes, left + x, line, FULL, SMALL, color="0.35")


def write_text(axes: Axes, x: float, y: float, text: str, size: float, **options: Any) -> None:
    axes.text(x, y, text, fontsize=size, va="baseline", parse_math=False, **options)


def hexadecimal(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
