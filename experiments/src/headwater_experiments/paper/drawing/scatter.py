"""Does relevance add up: every sample's score against the sum of its relevance (the paper's conservation figure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.evaluation.ranking import Floats

from .marks import BLACK, BLUE, canonical, label, scores_of
from .page import SMALL, Margins, beside, few_ticks, panel_height, panel_width, panels, use_style, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.evaluation.conservation import Conservation
    from headwater.evaluation.results import Evaluation

Ends = tuple[float, float]

WIDEST, NARROWEST = 4, 6  # panels in a row of one dataset; of two datasets beside each other
LARGEST, SMALLEST = 1.6, 0.6  # inches, the height of a panel
NARROW = 1.3  # inches, below which a panel's numbers are written short
FAR = 3.0  # sums that need so many times the score's range get an axis of their own
CLOSED = 1e-3  # a ledger that is off by less, relative to its lines, closes at the scale of a picture
RINGS = 16  # an inch
ROOM = 0.05  # of the range, around the points
MEANING = "r: correlation of sum and score; error, in % or multiples (×): mean |score − sum| over mean |score|"
RING: dict[str, Any] = {"facecolors": "white", "edgecolors": BLACK, "linewidths": 0.7, "zorder": 3}


@use_style()
def conservation(evaluations: Mapping[str, Evaluation], methods: Sequence[str]) -> Figure:
    """A panel a dataset and method: each dot is a sample, and on the dashed line its relevance adds up to its score.

    Panels of a dataset share one scale for both axes; only a method whose sums lie far outside the scores (attention
    maps add up to the number of tokens) has an axis of its own. Where a method's ledger closes, rings add biases and
    constants to the inputs, for samples spread evenly over the scores. Every sample is drawn, none is cut off.
    """
    names = canonical(evaluations, methods)
    rows, blocks, columns = arrange_panels(len(evaluations), len(names))
    several = len(evaluations) > 1
    margins = Margins(left=0.56, top=0.5, bottom=0.82, across=0.34, down=0.7 if several else 0.52, apart=0.12)
    figure, axes = panels(rows, blocks * columns, panel_size(rows, columns, blocks, margins), margins, blocks)
    places = axes.reshape(-1, columns) if several else axes.reshape(1, -1)
    for place, (dataset, evaluation) in zip(places, evaluations.items(), strict=False):
        block(figure, place, dataset, evaluation, names)
    for axis in (axis for axis in axes.flat if not axis.has_data() and not axis.texts):
        axis.remove()
    write_legend(figure, margins, any_rings(evaluations, names))
    return figure


def arrange_panels(datasets: int, methods: int) -> tuple[int, int, int]:
    """Rows, datasets in a row, and panels that a dataset has in its row."""
    if datasets == 1:
        rows = -(-methods // WIDEST)
        return rows, 1, -(-methods // rows)
    blocks = 2 if datasets > 3 and 2 * methods <= NARROWEST else 1
    return -(-datasets // blocks), blocks, methods


def panel_size(rows: int, columns: int, blocks: int, margins: Margins) -> float:
    """The height of a panel: square where the page is tall enough."""
    wanted = min(LARGEST, panel_width(blocks * columns, margins, blocks), panel_height(rows, margins))
    return max(SMALLEST, wanted)


def block(figure: Figure, axes: Any, dataset: str, evaluation: Evaluation, names: Sequence[str]) -> None:
    """The panels of one dataset, its name above the first."""
    ends = find_ends(evaluation, names)
    for axis, method in zip(axes.flat, names, strict=False):
        draw_points(axis, evaluation, method, ends)
    write_title(figure, axes.flat[0], f"{dataset} (n = {len(evaluation):,})", above=0.33)


def find_ends(evaluation: Evaluation, names: Sequence[str]) -> Ends:
    """The ends of the axes that a dataset's panels share: all scores, and all sums that are not far from them."""
    held = [evaluation.samples.values[s.method] for name in names if (s := scores_of(evaluation, name)) is not None]
    scores = np.concatenate([values["score"] for values in held]) if held else np.zeros(1)
    near = [values["inputs"] for values in held if not far(values["inputs"], limits(scores))]
    return limits(np.concatenate([scores, *near]))


def limits(values: Floats) -> Ends:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    room = ROOM * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def far(total: Floats, ends: Ends) -> bool:
    low, high = limits(np.append(total, ends))
    return high - low > FAR * (ends[1] - ends[0])


def draw_points(axes: Axes, evaluation: Evaluation, method: str, ends: Ends) -> None:
    """The points of one method on one dataset, and above them what they come to."""
    axes.set_title(label(method), fontsize=SMALL, pad=12)
    found = scores_of(evaluation, method)
    if found is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", color="0.4", transform=axes.transAxes)
        return
    values = evaluation.samples.values[found.method]
    score, total = values["score"], values["inputs"]
    axes.plot(ends, ends, color=BLACK, linewidth=0.7, dashes=(5, 3), zorder=1)
    axes.scatter(score, total, **dots(len(score)), color=BLUE, linewidths=0, zorder=2, rasterized=True)
    if closes(found.conservation):
        chosen = evenly_over_range(score, round(RINGS * width_of(axes)))
        axes.scatter(score[chosen], books(values)[chosen], s=10, **RING)
    axes.set(xlim=ends, ylim=limits(np.append(total, ends)) if far(total, ends) else ends)
    few_ticks(axes, 3, 3)
    write_numbers(axes, found.conservation)


def dots(samples: int) -> dict[str, float]:
    """Area in square points and opacity: less of both where there are many, so that one sees where most of them lie."""
    return {"s": float(np.clip(1200 / samples, 1.5, 6.0)), "alpha": float(np.clip(1000 / samples, 0.12, 0.45))}


def closes(kept: Conservation) -> bool:
    return kept.largest_unaccounted < CLOSED


def books(values: Mapping[str, Any]) -> Floats:
    """Inputs, biases, constants and readout together: the score, where the ledger closes."""
    return np.asarray(sum(values[name] for name in ("inputs", "biases", "constants", "readout")), dtype=np.float64)


def evenly_over_range(score: Floats, count: int) -> Any:
    """The samples whose scores lie nearest to places evenly over their range: rings on all would hide each other."""
    places = np.linspace(score.min(), score.max(), count)
    return np.unique([np.abs(score - place).argmin() for place in places])


def any_rings(evaluations: Mapping[str, Evaluation], names: Sequence[str]) -> bool:
    held = [scores_of(e, name) for e in evaluations.values() for name in names]
    return any(one is not None and closes(one.conservation) for one in held)


def write_numbers(axes: Axes, kept: Conservation) -> None:
    """Correlation and error above the panel, where they hide no point."""
    said = (
        f"r = {format_correlation(kept.correlation)}, {'error ' if width_of(axes) >= NARROW else ''}{share(kept.error)}"
    )
    axes.annotate(said, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center", fontsize=SMALL, color="0.25")


def width_of(axes: Axes) -> float:
    """In inches."""
    return float(axes.get_position().width * axes.figure.get_size_inches()[0])


def format_correlation(correlation: float) -> str:
    return "–" if np.isnan(correlation) else f"{correlation:.2f}".replace("-", "−")


def share(error: float) -> str:
    return f"{100 * error:.0f} %" if error < 9.995 else f"{error:.0f} ×"


def write_legend(figure: Figure, margins: Margins, rings: bool) -> None:
    """Names of both axes, and what dot, ring, line and the two numbers mean."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    middle, half = (margins.left + width - margins.right) / 2, (margins.bottom + height - margins.top) / 2
    beside(figure, middle, margins.bottom - 0.3, "score (logit)", ha="center", va="center")
    beside(figure, 0.09, half, "sum of relevance (logit)", rotation=90, ha="center", va="center")
    beside(figure, middle, 0.1, MEANING, ha="center", va="center", color="0.25")
    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=3, linestyle="none", label="a sample: sum over its inputs"),
        Line2D([], [], color=BLACK, linewidth=0.7, dashes=(5, 3), label="sum = score"),
    ]
    if rings:
        hollow = {"markerfacecolor": "white", "markeredgecolor": BLACK, "markeredgewidth": 0.7}
        said = "inputs + biases + constants"
        handles.insert(1, Line2D([], [], marker="o", markersize=3.6, linestyle="none", label=said, **hollow))
    figure.legend(handles=handles, loc="center", bbox_to_anchor=(middle / width, 0.29 / height), ncols=3)
