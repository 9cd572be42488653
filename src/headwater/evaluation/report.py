"""An evaluation as one HTML page that needs nothing else: curves, tables with intervals, and how to repeat it.

No script, no font, no image from elsewhere; what comes from a model, a file or a method's name is escaped. The page
itself is `viz/templates/report.html`; here its numbers are made ready.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from ..viz.html import POLICY
from ..viz.pages import render_page
from . import charts
from .charts import Series, chart_legend, line_chart, scatter
from .measures import RANDOMISATION, Measure
from .results import Evaluation
from .statistics import Difference, MeanEstimate
from .summary import UNKNOWN, best_of, count_samples, format_or_dash, format_p

POINTS = 400
Row = tuple[str, Sequence[str]]
BOLD, INTERVAL = Markup("<b>{}</b>"), Markup('{}<span class="i">{}</span>')


def page(evaluation: Evaluation, title: str = "How faithful are these explanations?") -> str:
    """The whole page."""
    shown = draw_points(len(evaluation), int(evaluation.provenance["seed"]))
    first = next(iter(evaluation)).curves
    return render_page(
        "report.html",
        title=title,
        policy=Markup(POLICY),
        style=Markup(charts.STYLE),
        told=evaluation_facts(evaluation),
        methods=evaluation.methods,
        heads=[*map(column_head, evaluation.chosen), *extra_heads(evaluation)],
        scores=score_rows(evaluation),
        legend=Markup(chart_legend(evaluation.methods)),
        curves=[(m, Markup(curve_chart(evaluation, m)), curve_rows(evaluation, m)) for m in evaluation.curves],
        fractions=[f"{f:g}" for f in next(iter(first.values())).fractions] if first else [],
        compared=list(comparison_rows(evaluation)) if len(evaluation.methods) > 1 else [],
        scatters=[(one.method, Markup(draw_scatter(evaluation, one.method, shown))) for one in evaluation],
        conserved=conservation_rows(evaluation),
        points=len(shown),
        samples=len(evaluation),
        protocol=flatten_facts(evaluation.protocol.to_dict()),
        made=flatten_facts(evaluation.provenance),
    )


def evaluation_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    about = evaluation.provenance
    return [
        ("model", about["model"]),
        ("data", f"{about['data']} ({count_samples(evaluation)})"),
        ("accuracy", "without labels" if evaluation.accuracy is None else f"{evaluation.accuracy:.1%}"),
        ("protocol", f"{evaluation.protocol.name}, version {evaluation.protocol.version}"),
    ]


def curve_chart(evaluation: Evaluation, measure: Measure) -> str:
    """One line per method."""
    assert measure.axes is not None
    found = {one.method: one.curves[measure.name] for one in evaluation}
    series = [Series(method, curve.fractions, curve.mean.tolist()) for method, curve in found.items()]
    return line_chart(series, *measure.axes, f"{measure.name} curves of {', '.join(evaluation.methods)}")


def score_rows(evaluation: Evaluation) -> list[Row]:
    """Every method in every measure; in each column the best is bold, and a sign marks what cannot be told from it."""
    names = evaluation.measures
    columns = [
        estimate_cells([one.estimates[name] for one in evaluation], mark_methods(evaluation, name)) for name in names
    ]
    rows = zip(*columns, *extra_columns(evaluation), strict=True)
    return list(zip(evaluation.methods, rows, strict=True))


def column_head(measure: Measure) -> str:
    return f"{measure.title} {'↑' if measure.better == 'higher' else '↓'}"


def mark_methods(evaluation: Evaluation, measure: str) -> list[str]:
    """ "b" for the best, "≈" for what cannot be told from it."""
    best = best_of(evaluation, measure)
    level = [m for m, apart in evaluation.to_the_best(measure).items() if apart.better is None]
    return ["b" if m == best else "≈" if m in level else "" for m in evaluation.methods]


def estimate_cells(estimates: Sequence[MeanEstimate], marked: Sequence[str] | None = None) -> list[str]:
    """A column: each value with its interval below, all with the same places."""
    places = places_for(estimates)
    found: list[str] = []
    for e, mark in zip(estimates, marked or [""] * len(estimates), strict=True):
        value, low, high = (format_number(v, places) for v in (e.value, e.low, e.high))
        interval = f"{low} to {high}" if UNKNOWN not in (low, high) else UNKNOWN
        found.append(INTERVAL.format(BOLD.format(value) if mark == "b" else f"{mark} {value}".strip(), interval))
    return found


def format_number(value: float, places: int) -> str:
    """Without the sign of a zero."""
    shown = format_or_dash(value, f".{places}f")
    return shown.lstrip("-") if math.isfinite(value) and float(shown) == 0 else shown


def places_for(estimates: Sequence[MeanEstimate]) -> int:
    """As many as an interval of middling width deserves."""
    widths = sorted(e.high - e.low for e in estimates if e.high > e.low)
    return min(6, max(2, 1 - math.floor(math.log10(widths[len(widths) // 2])))) if widths else 3


def extra_heads(evaluation: Evaluation) -> list[str]:
    first = next(iter(evaluation))
    found = ["score vs. sum ↑"]
    found += [f"{RANDOMISATION} → 0"] if first.randomisation is not None else []
    return found + (["time / forward ↓"] if first.runtime is not None else [])


def extra_columns(evaluation: Evaluation) -> list[list[str]]:
    found = [estimate_cells(conservation_estimates(evaluation))]
    checked = [one.randomisation for one in evaluation if one.randomisation is not None]
    found += [estimate_cells(checked)] if checked else []
    timed = [f"{one.runtime.ratio:.2f}" for one in evaluation if one.runtime is not None]
    return found + ([timed] if timed else [])


def conservation_estimates(evaluation: Evaluation) -> list[MeanEstimate]:
    kept = [one.conservation for one in evaluation]
    return [MeanEstimate(c.correlation, c.low, c.high) for c in kept]


def curve_rows(evaluation: Evaluation, measure: Measure) -> list[Row]:
    return [(one.method, [f"{value:.4g}" for value in one.curves[measure.name].mean]) for one in evaluation]


def comparison_rows(evaluation: Evaluation) -> Iterator[tuple[str, str, list[Row], list[Row]]]:
    """Of every measure its title, the best method, each other one against it, and all pairs."""
    for measure in evaluation.chosen:
        best = best_of(evaluation, measure.score)
        found = [apart for method, apart in evaluation.to_the_best(measure.score).items() if method != best]
        yield measure.title, best, difference_rows(found), matrix(evaluation, measure.score)


def difference_rows(found: Sequence[Difference]) -> list[Row]:
    apart = estimate_cells(
        [MeanEstimate(d.value, d.low, d.high) for d in found], ["b" if d.better is not None else "" for d in found]
    )
    return [
        (d.first, [cell, format_or_dash(1 - d.share, ".1%"), format_p(d.p)])
        for cell, d in zip(apart, found, strict=True)
    ]


def matrix(evaluation: Evaluation, measure: str) -> list[Row]:
    found = {a: [evaluation.compare(a, b, measure) for b in evaluation.methods] for a in evaluation.methods}
    places = places_for([MeanEstimate(d.value, d.low, d.high) for row in found.values() for d in row])
    return [(method, [pair_cell(d, places) for d in row]) for method, row in found.items()]


def pair_cell(d: Difference, places: int) -> str:
    shown = f"{d.value:+.{places}f}" if d.first != d.second else ""
    return BOLD.format(shown) if d.better is not None else shown


def draw_scatter(evaluation: Evaluation, method: str, shown: Any) -> str:
    """Score against summed relevance, sample by sample."""
    values = evaluation.samples.values[method]
    series = Series(method, values["score"][shown].tolist(), values["inputs"][shown].tolist())
    return scatter(series, "score", "sum of relevance", f"{method}: score against summed relevance")


def conservation_rows(evaluation: Evaluation) -> list[Row]:
    kept = [one.conservation for one in evaluation]
    cells = zip(evaluation.methods, estimate_cells(conservation_estimates(evaluation)), kept, strict=True)
    return [
        (method, [cell, f"{c.error:.2%}" if c.error < 10 else f"{c.error:.3g} x", f"{c.largest_unaccounted:.1e}"])
        for method, cell, c in cells
    ]


def draw_points(samples: int, seed: int) -> Any:
    return np.sort(np.random.default_rng(seed).permutation(samples)[:POINTS])


def flatten_facts(found: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows.update(flatten_facts(value, f"{prefix}{name} "))
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            rows[prefix + name.replace("_", " ")] = shown
    return rows
