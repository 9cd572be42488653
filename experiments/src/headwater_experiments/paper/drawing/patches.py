"""Digits cut into superpixels, by several methods side by side: red adds, blue with a hatching takes away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import UsageError
from headwater.viz.colour import NEGATIVE, POSITIVE, largest, shade

from .grids import (
    MARK,
    SWATCH,
    VISIBLE,
    columns_of,
    draw_colour_key,
    method_labels,
    score_text,
    write_below,
    write_heads,
    write_sum,
)
from .page import Margins, panel_width, panels, use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.results.comparison import Comparison
    from headwater.results.explanation import Explanation

INK, FAINT = 150, 50  # how much darker than white the brightest pixel is drawn, alone and under a tint
STRONGEST = 0.85  # opacity of full colour, under which the image is still seen
LEVELS = 4  # of the hatching's darkness
APART = 1.3  # pixels between two lines of a hatching
MARGINS = Margins(left=0.06, right=0.06, top=0.24, bottom=0.44, across=0.06, down=0.22)


@dataclass(frozen=True)
class Digit:
    """An image of bytes [rows, columns], the patch of each pixel, and what methods say of the patches."""

    image: Any
    segments: Any
    found: Comparison


@use_style()
def digits(every: Sequence[Digit], methods: Sequence[str] | None = None) -> Figure:
    """A row a digit: the image as it is cut with its class and score, then each method with its sum.

    Each picture has full colour at its own largest relevance. What takes away is hatched, so that the sign shows
    without colour; the image itself is seen in grey below the tint.
    """
    rows = columns_of([digit.found for digit in every], methods)
    columns = 1 + len(rows[0])
    figure, axes = panels(len(rows), columns, panel_width(columns, MARGINS), MARGINS)
    for line, digit, row in zip(axes, every, rows, strict=True):
        ground(line[0], digit)
        write_below(line[0], score_text(row[0]))
        for axis, explanation in zip(line[1:], row, strict=True):
            ground(axis, digit, FAINT)
            tint(axis, digit, explanation)
            write_sum(axis, explanation)
    write_heads(axes[0], ["image", *method_labels(rows)])
    for line, row in zip(axes, rows, strict=True):
        number = {"va": "top", "fontweight": "bold", "bbox": {"facecolor": "white", "pad": 1}, "zorder": 5}
        line[0].annotate(str(row[0].target), (0.06, 0.94), xycoords="axes fraction", **number)
    draw_colour_key(figure, MARGINS.left, 0.07, "hatched", hatch_swatch)
    return figure


def ground(axes: Axes, digit: Digit, ink: int = INK) -> None:
    """The image in grey, and thin lines between its patches.

    Under a tint it is faint, so that red on a stroke is darker than the stroke where there is no colour.
    """
    from matplotlib.collections import LineCollection

    image, segments = np.asarray(digit.image), np.asarray(digit.segments)
    if image.ndim != 2 or image.shape != segments.shape:
        raise UsageError(f"image {image.shape} and segments {segments.shape} must both be [rows, columns] of one size.")
    high, wide = image.shape
    grey = 255 - image.astype(int) * ink // 255
    axes.imshow(grey, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=(0, wide, high, 0), zorder=1)
    axes.add_collection(LineCollection(borders(segments), colors="0.55", linewidths=0.25, zorder=4))
    axes.set(xlim=(-0.05, wide + 0.05), ylim=(high + 0.05, -0.05))
    axes.set_axis_off()


def borders(segments: Any) -> list[list[tuple[int, int]]]:
    """The frame, and lines wherever two pixels that touch are of different patches; a straight line is one piece."""
    high, wide = segments.shape
    frame = [(0, 0), (wide, 0), (wide, high), (0, high), (0, 0)]
    upright = [(x + 1, *run) for x, run in runs((segments[:, 1:] != segments[:, :-1]).T)]
    level = [(y + 1, *run) for y, run in runs(segments[1:] != segments[:-1])]
    return [frame, *([(x, a), (x, b)] for x, a, b in upright), *([(a, y), (b, y)] for y, a, b in level)]


def runs(flags: Any) -> list[tuple[int, tuple[int, int]]]:
    """Where flags are set without a gap: the row, and from where to where."""
    edges = np.diff(np.pad(flags.astype(int), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.argwhere(edges == 1).tolist(), np.argwhere(edges == -1).tolist()
    return [(row, (start, end)) for (row, start), (_, end) in zip(starts, ends, strict=True)]


def tint(axes: Axes, digit: Digit, explanation: Explanation) -> None:
    """Every patch in the colour of its relevance, hatched where it takes away."""
    segments = np.asarray(digit.segments)
    amounts = explanation.relevance.tolist()
    if len(amounts) != int(segments.max()) + 1:
        raise UsageError(
            f"{explanation.method} explains {len(amounts)} nodes, the digit has {segments.max() + 1} patches."
        )
    looks = [shade(amount, largest(amounts)) for amount in amounts]
    colours = np.array([(POSITIVE if look.sign > 0 else NEGATIVE)["light"] for look in looks]) / 255
    opacity = np.array([look.opacity for look in looks])
    painted = np.concatenate([colours, STRONGEST * opacity[:, None]], 1)[segments]
    high, wide = segments.shape
    axes.imshow(painted, interpolation="nearest", extent=(0, wide, high, 0), zorder=2)
    negative = np.array([look.sign < 0 and look.opacity >= VISIBLE for look in looks])
    for level in range(1, LEVELS + 1):
        chosen = negative & (np.ceil(opacity * LEVELS) == level)
        hatch(axes, chosen[segments], level / LEVELS)


def hatch(axes: Axes, chosen: Any, strength: float) -> None:
    """Slanting lines over the chosen pixels, the darker the stronger."""
    from matplotlib.collections import LineCollection
    from matplotlib.path import Path

    if not chosen.any():
        return
    bars = [Path([(a, y), (b, y), (b, y + 1), (a, y + 1), (a, y)]) for y, (a, b) in runs(chosen)]
    high, wide = chosen.shape
    starts = np.arange(APART, wide + high, APART).tolist()
    lines = LineCollection(
        [[(s, 0), (s - high, high)] for s in starts],
        colors=MARK,
        linewidths=0.3 + 0.3 * strength,
        alpha=0.35 + 0.65 * strength,
        zorder=3,
    )
    axes.add_collection(lines, autolim=False)
    lines.set_clip_path(Path.make_compound_path(*bars), transform=axes.transData)


def hatch_swatch(axes: Axes, left: float, low: float) -> None:
    """The hatching of the key, in inches."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    step = SWATCH / 4
    lines = LineCollection([[(left + i * step, low), (left + i * step - SWATCH, low + SWATCH)] for i in range(1, 9)])
    lines.set(color=MARK, linewidth=0.6)
    axes.add_collection(lines, autolim=False)
    lines.set_clip_path(Rectangle((left, low), SWATCH, SWATCH, transform=axes.transData))
