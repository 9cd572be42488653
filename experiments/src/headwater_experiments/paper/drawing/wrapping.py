"""Running text set in lines: every word at its place, by the widths that its letters have in the font."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.viz.reading import TokenCell, token_cells

if TYPE_CHECKING:
    from headwater.results.explanation import Explanation

MISSING = "□"


@dataclass(frozen=True)
class Placed:
    """A word of a line: where it begins and how wide it is, in points from the left; `size` of its letters."""

    cell: TokenCell
    left: float
    width: float
    size: float


def word_cells(explanation: Explanation) -> list[TokenCell]:
    """Whole words where the tokenizer says which tokens make one; else tokens, those of one word without a space."""
    joined = explanation.offsets is not None and len(explanation.offsets) == len(explanation.tokens)
    return [replace(cell, text=legible(cell.text)) for cell in token_cells(explanation, words=joined)]


def wrap(line_of: Iterable[TokenCell], width: float, size: float, small: float) -> list[list[Placed]]:
    """Lines no wider than `width`. They break at spaces, and inside a word only where it alone is too wide."""
    lines: list[list[Placed]] = [[]]
    for group in together(line_of):
        needed = sum(wide(cell.text, small if cell.special else size) for cell in group)
        start = after(lines[-1], size)
        if lines[-1] and start + needed > width:
            lines.append([])
            start = 0.0
        for cell in group:
            start = put(lines, cell, start, width, small if cell.special else size)
    return [line for line in lines if line]


def put(lines: list[list[Placed]], cell: TokenCell, start: float, width: float, size: float) -> float:
    """Place one cell, in pieces where it is wider than a line; gives where the next one begins."""
    for piece in pieces(cell.text, width - start, width, size):
        if lines[-1] and start + wide(piece, size) > width + 1e-6:
            lines.append([])
            start = 0.0
        lines[-1].append(Placed(replace(cell, text=piece), start, wide(piece, size), size))
        start += wide(piece, size)
    return start


def pieces(text: str, first: float, width: float, size: float) -> Iterator[str]:
    """The text whole where it fits a line, else cut where a line ends."""
    if wide(text, size) <= width:
        yield text
        return
    room, piece = first, ""
    for letter in text:
        if piece and wide(piece + letter, size) > room:
            yield piece
            room, piece = width, ""
        piece += letter
    yield piece


def together(line_of: Iterable[TokenCell]) -> Iterator[list[TokenCell]]:
    """Cells that no space parts: a word and the comma behind it stay in one line."""
    group: list[TokenCell] = []
    for cell in line_of:
        if group and cell.gap:
            yield group
            group = []
        group.append(cell)
    if group:
        yield group


def after(line: Sequence[Placed], size: float) -> float:
    return line[-1].left + line[-1].width + wide(" ", size) if line else 0.0


@lru_cache(maxsize=8192)
def wide(text: str, size: float) -> float:
    """The width of a text in points. A `$` is a letter, not the beginning of a formula."""
    from matplotlib.textpath import text_to_path

    if text == " ":
        return 0.34 * size
    found, _, _ = text_to_path.get_text_width_height_descent(text, face(size), ismath=False)
    return float(found)


@lru_cache(maxsize=16)
def face(size: float) -> object:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family="DejaVu Sans", size=size)


@lru_cache(maxsize=8192)
def legible(text: str) -> str:
    """What the font cannot draw is shown as an empty box."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont(face(8.0)))
    return "".join(letter if font.get_char_index(ord(letter)) else MISSING for letter in text)
