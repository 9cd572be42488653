"""An evaluation as tables of text: one a measure, with what sets each method apart from the best."""

from __future__ import annotations

import math

from ..plurals import say_count
from ..viz.tables import Table
from .results import Evaluation
from .statistics import MeanEstimate

UNKNOWN = "—"  # for a number that there is not: the interval of one entry, a correlation where nothing varies


def evaluation_headline(evaluation: Evaluation) -> str:
    accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.1%}"
    rule = evaluation.protocol
    return f"{count_samples(evaluation)}{accuracy}, protocol {rule.name}, version {rule.version}"


def count_samples(evaluation: Evaluation) -> str:
    return say_count(len(evaluation), "sample")


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """One for every measure, then what is known of each method beside them."""
    return [*(measure_table(evaluation, name) for name in evaluation.measures), method_table(evaluation)]


def measure_table(evaluation: Evaluation, measure: str) -> Table:
    """Values with intervals, and each method's paired difference to the best, which allows for the choice of it."""
    best, apart_from = best_of(evaluation, measure), evaluation.to_the_best(measure)
    rows = []
    for one in evaluation:
        found = one.estimates[measure]
        if one.method == best:
            rows.append((one.method, f"{found.value:.4f}", format_interval(found), "best", "", ""))
            continue
        d = apart_from[one.method]
        apart = format_interval(MeanEstimate(d.value, d.low, d.high), "+.4f")
        rows.append((one.method, f"{found.value:.4f}", format_interval(found), f"{d.value:+.4f}", apart, format_p(d.p)))
    what = evaluation.measure(measure)
    title = f"{what.title}, {what.better} is better"
    return Table(title, ("method", "mean", "95 %", "to the best", "95 %", "p"), rows, left=1)


def method_table(evaluation: Evaluation) -> Table:
    columns = ["method", "score vs. sum", "mean error"]
    first = next(iter(evaluation))
    columns += ["randomised"] if first.randomisation is not None else []
    columns += ["x forward"] if first.runtime is not None else []
    rows = []
    for one in evaluation:
        row = [one.method, format_or_dash(one.conservation.correlation, "+.3f"), f"{one.conservation.error:.2%}"]
        row += [format_or_dash(one.randomisation.value, "+.3f")] if one.randomisation is not None else []
        row += [f"{one.runtime.ratio:.2f}"] if one.runtime is not None else []
        rows.append(tuple(row))
    note = "correlation and mean error of the summed relevance against the score"
    note += "; rank correlation after scrambling the weights, 0 is right" if first.randomisation is not None else ""
    note += "; time of an explanation over a forward pass" if first.runtime is not None else ""
    return Table("conservation and cost", tuple(columns), rows, note, left=1)


def best_of(evaluation: Evaluation, measure: str) -> str:
    """The method with the best mean."""
    sign = evaluation.measure(measure).sign
    return max(evaluation.methods, key=lambda m: sign * evaluation[m].estimates[measure].value)


def format_interval(estimate: MeanEstimate, form: str = ".4f") -> str:
    """From where to where; a dash where it is not known."""
    low, high = (format_or_dash(value, form) for value in (estimate.low, estimate.high))
    return f"{low} to {high}" if UNKNOWN not in (low, high) else UNKNOWN


def format_or_dash(value: float, form: str) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:{form}}"


def format_p(value: float) -> str:
    return "< .001" if value < 0.001 else format_or_dash(value, ".3f")
