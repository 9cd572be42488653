"""Attention sinks in the ledger, and when attention with a cap or sinks can stay one operation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..scope import Scope
from ..sources import Sort
from .call import AttentionCall

WITHIN = ("ah", "act", "gate")  # rules that act on something inside attention


def can_stay_whole(scope: Scope, call: AttentionCall) -> bool:
    """Whether attention in which queries take part can be one operation, with the gradients of `kernels.rows`.

    These treat the cap as an activation and share products, so the rules for both must be active.
    """
    return all(rule in scope.rules for rule in WITHIN) and scope.rules.gate == "half" and call.is_alive


def enter_sinks(scope: Scope, query: Tensor, sinks: Tensor | None, share: float = 1.0, line: str | None = None) -> Any:
    """The function that books the gradient of the sinks, per sample: sinks are a bias of the scores."""
    if sinks is None:
        return None
    name, sort = scope.label(sinks, "sinks") if line is None else (line, Sort.CONSTANT)
    return scope.books.record_vector(query[:, :, 0, 0], name, share * sinks, sort=sort)
