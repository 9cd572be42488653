"""Results drawn with matplotlib, in the colours of all other pictures. What is drawn can be changed: axes come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import InputError, require_extra
from headwater.results.audit import Audit
from headwater.results.comparison import Comparison
from headwater.results.display import PLOT, shows
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation
from headwater.results.readable import readable

from .colour import NEGATIVE, POSITIVE, Rgb, largest
from .comparison import alike, method_lines
from .layers import audit_layers
from .reading import TokenCell, token_cells, visible, with_sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = 0.26  # of height for a row of text
MOST_ROWS = 200  # in a picture of bars: more cannot be read


def make_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or those of a figure of their own, which pyplot knows: a notebook shows it."""
    with require_extra("a plot", "plot"):
        import matplotlib.pyplot as plt
    if ax is not None:
        return ax
    axes: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def as_colour(rgb: Rgb) -> tuple[float, float, float]:
    red, green, blue = (part / 255 for part in rgb)
    return red, green, blue


def colour_map() -> Any:
    """From what takes away, by white, to what adds."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = (as_colour(NEGATIVE["light"]), (1.0, 1.0, 1.0), as_colour(POSITIVE["light"]))
    return LinearSegmentedColormap.from_list("headwater", ends)


def title_of(e: Explanation) -> str:
    return f"{readable(e.target)}: {with_sign(e.score).strip()} ({e.output}), {e.method}"


@shows(PLOT, Explanation)
def plot_explanation(e: Explanation, ax: Axes | None = None) -> Axes:
    """A bar for every word or token, from the first at the top; an image's patches as they lie."""
    if e.image is not None:
        axes = make_axes(ax, 4.5, 4.0)
        plot_matrix(axes, e.patches.tolist(), e.relevance.flatten().tolist())
    else:
        cells = cells_to_plot(e)
        axes = make_axes(ax, 6.0, 1.2 + INCHES * len(cells))
        draw_bars(axes, [cell.text for cell in cells], [cell.relevance for cell in cells])
        axes.set_xlabel(f"relevance, in units of the {e.output}")
    axes.set_title(title_of(e))
    return axes


def cells_to_plot(e: Explanation) -> list[TokenCell]:
    """Words where the tokenizer tells them, else tokens, or the largest entries of a tensor."""
    words = e.offsets is not None and not isinstance(e.text, tuple) and not e.segments
    cells = token_cells(e, words)
    if len(cells) <= MOST_ROWS:
        return cells
    loud = {id(cell) for cell in sorted(cells, key=lambda cell: -abs(cell.relevance))[:MOST_ROWS]}
    return [cell for cell in cells if id(cell) in loud]


def draw_bars(axes: Axes, names: Sequence[str], values: Sequence[float]) -> None:
    adds, takes = as_colour(POSITIVE["light"]), as_colour(NEGATIVE["light"])
    places = range(len(values))
    bars = axes.barh(places, values, color=[adds if value >= 0 else takes for value in values])
    for bar, value in zip(bars, values, strict=True):
        bar.set_hatch("" if value >= 0 else "///")
    axes.set_yticks(places, [as_label(name) for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.margins(y=0.01)


def plot_matrix(axes: Axes, rows: Sequence[Sequence[float]], scaled_by: Sequence[float]) -> None:
    """Numbers as colours, zero white, with the scale beside them."""
    scale = largest(scaled_by) or 1.0
    drawn = axes.imshow(rows, cmap=colour_map(), vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(drawn, ax=axes, label="relevance")


def as_label(text: str) -> str:
    """A text as it stands: matplotlib would read two dollar signs as the ends of a formula."""
    return visible(text).replace("$", r"\$")


@shows(PLOT, Comparison)
def plot_comparison(compared: Comparison, ax: Axes | None = None) -> Axes:
    """A row of colours for every method, each with full colour at its own largest relevance."""
    if any(e.image is not None for e in compared.explanations):
        raise InputError("images are plotted one by one: compared[method].plot().")
    groups = alike(method_lines(compared))
    if len(groups) != 1:
        raise InputError("these methods name different entries: plot them one by one, compared[method].plot().")
    shown = groups[0]
    axes = make_axes(ax, 2.0 + 0.4 * len(shown[0].cells), 1.6 + INCHES * len(shown))
    parts = [[cell.relevance / (line.scale or 1.0) for cell in line.cells] for line in shown]
    plot_matrix(axes, parts, [1.0])
    axes.set_yticks(range(len(shown)), [line.explanation.method for line in shown])
    set_words(axes, shown[0].names)
    axes.set_title("each row at its own scale")
    return axes


def set_words(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), [as_label(name) for name in names], rotation=60, ha="right")


@shows(PLOT, Generation)
def plot_generation(made: Generation, ax: Axes | None = None) -> Axes:
    """A matrix: a row for every output token, a column for every token before it."""
    rows = made.relevance.double().tolist()
    axes = make_axes(ax, 2.5 + 0.3 * len(made.tokens), 1.8 + INCHES * len(made))
    plot_matrix(axes, rows, [value for row in rows for value in row])
    axes.set_yticks(range(len(made)), [as_label(piece.strip(" ") or " ") for piece in made.output])
    set_words(axes, [piece.strip(" ") or " " for piece in made.pieces])
    axes.set_title(f"{made.score}, {made.method}")
    return axes


@shows(PLOT, Audit)
def plot_audit(found: Audit, ax: Axes | None = None) -> Axes:
    """The relevance that arrives at every layer, from the score down to the inputs."""
    arrives = [(layer.name, layer.arrives) for layer in audit_layers(found)]
    arrives.append(("inputs", found.explanation.ledger.inputs))
    axes = make_axes(ax, 6.0, 1.2 + INCHES * len(arrives))
    draw_bars(axes, [name for name, _ in arrives], [amount for _, amount in arrives])
    axes.axvline(found.explanation.score, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("relevance that arrives; dotted: the score")
    axes.set_title(title_of(found.explanation))
    return axes
