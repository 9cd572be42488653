"""`ah=query`: the query takes part in attention.

A product of weights and values goes in part to the values and in part to the weights. The part of the weights goes to
the query alone; keys are constants, as gates are. The softmax is replaced by its tangent at the scores s: p = J s + c.
The constant c comes from no score. It is a line of the ledger, as f(0) is for an activation, so the ledger closes. The
cost is that of the gradient of fused attention with respect to queries and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.capped import exact
from ..lineage import Kind, mark
from ..operands import Place, share_product
from ..saved import Lent
from ..scope import Call, Scope, is_signal, times
from ..sources import Sort
from .call import AttentionCall
from .half import Share
from .registry import Softmax
from .sinks import is_whole, sinks_entered
from .variant import Variant, register_variant

OFFSET = "attention offset"
ASKED = 0.6  # of a product of weights and values belongs to the weights: docs/generation.md says how it was chosen


@register_variant
class Query(Variant):
    """`ASKED` of a product of weights and values goes to the query, the rest to the values. Keys are held constant."""

    name = "query"
    softmax = Softmax.LINEAR
    holds_keys = True

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return asked_softmax(scope, scores, value, axis)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        mixed: Tensor = share_product(call, weights, values, ASKED)
        return mixed

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        return asked_attention(scope, call)

    def attend_capped(self, scope: Scope, call: AttentionCall) -> Any:
        return asked_capped(scope, call) if is_whole(scope, call) else None


def asked_attention(scope: Scope, call: AttentionCall) -> Any:
    """A fused attention. Where only the keys depend on the input, they stand in for the query."""
    query, key, value = call.query, call.key, call.value
    asker = query if is_signal(query) else key
    if not is_signal(asker):
        return call.run()
    share = ASKED if is_signal(value) else 1.0
    own = Share.apply(asker, share)
    pair = (own, key.detach()) if asker is query else (query, own)
    values = Share.apply(value, 1 - ASKED) if is_signal(value) else value
    result = call.run(*pair, values)
    name = offset_name(scope)
    scope.books.enter(
        result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: share * times(g, y), held=(result,)
    )
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -share * times(g, q), held=(asker,))
    return result


def asked_capped(scope: Scope, call: AttentionCall) -> Tensor:
    """The query takes part, and keys are held. What comes neither from it nor from the sinks is the offset."""
    query, sinks = call.query, call.sinks
    own, name = Share.apply(query, ASKED), offset_name(scope)
    told = [sinks_entered(scope, query, sinks, ASKED), sinks_entered(scope, query, sinks, -ASKED, name)]
    parts = (own, call.key.detach(), Share.apply(call.value, 1 - ASKED))
    entered = None if sinks is None else every(told)
    result = exact(*parts, call.mask, sinks, {**call.options, "ratio": True}, entered)
    scope.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: ASKED * g * y, held=(result,))
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -ASKED * g * q, held=(query,))
    return result


def every(told: list[Any]) -> Any:
    """One that tells all of them."""

    def tell(gradient: Tensor) -> None:
        for one in told:
            one(gradient)

    return tell


def asked_softmax(scope: Scope, scores: Tensor, value: Tensor, axis: int) -> Tensor:
    """A softmax that is written out, with its own gradient; what that leaves is the offset."""
    tangent = Tangent(value, axis)
    scope.pending.lend(tangent)
    weights: Tensor = _Tangent.apply(scores, [value], tangent)
    held = value.nan_to_num(0.0)
    seen = torch.where(held > 0, scores.detach().to(held.dtype), torch.zeros_like(held))
    rest = held - held * (seen - (held * seen).sum(axis, keepdim=True))
    scope.books.enter(weights, offset_name(scope), sort=Sort.CONSTANT, varies=(), amount=times, held=(rest,))
    mark(weights, Kind.WEIGHTS)
    return weights


class Tangent:
    """The gradient of a softmax, by its weights, which wait: the model may write over them."""

    __slots__ = ("__weakref__", "_weights", "axis")

    def __init__(self, weights: Tensor, axis: int) -> None:
        self._weights, self.axis = Lent(weights), axis

    def spare(self, written: Tensor) -> None:
        self._weights.spare(written)

    def back(self, gradient: Tensor) -> Tensor:
        """J g. A query that may look at nothing has no weights (NaN, which models fill later): its gradient is zero."""
        weights = self._weights.tensor().nan_to_num(0.0)
        part = gradient * weights
        return part.sub_(weights.mul_(part.sum(self.axis, keepdim=True)))


class _Tangent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: list[Tensor], tangent: Tangent) -> Tensor:
        ctx.tangent, ctx.dtype = tangent, scores.dtype
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.tangent.back(gradients[0]).to(ctx.dtype), None, None


def offset_name(scope: Scope) -> str:
    module = scope.where()
    return f"{module}: {OFFSET}" if module else OFFSET
