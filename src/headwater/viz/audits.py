"""An audit as tables of text: what leaked, what the two propositions predict, what every module passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from headwater.results.audit import Audit, HeadFlow, Leak, ModuleFlow, NormFlow

from .layers import layer_sums
from .reading import decimals, with_sign
from .sums import round_to_sum
from .tables import Table, number_rows

SHOWN = 8
VISIBLE = 1e-4
AMOUNTS = ("out", "into", "sources", "lost")
Flow = TypeVar("Flow")


def make_tables(audit: Audit, full: bool = False) -> list[Table]:
    """The audit's tables that have something to say; without `full`, the largest rows of each."""
    found = (
        along_the_way(audit),
        list_leaks(audit.leaks, full),
        list_norms(audit.norms),
        heads(audit.heads, full),
        list_modules(audit.modules, full),
    )
    return [table for table in found if table.rows or table.note]


def along_the_way(audit: Audit) -> Table:
    """At every layer what is still there, what was taken and what was lost so far; each row adds up to the score."""
    found, score = layer_sums(audit), audit.explanation.ledger.score
    amounts = [(one.relevance, one.taken, one.lost, score) for one in found]
    places = decimals([a for row in amounts for a in row])
    rows = [
        (one.name, *(with_sign(a, places) for a in (*round_to_sum(row[:3], score, places), score)))
        for one, row in zip(found, amounts, strict=True)
    ]
    columns = ("layer", "relevance", "biases took", "lost", "= score")
    return Table("from the score back to the inputs", columns, rows, left=1, names=0)


def list_leaks(flows: Sequence[Leak], full: bool) -> Table:
    kept, note = _largest(flows, lambda leak: leak.amount, full)
    rows = number_rows([(leak.operation, leak.module) for leak in kept], [(leak.amount,) for leak in kept])
    title = "operations that did not pass on what they received (+ lost, - invented)"
    return Table(title, ("operation", "module", "amount"), rows, note, names=1)


def list_norms(flows: Sequence[NormFlow]) -> Table:
    """All of them: a model has few, and the paper's second proposition speaks of each."""
    shares = [tuple(f"{share:.4g}" for share in (f.measured, f.predicted, f.collapse)) for f in flows]
    amounts = number_rows([(f.name,) for f in flows], [(f.out, f.into) for f in flows])
    rows = [(*row, *share) for row, share in zip(amounts, shares, strict=True)]
    columns = ("normalisation", "out", "into", "measured", "predicted", "gradient's")
    return Table("share of relevance that each normalisation passes on (into / out)", columns, rows, left=1, names=0)


def heads(flows: Sequence[HeadFlow], full: bool) -> Table:
    kept, note = _largest(flows, lambda flow: flow.measured, full)
    amounts = [(f.out, f.into, f.sources, f.measured, f.predicted) for f in kept]
    columns = ("attention", "head", "out", "into", "sources", "measured", "predicted")
    title = "relevance that each attention head invents (into + sources - out)"
    return Table(title, columns, number_rows([(f.module, str(f.head)) for f in kept], amounts), note, names=0)


def list_modules(flows: Sequence[ModuleFlow], full: bool) -> Table:
    """Those that lost something; with `full`, all."""
    title, columns = "relevance through each module (lost = out - into - sources)", ("module", "kind", *AMOUNTS)
    leaky = flows if full else [flow for flow in flows if abs(flow.lost) > VISIBLE * abs(flow.out)]
    if flows and not leaky:
        return Table(title, columns, [], f"all {len(flows)} modules passed on what they received; --full shows them")
    kept, note = _largest(leaky, lambda flow: flow.lost, full)
    rows = number_rows([(f.name or "(all)", f.kind) for f in kept], [(f.out, f.into, f.sources, f.lost) for f in kept])
    return Table(title, columns, rows, note, names=0)


def _largest(flows: Sequence[Flow], size: Callable[[Flow], float], full: bool) -> tuple[list[Flow], str]:
    """The flows of the largest size in their own order, and a note on how many were left out."""
    if full or len(flows) <= SHOWN:
        return list(flows), ""
    chosen = set(sorted(range(len(flows)), key=lambda i: -abs(size(flows[i])))[:SHOWN])
    kept = [flow for i, flow in enumerate(flows) if i in chosen]
    return kept, f"the {SHOWN} largest of {len(flows)}; --full shows all"
