"""What an explanation costs, beside what the paper reports: a table, and a figure on logarithmic scales.

The paper gives seconds per sample on SST-2 (its appendix on runtimes). Its gradient methods take less than its
prediction, so their times cannot hold the forward pass; those measured here do, as a user waits for both.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from ..published import RUNTIME as PAPER
from .marks import BLACK, BLUE, VERMILLION, label
from .page import Margins, panels, use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.evaluation.cost import Cost

FORWARD = "forward"
HEADS = ("method", "s", "× prediction", "of nine tenths", "paper, s", "paper, × prediction")
NOTE = (
    "Mean seconds per sample and multiples of the prediction alone, with the range of nine tenths of the samples. "
    "Measured times hold the forward pass; the paper's times of gradient methods lie below its prediction, so they "
    "cannot."
)


@dataclass(frozen=True)
class Timing:
    """Seconds of one method and how many predictions that is, with the range over samples; None where not known."""

    method: str
    seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    paper_seconds: float | None
    paper_ratio: float | None


def timings(costs: Sequence[Cost], paper: Mapping[str, float] = PAPER) -> list[Timing]:
    """Measured and reported side by side: the paper's rows in its order, then what it does not have."""
    measured = {cost.name: cost for cost in costs}
    return [timing(name, measured.get(name), paper) for name in dict.fromkeys((*paper, *measured))]


def timing(name: str, cost: Cost | None, paper: Mapping[str, float]) -> Timing:
    seconds = paper.get(name)
    ratio = None if seconds is None or FORWARD not in paper else seconds / paper[FORWARD]
    if cost is None:
        return Timing(name, None, None, None, None, seconds, ratio)
    return Timing(name, cost.seconds, cost.ratio, cost.low, cost.high, seconds, ratio)


def row_label(method: str) -> str:
    return "prediction" if method == FORWARD else label(method)


def timing_markdown(rows: Sequence[Timing]) -> str:
    """The table for a page."""
    lines = [f"| {' | '.join(HEADS)} |", "|---|" + "---:|" * (len(HEADS) - 1)]
    lines += [f"| {' | '.join(row_cells(row))} |" for row in rows]
    return "\n".join([*lines, "", NOTE, ""])


def row_cells(row: Timing) -> Iterator[str]:
    yield row_label(row.method)
    yield from (few(row.seconds), few(row.ratio))
    yield "" if row.low is None or row.method == FORWARD else f"{few(row.low)} to {few(row.high)}"
    yield from (few(row.paper_seconds), few(row.paper_ratio))


def few(value: float | None) -> str:
    """Two digits that count."""
    return "" if value is None else f"{float(f'{value:.2g}'):g}"


def to_csv(rows: Sequence[Timing]) -> str:
    """All digits, for a program."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Timing))
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()


@use_style()
def runtime(costs: Sequence[Cost], paper: Mapping[str, float] = PAPER) -> Figure:
    """Seconds per sample and multiples of a prediction, a row per method; dots are measured, diamonds the paper's."""
    rows = timings(costs, paper)
    margins = Margins(left=0.95, right=0.15, top=0.08, bottom=0.62, across=0.2)
    figure, axes = panels(1, 2, 0.17 * len(rows) + 0.1, margins)
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        point(axes[0, 0], place, row.seconds, row.paper_seconds)
        point(axes[0, 1], place, row.ratio, row.paper_ratio)
        if row.low is not None:
            axes[0, 1].plot([row.low, row.high], [place, place], color=BLUE, linewidth=1, zorder=1)
    for axis, name in zip(axes[0], ("seconds per sample", "times the prediction"), strict=True):
        set_scale(axis, name, len(rows))
    axes[0, 0].set_yticks(places, [row_label(row.method) for row in rows])
    axes[0, 1].axvline(1, color=BLACK, linewidth=0.6, dashes=(5, 3), zorder=0)
    draw_interval_key(figure, margins)
    return figure


def point(axes: Axes, place: int, measured: float | None, reported: float | None) -> None:
    if measured is not None:
        axes.plot([measured], [place], **MEASURED)
    if reported is not None:
        axes.plot([reported], [place], **REPORTED)


MEASURED: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "color": BLUE, "markersize": 4.2, "zorder": 3, "label": "measured here"
}  # fmt: skip
REPORTED: dict[str, Any] = {
    "linestyle": "none", "marker": "D", "markerfacecolor": "white", "markeredgecolor": VERMILLION,
    "markeredgewidth": 0.9, "markersize": 4.2, "zorder": 2, "label": "the paper",
}  # fmt: skip


def set_scale(axes: Axes, name: str, rows: int) -> None:
    """A logarithmic axis across, and a fine line for every method."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=name, ylim=(rows - 0.5, -0.5))
    axes.set_yticks(range(rows), [""] * rows)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="0.88", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def draw_interval_key(figure: Figure, margins: Margins) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    handles = [Line2D([], [], **MEASURED), Line2D([], [], **REPORTED)]
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=((margins.left + width - margins.right) / 2 / width, 0.06 / height),
        ncols=2,
    )
