"""One plain forward and backward pass for all methods that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial

from ..inputs.restoring import undone
from ..rules import RuleSet, Scope
from ..rules.maps import AttentionMap, MapScope
from .forward import Demand, Read, Run
from .outcome import Outcome
from .propagate import propagate

Pass = tuple[Outcome, list[AttentionMap]]

_KEPT: ContextVar[list[Pass] | None] = ContextVar("kept", default=None)


@contextmanager
def share_plain_pass() -> Iterator[None]:
    """Inside, the plain pass over one input is made once."""
    with undone(partial(_KEPT.set, _KEPT.get())):
        _KEPT.set([])
        yield


def sharing() -> bool:
    return _KEPT.get() is not None


def plain_pass(job: Run, *, backward: bool) -> Pass:
    """The model without rules: its score, Gradient x Input with its books, and every attention map."""
    kept = _KEPT.get()
    if kept:
        return kept[0]
    seen: list[MapScope] = []

    def inspect(scope: Scope, _: Read) -> None:
        assert isinstance(scope, MapScope)
        seen.append(scope)

    demand = Demand(RuleSet(frozenset()), backward=backward or kept is not None)
    outcome = propagate(replace(job, scope=MapScope, inspect=inspect), demand)
    found = (outcome, seen[0].maps)
    if kept is not None:
        kept.append(found)
    return found
