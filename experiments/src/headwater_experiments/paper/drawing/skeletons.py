"""Molecules by several methods side by side: atoms, and bonds where a method reaches them, in colours of relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import UsageError
from headwater.viz.colour import Shade, largest, shade

from .grids import MARK, SWATCH, VISIBLE, columns_of, draw_colour_key, method_labels, write_heads, write_sum
from .page import PLAIN, Margins, beside, panel_width, panels, use_style
from .sentences import block_heading, hexadecimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.results.comparison import Comparison
    from headwater.results.explanation import Explanation

RADIUS = 0.4  # of an atom's disc; all lengths are those of a bond
BAND = 0.34  # the width of a bond's tint
LETTER = 0.27  # from a named atom to where its bonds begin
BESIDE = 0.09  # between the lines of a double bond
ROOM = 0.55  # around a molecule
BLACK = "#111111"
DASHES = (0, (2.2, 1.4))
MARGINS = Margins(left=0.08, right=0.08, top=0.42, bottom=0.46, across=0.08, down=0.42)
TALLEST, LOWEST = 1.35, 0.7  # inches of a picture


@dataclass(frozen=True)
class Molecule:
    """A molecule as it is drawn: places of its atoms with bonds about 1 long, the names that are shown ("" for none),
    bonds as (atom, atom, order), and what methods say of it."""

    places: Sequence[tuple[float, float]]
    names: Sequence[str]
    bonds: Sequence[tuple[int, int, int]]
    found: Comparison


@use_style()
def molecules(every: Mapping[str, Molecule], methods: Sequence[str] | None = None) -> Figure:
    """A row a molecule under its title, a column per method; below each picture stands its sum.

    Atoms and bonds of a picture share its scale: full colour is the largest relevance among them. What takes away has a
    dashed ring (an atom) or dashed sides (a bond), so that the sign shows without colour.
    """
    rows = columns_of([one.found for one in every.values()], methods)
    columns, drawn = len(rows[0]), list(every.values())
    wide = panel_width(columns, MARGINS)
    bounds = [extent(one) for one in drawn]
    unit = min(wide / max(b[2] for b in bounds), TALLEST / max(b[3] for b in bounds))  # inches a bond
    height = max(LOWEST, unit * max(b[3] for b in bounds))
    figure, axes = panels(len(rows), columns, height, MARGINS)
    for line, one, row, bound in zip(axes, drawn, rows, bounds, strict=True):
        for axis, explanation in zip(line, row, strict=True):
            centre_molecule(axis, bound, wide / unit, height / unit)
            draw(axis, one, explanation, 72 * unit)
            write_sum(axis, explanation)
    for number, (title, row) in enumerate(zip(every, rows, strict=True)):
        top = axes[number, 0].get_position().y1 * figure.get_size_inches()[1]
        above = 0.24 if number == 0 else 0.06  # the first row stands under the methods' names
        beside(figure, MARGINS.left, top + above, block_heading(title, row[0]), fontsize=PLAIN, fontweight="bold")
    write_heads(axes[0], method_labels(rows))
    draw_colour_key(figure, MARGINS.left, 0.07, "dashed", ring_swatch)
    return figure


def extent(one: Molecule) -> tuple[float, float, float, float]:
    """The middle of a molecule, and how wide and high it is with room for its discs."""
    places = np.asarray(one.places, dtype=float)
    low, high = places.min(0) - ROOM, places.max(0) + ROOM
    middle, size = (low + high) / 2, high - low
    return float(middle[0]), float(middle[1]), float(size[0]), float(size[1])


def centre_molecule(axes: Axes, bound: tuple[float, float, float, float], wide: float, high: float) -> None:
    """All molecules at one scale, each in the middle of its panel."""
    axes.set(xlim=(bound[0] - wide / 2, bound[0] + wide / 2), ylim=(bound[1] - high / 2, bound[1] + high / 2))
    axes.set_axis_off()


def draw(axes: Axes, one: Molecule, explanation: Explanation, points: float) -> None:
    """One picture; `points` is the length of a bond on the page."""
    atoms, edges = explanation.relevance.tolist(), explanation.edges or ()
    if len(atoms) != len(one.places):
        raise UsageError(f"{explanation.method} explains {len(atoms)} nodes, the molecule has {len(one.places)} atoms.")
    scale = largest([*atoms, *(amount for *_, amount in edges)])
    for a, b, amount in edges:
        bond_tint(axes, one.places[a], one.places[b], shade(amount, scale), points)
    for place, amount in zip(one.places, atoms, strict=True):
        disc(axes, place, shade(amount, scale))
    for bond in one.bonds:
        lines_of(axes, one, bond, points)
    size = min(PLAIN, 0.62 * points)
    for (x, y), name in zip(one.places, one.names, strict=True):
        if name:
            axes.text(x, y, name, fontsize=size, ha="center", va="center_baseline", color=BLACK, zorder=5)


def disc(axes: Axes, place: tuple[float, float], look: Shade) -> None:
    from matplotlib.patches import Circle

    if look.opacity < VISIBLE:
        return
    colour = hexadecimal(look.background("light"))
    axes.add_patch(Circle(place, RADIUS, facecolor=colour, zorder=2))
    if look.sign < 0:
        axes.add_patch(
            Circle(place, RADIUS, fill=False, edgecolor=MARK, linewidth=0.6, linestyle=DASHES, zorder=4, label="minus")
        )


def bond_tint(axes: Axes, a: Any, b: Any, look: Shade, points: float) -> None:
    """A band from atom to atom; dashes run along what takes away."""
    if look.opacity < VISIBLE:
        return
    band = {"linewidth": BAND * points, "solid_capstyle": "butt", "zorder": 1}
    axes.plot(*zip(a, b, strict=True), color=hexadecimal(look.background("light")), **band)
    if look.sign < 0:
        for side in (-1, 1):
            ends = shift_line(a, b, side * BAND / 2, RADIUS)
            axes.plot(*zip(*ends, strict=True), color=MARK, linewidth=0.5, linestyle=DASHES, zorder=3, label="minus")


def lines_of(axes: Axes, one: Molecule, bond: tuple[int, int, int], points: float) -> None:
    """A bond of one to three lines, which leave room for the names of its atoms."""
    a, b, order = bond
    for number in range(order):
        aside = (number - (order - 1) / 2) * 2 * BESIDE
        ends = shift_line(one.places[a], one.places[b], aside, *(LETTER if one.names[i] else 0.0 for i in (a, b)))
        width = min(0.9, 0.08 * points)
        axes.plot(*zip(*ends, strict=True), color=BLACK, linewidth=width, solid_capstyle="round", zorder=4)


def shift_line(a: Any, b: Any, aside: float, short: float, short_too: float | None = None) -> list[tuple[float, float]]:
    """The line from a to b moved aside and shortened at both ends."""
    start, end = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    along = (end - start) / (np.linalg.norm(end - start) or 1.0)
    move = aside * np.array([-along[1], along[0]])
    ends = start + move + along * short, end + move - along * (short if short_too is None else short_too)
    return [(float(x), float(y)) for x, y in ends]


def ring_swatch(axes: Axes, left: float, low: float) -> None:
    """The ring of the key, in inches."""
    from matplotlib.patches import Circle

    middle = (left + SWATCH / 2, low + SWATCH / 2)
    axes.add_patch(Circle(middle, SWATCH * 0.42, fill=False, edgecolor=MARK, linewidth=0.6, linestyle=DASHES))
