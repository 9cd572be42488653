"""Audits as one HTML page: layer by layer what each method keeps and loses, then what every part of the model did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headwater.results.audit import Audit
from headwater.results.ledger import Ledger

from . import html
from .audits import make_tables
from .flow_chart import flow_chart
from .layers import Layer, audit_layers
from .reading import decimals, headline, with_sign
from .sums import round_to_sum
from .tables import Table

HEADS = ("layer", "arrives", "taken by biases and constants", "lost", "leaves")


def page(audits: Audit | Sequence[Audit], *, title: str = "Headwater") -> str:
    """The whole page, one article a method."""
    many = [audits] if isinstance(audits, Audit) else list(audits)
    body = "\n".join(_audit_article(audit, number) for number, audit in enumerate(many, 1))
    return html.document(body, title=title, style=STYLE)


def _audit_article(audit: Audit, number: int) -> str:
    e = audit.explanation
    found = make_tables(audit, full=True)
    return (
        f'<article aria-labelledby="a{number}">\n<h2 id="a{number}">{escape(e.method)}</h2>\n'
        f"{html.facts_list(fact for fact in headline(e) if fact[0] != 'method')}\n{chart(audit)}\n"
        f"{layer_table(audit)}\n"
        f"{html.ledger_section(e.ledger)}\n{''.join(map(_fold, found))}\n{html.describe_making(e)}</article>"
    )


def chart(audit: Audit) -> str:
    """At every layer what is still there, what was taken and what was lost: together the score."""
    return f'<figure class="chart">{flow_chart(audit)}</figure>'


def layer_table(audit: Audit) -> str:
    """Relevance on its way from the score to the inputs."""
    exact = audit_layers(audit)
    places = decimals([audit.explanation.score, *(amount for one in exact for amount in layer_amounts(one))], digits=4)
    found, inputs = round_layers(exact, audit.explanation.ledger, places)
    rows = [(one.name, *(with_sign(amount, places).strip() for amount in layer_amounts(one))) for one in found]
    foot = ("inputs", "", "", "", with_sign(inputs, places).strip())
    return f"<h3>From the score to the inputs</h3>{table_of(HEADS, [*rows, foot])}"


def round_layers(exact: Sequence[Layer], ledger: Ledger, places: int) -> tuple[list[Layer], float]:
    """The layers as they are shown, and the inputs: what leaves one arrives at the next, and everything adds up."""
    readout = ledger.readout
    taken = ledger.score - ledger.inputs - ledger.unaccounted
    inputs, sources, lost = round_to_sum((ledger.inputs, taken, ledger.unaccounted), ledger.score, places)
    own, *each = round_to_sum([readout, *(one.sources for one in exact)], sources, places)
    missing = round_to_sum([one.lost for one in exact], lost, places)
    arrives, found = round(ledger.score, places) - own, list[Layer]()
    for one, source, gone in zip(exact, each, missing, strict=True):
        found.append(Layer(one.name, arrives, source, one.leaks, gone))
        arrives = found[-1].leaves
    return found, inputs


def layer_amounts(one: Layer) -> tuple[float, float, float, float]:
    return one.arrives, one.sources, one.lost, one.leaves


def _fold(table: Table) -> str:
    if not table.rows:
        return f'<p class="scale">{escape(table.title)}: {escape(table.note)}</p>'
    return f"<details><summary>{escape(table.title)}</summary>{table_of(table.columns, table.rows)}</details>"


def table_of(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell.strip())}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


STYLE = """
main { max-width: 64rem; } .chart { margin: .75rem 0; max-width: 40rem; } .wide { overflow-x: auto; }
.wide td, .wide thead th + th { text-align: right; padding: .1rem 0 .1rem 1.5rem; vertical-align: bottom; }
.wide tbody tr:last-child { border-top: 1px solid var(--line); }
"""
