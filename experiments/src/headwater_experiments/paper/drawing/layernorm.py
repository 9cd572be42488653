"""The collapse: what is left of relevance after each LayerNorm it meets (the paper's second proposition)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import UsageError
from headwater.evaluation.ranking import Floats

from .marks import BLACK, GREY, Mark, label, marks
from .page import SMALL, Margins, beside, few_ticks, panels, use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.results.audit import Audit

APART = 0.2  # before and after stand this far from the middle of their place
HEIGHT = 1.6
FEW = 10  # normalisations whose numbers all fit below a panel


@dataclass(frozen=True, eq=False)
class Passed:
    """Sums of relevance [samples, normalisations], in the order in which relevance meets them: from the score down."""

    before: Floats
    after: Floats
    predicted: Floats

    @property
    def share(self) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.abs(self.after / self.before), dtype=np.float64)


@use_style()
def collapse(audits: Mapping[str, Sequence[Audit]]) -> Figure:
    """Relevance before and after each LayerNorm, a panel a method: audits of the same inputs, by method.

    Relevance flows from the score to the inputs: "before" is what arrives at the output of a normalisation, "after"
    what its input passes on. A line is one sample, markers are means. The last panel has the share that passes,
    |after / before|, of the median sample, with bars over 80 % of the samples, beside what the proposition predicts:
    eps / (eps + Var) for the gradient, 1 for the LN-rule. Audit in float64: in float32 rounding hides so small a share.
    """
    found = {method: gather_flows(several) for method, several in audits.items()}
    if not found:
        raise UsageError("the figure needs the audits of at least one method.")
    if len({one.before.shape[1] for one in found.values()}) > 1:
        raise UsageError("these audits met different numbers of normalisations; draw those of one model.")
    margins = Margins(left=0.48, top=0.24, bottom=0.72, across=0.3)
    figure, axes = panels(1, len(found) + 1, HEIGHT, margins)
    ends = common(list(found.values()))
    for axis, (method, one) in zip(axes[0], found.items(), strict=False):
        slopes(axis, one, ends)
        axis.set_title(label(method))
    axes[0, 0].set_ylabel("sum of relevance (logit)")
    for axis in axes[0, 1:-1]:
        axis.set_yticklabels([])
    shares(axes[0, -1], found)
    make_room(axes[0, -1], 0.44)
    draw_marker_key(figure, axes[0], margins)
    return figure


def gather_flows(audits: Sequence[Audit]) -> Passed:
    """The flows of all samples, the normalisation next to the score first."""
    if not audits or not audits[0].norms:
        raise UsageError("there is no normalisation in these audits: nothing can be drawn of what passes it.")
    if len({len(audit.norms) for audit in audits}) > 1:
        raise UsageError("these audits met different numbers of normalisations; draw those of one model.")
    rows = [[(n.out, n.into, n.predicted) for n in reversed(audit.norms)] for audit in audits]
    out, into, predicted = np.moveaxis(np.array(rows, dtype=np.float64), -1, 0)
    return Passed(np.nan_to_num(out), into, np.abs(predicted))


def common(several: Sequence[Passed]) -> tuple[float, float]:
    """One scale for all panels."""
    every = np.concatenate([np.append(one.before, one.after) for one in several])
    low, high = min(0.0, float(every.min())), float(every.max())
    room = 0.06 * ((high - low) or 1.0)
    return low - room, high + room


def slopes(axes: Axes, one: Passed, ends: tuple[float, float]) -> None:
    """For every normalisation a line per sample, from before to after, and both means."""
    places = np.arange(one.before.shape[1])
    faint = max(0.15, min(0.6, 12 / len(one.before)))
    axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    for place, before, after in zip(places, one.before.T, one.after.T, strict=True):
        lines = axes.plot([place - APART, place + APART], [before, after], color=GREY, linewidth=0.6, alpha=faint)
        for line in lines:
            line.set_rasterized(len(before) > 100)
    means = one.before.mean(0), one.after.mean(0)
    axes.plot(places - APART, means[0], **{**BEFORE, "markersize": dot(len(places))})
    axes.plot(places + APART, means[1], **{**AFTER, "markersize": dot(len(places))})
    axes.set_ylim(*ends)
    few_ticks(axes)
    number_ticks(axes, len(places))


BEFORE: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "color": BLACK, "markersize": 3.6, "zorder": 3, "label": "before (mean)"
}  # fmt: skip
AFTER: dict[str, Any] = {**BEFORE, "markerfacecolor": "white", "markeredgewidth": 0.9, "label": "after (mean)"}


def dot(count: int) -> float:
    """The size of a marker: smaller where there are many normalisations."""
    return max(2.0, min(3.6, 36 / count))


def number_ticks(axes: Axes, count: int) -> None:
    """Normalisations have their number from the input, so the last comes first."""
    step = 1 if count <= FEW else -(-count // 6)
    places = list(range(0, count, step))
    axes.set_xlim(-0.6, count - 0.4)
    axes.set_xticks(places, [str(count - place) for place in places])


def shares(axes: Axes, found: Mapping[str, Passed]) -> None:
    """What passes, on a logarithmic scale, measured and predicted."""
    looks = marks(found)
    for method, one in found.items():
        places = np.arange(one.share.shape[1])
        low, middle, high = percentiles(one.share)
        axes.vlines(places, low, high, color=looks[method].colour, linewidth=1.0, zorder=2)
        axes.plot(places, middle, **point_style(looks[method], len(places)), label=f"{looks[method].label}, measured")
        axes.plot(places, np.median(one.predicted, 0), **PREDICTED)
    axes.set_yscale("log")
    axes.set_title("share that passes")
    axes.set_ylabel("|after / before|")
    number_ticks(axes, len(places))


def percentiles(share: Floats) -> tuple[Floats, Floats, Floats]:
    """The 10th, 50th and 90th percentile of the samples; those left out to which nothing came."""
    finite = [column[np.isfinite(column)] for column in share.T]
    low, middle, high = np.array([np.quantile(c, [0.1, 0.5, 0.9]) if len(c) else [np.nan] * 3 for c in finite]).T
    return low, middle, high


def point_style(look: Mark, count: int) -> dict[str, Any]:
    return {**look.line, "linestyle": "none", "markersize": dot(count), "zorder": 3}


PREDICTED: dict[str, Any] = {
    "linestyle": "none", "marker": "_", "markersize": 9, "markeredgewidth": 0.8, "color": BLACK, "zorder": 1
}  # fmt: skip


def make_room(axes: Axes, inches: float) -> None:
    """Room on the left for the numbers of another scale."""
    box, width = axes.get_position(), axes.figure.get_size_inches()[0]
    axes.set_position((box.x0 + inches / width, box.y0, box.width - inches / width, box.height))


def draw_marker_key(figure: Figure, axes: Any, margins: Margins) -> None:
    """The name of the axis below all panels, and what the markers mean."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    middle = (margins.left + width - margins.right) / 2
    beside(figure, middle, 0.41, "LayerNorm, from the score down to the input", ha="center", va="center")
    sample = Line2D([], [], color=GREY, linewidth=0.8, label="one sample")
    before, after = (Line2D([], [], **look) for look in (BEFORE, AFTER))
    measured, _ = axes[-1].get_legend_handles_labels()
    predicted = Line2D([], [], label="predicted", **PREDICTED)
    figure.legend(
        handles=[sample, before, after, *measured, predicted],
        loc="lower center",
        bbox_to_anchor=(middle / width, 0.08 / height),
        ncols=6,
        fontsize=SMALL,
        handlelength=1.4,
        columnspacing=1.2,
    )
