"""Audits of a text: where relevance is lost on its way from the score to the inputs."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.audit import Audit
from ..viz.flow_chart import flow_chart
from ..viz.layers import Layer, audit_layers
from .models import Loaded
from .text_schemas import AuditAnswer, AuditAsked, AuditRow, LayerShown, LeakShown

SHOWN = 6  # leaks of a layer


def audit_text(loaded: Loaded, ask: AuditAsked) -> tuple[Audit, ...]:
    """One audit a method. A long text is cut: relevance is followed through one run of the model."""
    return tuple(
        loaded.session.audit(
            ask.text,
            tokenizer=loaded.reader,
            method=method,
            target=ask.target,
            output=ask.output,
            truncate=True,
        )
        for method in ask.methods or ["gi", loaded.watched_method]
    )


def audit_answer(found: Sequence[Audit]) -> AuditAnswer:
    first = found[0].explanation
    return AuditAnswer(target=first.target, output=first.output, rows=[audit_row(one) for one in found])


def audit_row(found: Audit) -> AuditRow:
    ledger = found.explanation.ledger
    return AuditRow(
        method=found.explanation.method,
        score=ledger.score,
        inputs=ledger.inputs,
        sources=sum(lines.total for lines in ledger.groups.values()) + ledger.readout,
        lost=ledger.unaccounted,
        closed=ledger.closed,
        layers=[layer_answer(one) for one in audit_layers(found)],
        svg=flow_chart(found),
    )


def layer_answer(one: Layer) -> LayerShown:
    return LayerShown(
        name=one.name,
        arrives=one.arrives,
        sources=one.sources,
        lost=one.lost,
        leaves=one.leaves,
        leaks=[
            LeakShown(operation=leak.operation, module=leak.module, amount=leak.amount) for leak in one.leaks[:SHOWN]
        ],
    )
