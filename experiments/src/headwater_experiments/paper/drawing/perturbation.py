"""Activation and pruning curves of several methods, side by side for every dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .marks import Mark, canonical, marks, scores_of
from .page import SMALL, Margins, few_ticks, panel_height, panels, use_style, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headwater.evaluation.protocols import Protocol
    from headwater.evaluation.results import Evaluation

ACROSS = {
    "activation": "items put back (%)",
    "insertion": "items put back (%)",
    "pruning": "items replaced (%)",
    "deletion": "items replaced (%)",
}
PAIRS = 3  # datasets that stand one below the other; more of them stand two in a row
BANDS = 4  # methods up to which intervals can be told apart
EVERY = 3  # a marker at every third point, at others for each method
ENTRY = 1.2  # inches of a name in the legend
LINE = 0.155
LOWEST = 0.7


@use_style()
def curves(
    evaluations: Mapping[str, Evaluation],
    methods: Sequence[str],
    tasks: Sequence[str] = ("activation", "pruning"),
) -> Figure:
    """Mean curves over the samples of each dataset, a panel a task; a title says whether up or down is better.

    With four methods or fewer, bands are 95 % bootstrap intervals of the mean; with more they would hide the lines. A
    method that was not measured on a dataset is missing in its panels.
    """
    looks = marks(canonical(evaluations, methods))
    beside_each_other = 1 if len(evaluations) <= PAIRS else 2
    rows, columns = -(-len(evaluations) // beside_each_other), beside_each_other * len(tasks)
    margins = find_margins(len(looks), columns)
    figure, axes = panels(rows, columns, tall(rows, columns, margins), margins, beside_each_other)
    for number, (dataset, evaluation) in enumerate(evaluations.items()):
        row, first = number // beside_each_other, number % beside_each_other * len(tasks)
        for axis, task in zip(axes[row, first : first + len(tasks)], tasks, strict=True):
            draw_curves(axis, evaluation, task, looks)
        write_title(figure, axes[row, first], f"{dataset} (n = {len(evaluation):,})", above=0.21)
    last = len(evaluations) % beside_each_other
    for axis in axes[-1, last * len(tasks) :] if last else ():
        axis.remove()
    draw_method_key(figure, looks, margins)
    return figure


def find_margins(methods: int, columns: int) -> Margins:
    lines = -(-methods // per_line(methods))
    return Margins(
        left=0.46, top=0.36, bottom=0.46 + LINE * lines, across=0.46 if columns > 2 else 0.6, down=0.68, apart=0.1
    )


def per_line(methods: int) -> int:
    """Names in a line of the legend: lines of equal length where that can be."""
    most = int(6.2 / ENTRY)
    return -(-methods // -(-methods // most))


def tall(rows: int, columns: int, margins: Margins) -> float:
    return max(LOWEST, min(panel_height(rows, margins), 1.9 if columns <= 2 else 1.25))


def draw_curves(axes: Axes, evaluation: Evaluation, task: str, looks: Mapping[str, Mark]) -> None:
    """The curves of all methods in one task."""
    for number, (method, look) in enumerate(looks.items()):
        scores = scores_of(evaluation, method)
        if scores is None:
            continue
        curve = scores.curve(task)
        percent = [100 * fraction for fraction in curve.fractions]
        axes.plot(percent, curve.mean, **look.line, markevery=(number % EVERY, EVERY), zorder=3 + number / 100)
        if len(looks) <= BANDS:
            axes.fill_between(percent, curve.low, curve.high, color=look.colour, alpha=0.15, linewidth=0, zorder=2)
    few_ticks(axes)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set(xlabel=across(task, evaluation.protocol), ylabel=up(task, evaluation.protocol))
    axes.margins(x=0.03)
    axes.set_ylim(**({"bottom": 0} if task == "pruning" else {"top": 1.02}))
    better = next(measure.better for measure in evaluation.curves if measure.name == task)
    axes.set_title(f"{task} {'↑' if better == 'higher' else '↓'}", fontsize=SMALL, pad=3)


def across(task: str, protocol: Protocol) -> str:
    """What is put back or gone; of a graph, its nodes."""
    if protocol.removal is None:
        return ACROSS[task]
    gone = "masked" if protocol.removal == "masked" else "taken out"
    return ACROSS[task].replace("items", "nodes").replace("replaced", gone)


def up(task: str, protocol: Protocol) -> str:
    """What the curve follows, with its unit."""
    if task == "pruning":
        return "error (logit²)"
    return f"p ({protocol.target if task == 'activation' else 'predicted'} class)"


def draw_method_key(figure: Figure, looks: Mapping[str, Mark], margins: Margins) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    handles: list[Any] = [Line2D([], [], label=look.label, **look.line) for look in looks.values()]
    figure.legend(
        handles=by_rows(handles, per_line(len(handles))),
        loc="lower center",
        bbox_to_anchor=((margins.left + width - margins.right) / 2 / width, 0.06 / height),
        ncols=per_line(len(handles)),
    )


def by_rows(handles: Sequence[Any], columns: int) -> list[Any]:
    """A legend fills its columns first; in this order it reads by rows."""
    return [handle for column in range(columns) for handle in handles[column::columns]]
