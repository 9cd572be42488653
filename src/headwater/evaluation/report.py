"""An evaluation as one HTML page that needs nothing else: curves, tables with intervals, and how to repeat it.

No script, no font, no image from elsewhere; what comes from a model, a file or a method's name is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..viz.html import POLICY
from . import charts
from .charts import Series, legend, scatter
from .curve_charts import curve_chart
from .curves import Difference, Estimate
from .measures import RANDOMISATION, Measure
from .results import Evaluation
from .summary import best_of, p

POINTS = 400


def page(evaluation: Evaluation, title: str = "How faithful are these explanations?") -> str:
    """The whole page."""
    parts = (scores, curves, differences, conservation, repeat)
    body = "\n".join(part(evaluation) for part in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{charts.STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{facts(evaluation)}\n{body}\n</main>\n</body>\n</html>\n"
    )


def facts(evaluation: Evaluation) -> str:
    about = evaluation.provenance
    told = [
        ("model", about["model"]),
        ("data", f"{about['data']} ({len(evaluation)} samples)"),
        ("accuracy", "without labels" if evaluation.accuracy is None else f"{evaluation.accuracy:.1%}"),
        ("protocol", f"{evaluation.protocol.name}, version {evaluation.protocol.version}"),
    ]
    return "<dl>" + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in told) + "</dl>"


def scores(evaluation: Evaluation) -> str:
    """Every method in every measure; in each column the best is bold, and a sign marks what cannot be told from it."""
    names = evaluation.measures
    heads = [*map(column_head, evaluation.chosen), *extra_heads(evaluation)]
    columns = [estimate_cells([one.estimates[name] for one in evaluation], marks(evaluation, name)) for name in names]
    rows = list(zip(*columns, *extra_columns(evaluation), strict=True))
    note = (
        "Means over samples with 95 % bootstrap intervals. Bold is the best; ≈ cannot be told from it (the interval of "
        "the paired difference holds 0; it allows for the best having been picked afterwards). ↑ higher is better, "
        "↓ lower is better."
    )
    return section("Scores", table("method", heads, evaluation.methods, rows), note)


def column_head(measure: Measure) -> str:
    return f"{escape(measure.title)} {'↑' if measure.better == 'higher' else '↓'}"


def marks(evaluation: Evaluation, measure: str) -> list[str]:
    """ "b" for the best, "≈" for what cannot be told from it."""
    best = best_of(evaluation, measure)
    level = [m for m, apart in evaluation.to_the_best(measure).items() if apart.better is None]
    return ["b" if m == best else "≈" if m in level else "" for m in evaluation.methods]


def estimate_cells(estimates: Sequence[Estimate], marked: Sequence[str] | None = None) -> list[str]:
    """A column: each value with its interval below, all with the same places."""
    places = places_for(estimates)
    found = []
    for e, mark in zip(estimates, marked or [""] * len(estimates), strict=True):
        value = f"<b>{number(e.value, places)}</b>" if mark == "b" else f"{mark} {number(e.value, places)}".strip()
        found.append(f'{value}<span class="i">{number(e.low, places)} to {number(e.high, places)}</span>')
    return found


def number(value: float, places: int) -> str:
    """Without the sign of a zero."""
    shown = f"{value:.{places}f}"
    return shown.lstrip("-") if math.isfinite(value) and float(shown) == 0 else shown


def places_for(estimates: Sequence[Estimate]) -> int:
    """As many as an interval of middling width deserves."""
    widths = sorted(e.high - e.low for e in estimates if e.high > e.low)
    return min(6, max(2, 1 - math.floor(math.log10(widths[len(widths) // 2])))) if widths else 3


def extra_heads(evaluation: Evaluation) -> list[str]:
    first = next(iter(evaluation))
    found = ["score vs. sum ↑"]
    found += [f"{RANDOMISATION} → 0"] if first.randomisation is not None else []
    return found + (["time / forward ↓"] if first.runtime is not None else [])


def extra_columns(evaluation: Evaluation) -> list[list[str]]:
    found = [estimate_cells(correlations(evaluation))]
    checked = [one.randomisation for one in evaluation if one.randomisation is not None]
    found += [estimate_cells(checked)] if checked else []
    timed = [f"{one.runtime.ratio:.2f}" for one in evaluation if one.runtime is not None]
    return found + ([timed] if timed else [])


def correlations(evaluation: Evaluation) -> list[Estimate]:
    kept = [one.conservation for one in evaluation]
    return [Estimate(c.correlation, c.low, c.high) for c in kept]


def curves(evaluation: Evaluation) -> str:
    drawn = []
    for measure in evaluation.curves:
        said = f"{measure.name.capitalize()}: a {measure.better} curve is better"
        chart = curve_chart(evaluation, measure)
        drawn.append(f"<figure><figcaption>{escape(said)}</figcaption>{chart}</figure>")
    details = "".join(curve_table(evaluation, measure.name) for measure in evaluation.curves)
    return section("Curves", f'{legend(evaluation.methods)}<div class="pair">{"".join(drawn)}</div>{details}')


def curve_table(evaluation: Evaluation, name: str) -> str:
    fractions = next(iter(evaluation)).curves[name].fractions
    rows = [[f"{value:.4g}" for value in one.curves[name].mean] for one in evaluation]
    shown = table("method", [f"{f:g}" for f in fractions], evaluation.methods, rows)
    return f"<details><summary>{escape(name)} in numbers</summary>{shown}</details>"


def differences(evaluation: Evaluation) -> str:
    """Each method against the best; all pairs folded below."""
    if len(evaluation.methods) < 2:
        return ""
    parts = []
    for measure in evaluation.chosen:
        best = best_of(evaluation, measure.score)
        found = [apart for method, apart in evaluation.to_the_best(measure.score).items() if method != best]
        title = f"{escape(measure.title)}: against {escape(best)}"
        parts.append(f"<div><h3>{title}</h3>{against(found)}</div>")
    every = "".join(
        f"<h3>{escape(measure.title)}</h3>{matrix(evaluation, measure.score)}" for measure in evaluation.chosen
    )
    note = (
        "Difference: the method minus the best, on the same samples. Sure: the share of bootstrap resamples in which "
        "the method is worse. Intervals and p allow for the best having been picked afterwards: they hold for all "
        "pairs at once. Those of every pair, below, do not."
    )
    folded = f"<details><summary>every pair: row minus column, bold where the interval leaves out 0</summary>{every}"
    return section("Is the best really better?", f'<div class="pair">{"".join(parts)}</div>{folded}</details>', note)


def against(found: Sequence[Difference]) -> str:
    heads = ["difference", "sure", "p"]
    apart = estimate_cells(
        [Estimate(d.value, d.low, d.high) for d in found], ["b" if d.better is not None else "" for d in found]
    )
    rows = [[cell, f"{1 - d.share:.1%}", escape(p(d.p))] for cell, d in zip(apart, found, strict=True)]
    return table("method", heads, [d.first for d in found], rows)


def matrix(evaluation: Evaluation, measure: str) -> str:
    found = [[evaluation.compare(a, b, measure) for b in evaluation.methods] for a in evaluation.methods]
    places = places_for([Estimate(d.value, d.low, d.high) for row in found for d in row])
    rows = [[pair_cell(d, places) for d in row] for row in found]
    return table("", [escape(m) for m in evaluation.methods], evaluation.methods, rows)


def pair_cell(d: Difference, places: int) -> str:
    shown = f"{d.value:+.{places}f}" if d.first != d.second else ""
    return f"<b>{shown}</b>" if d.better is not None else shown


def conservation(evaluation: Evaluation) -> str:
    """Score against summed relevance, sample by sample."""
    shown = drawn_points(len(evaluation), int(evaluation.provenance["seed"]))
    figures = []
    for one in evaluation:
        values = evaluation.samples.values[one.method]
        series = Series(one.method, values["score"][shown].tolist(), values["inputs"][shown].tolist())
        chart = scatter(series, "score", "sum of relevance", f"{one.method}: score against summed relevance")
        figures.append(f"<figure><figcaption>{escape(one.method)}</figcaption>{chart}</figure>")
    heads = ["correlation", "mean error", "largest unaccounted"]
    kept = [one.conservation for one in evaluation]
    rows = [
        [cell, f"{c.error:.2%}" if c.error < 10 else f"{c.error:.3g} x", f"{c.largest_unaccounted:.1e}"]
        for cell, c in zip(estimate_cells(correlations(evaluation)), kept, strict=True)
    ]
    note = (
        "Does relevance add up to the score? On the dashed line both are equal; what biases and constants bring keeps "
        "a point off it. Mean error: mean |score - sum| over mean |score|. Unaccounted: of a sample's whole ledger, "
        "relative to its absolute lines."
    )
    if len(shown) < len(evaluation):
        note += f" {len(shown)} of {len(evaluation)} samples are drawn."
    tabled = table("method", heads, evaluation.methods, rows)
    return section("Conservation", f'<div class="many">{"".join(figures)}</div>{tabled}', note)


def drawn_points(samples: int, seed: int) -> Any:
    return np.sort(np.random.default_rng(seed).permutation(samples)[:POINTS])


def repeat(evaluation: Evaluation) -> str:
    """What is needed to make these numbers again."""
    about, rule = flat(evaluation.provenance), flat(evaluation.protocol.to_dict())
    both = f"{definitions('Protocol', rule)}{definitions('Made', about)}"
    return section("How to repeat it", f'<div class="pair">{both}</div>')


def flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows.update(flat(value, f"{prefix}{name} "))
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            rows[prefix + name.replace("_", " ")] = shown
    return rows


def definitions(title: str, found: Mapping[str, str]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td class="w">{escape(v)}</td></tr>' for k, v in found.items())
    return f"<div><h3>{title}</h3><table>{rows}</table></div>"


def section(title: str, body: str, note: str = "") -> str:
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{body}{said}</section>"


def table(corner: str, heads: Sequence[str], names: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """`heads` and cells are HTML already; names are not."""
    top = "".join(f'<th scope="col">{head}</th>' for head in (escape(corner), *heads))
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in row)}</tr>'
        for name, row in zip(names, rows, strict=True)
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


STYLE = """
:root { --ink: #111; --soft: #595959; --line: #d4d4d8; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #f5f5f5; --soft: #a1a1aa; --line: #3f3f46; --ground: #18181b; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
section { border-top: 1px solid var(--line); margin-top: 1.75rem; padding-top: 1.25rem; }
dl { display: flex; flex-wrap: wrap; gap: 0 1.5rem; margin: 0; color: var(--soft); }
dl div { display: flex; gap: .4rem; } dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem 1.5rem; }
.many { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .9rem; margin-bottom: .25rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; font-size: .9rem; }
th { text-align: left; font-weight: normal; padding: .2rem 1.5rem .2rem 0; white-space: nowrap; }
td { text-align: right; padding: .25rem 0 .25rem 1rem; white-space: nowrap; vertical-align: top; }
thead th { color: var(--soft); font-size: .85rem; border-bottom: 1px solid var(--line); }
tbody th { vertical-align: top; padding-top: .25rem; }
thead th + th { text-align: right; padding: .2rem 0 .2rem 1rem; white-space: normal; }
thead th { vertical-align: bottom; }
td.w { text-align: left; white-space: normal; overflow-wrap: anywhere; padding-left: 0; }
.i { display: block; color: var(--soft); font-size: .8em; line-height: 1.1; }
.note { color: var(--soft); font-size: .9rem; max-width: 46rem; }
summary { cursor: pointer; color: var(--soft); padding: .25rem 0; }
@media print { details > *, details::details-content { display: block; } }
"""
