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
from ..call import Call, is_signal
from ..gradients import times
from ..lineage import Kind, mark
from ..operands import Place, share_product
from ..saved import BorrowedTensor
from ..scope import Scope
from ..sources import Sort
from .call import AttentionCall
from .half import Share
from .registry import Softmax
from .sinks import can_stay_whole, enter_sinks
from .variant import Variant, register_variant

OFFSET = "attention offset"
QUERY_SHARE = (
    0.6  # of a product of weights and values belongs to the weights: docs/generation.md says how it was chosen
)


@register_variant
class QueryVariant(Variant):
    """The queries take a part of weights times values (`QUERY_SHARE`), the values the rest; keys are constants."""

    name = "query"
    softmax = Softmax.LINEAR
    holds_keys = True

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return weigh_by_tangent(scope, scores, value, axis)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        mixed: Tensor = share_product(call, weights, values, QUERY_SHARE)
        return mixed

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        return attend_by_query(scope, call)

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        return attend_with_cap_by_query(scope, call) if can_stay_whole(scope, call) else None


def attend_by_query(scope: Scope, call: AttentionCall) -> Any:
    """Fused attention. If only the keys depend on the input, they take the query's part."""
    query, key, value = call.query, call.key, call.value
    asker = query if is_signal(query) else key
    if not is_signal(asker):
        return call.run()
    share = QUERY_SHARE if is_signal(value) else 1.0
    own = Share.apply(asker, share)
    pair = (own, key.detach()) if asker is query else (query, own)
    values = Share.apply(value, 1 - QUERY_SHARE) if is_signal(value) else value
    result = call.run(*pair, values)
    name = offset_name(scope)
    scope.books.enter(
        result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: share * times(g, y), held=(result,)
    )
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -share * times(g, q), held=(asker,))
    return result


def attend_with_cap_by_query(scope: Scope, call: AttentionCall) -> Tensor:
    """The query takes part, keys are constants. The rest, neither from the query nor from the sinks, is the offset."""
    query, sinks = call.query, call.sinks
    own, name = Share.apply(query, QUERY_SHARE), offset_name(scope)
    told = [enter_sinks(scope, query, sinks, QUERY_SHARE), enter_sinks(scope, query, sinks, -QUERY_SHARE, name)]
    parts = (own, call.key.detach(), Share.apply(call.value, 1 - QUERY_SHARE))
    entered = None if sinks is None else tell_all(told)
    result = exact(parts, call.mask, sinks, {**call.options, "ratio": True}, entered)
    scope.books.enter(
        result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: QUERY_SHARE * g * y, held=(result,)
    )
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -QUERY_SHARE * g * q, held=(query,))
    return result


def tell_all(told: list[Any]) -> Any:
    """One function that calls all of `told`."""

    def tell(gradient: Tensor) -> None:
        for one in told:
            one(gradient)

    return tell


def weigh_by_tangent(scope: Scope, scores: Tensor, value: Tensor, axis: int) -> Tensor:
    """A softmax with its own gradient. What the gradient does not explain, the offset, is a line of the ledger."""
    tangent = Tangent(value, axis)
    scope.pending.register_borrower(tangent)
    weights: Tensor = _Tangent.apply(scores, [value], tangent)
    held = value.nan_to_num(0.0)
    seen = torch.where(held > 0, scores.detach().to(held.dtype), torch.zeros_like(held))
    rest = held - held * (seen - (held * seen).sum(axis, keepdim=True))
    scope.books.enter(weights, offset_name(scope), sort=Sort.CONSTANT, varies=(), amount=times, held=(rest,))
    mark(weights, Kind.WEIGHTS)
    return weights


class Tangent:
    """The gradient of a softmax, computed from its weights, which are saved: the model may write over them."""

    __slots__ = ("__weakref__", "_weights", "axis")

    def __init__(self, weights: Tensor, axis: int) -> None:
        self._weights, self.axis = BorrowedTensor(weights), axis

    def copy_before_write(self, written: Tensor) -> None:
        self._weights.copy_before_write(written)

    def back(self, gradient: Tensor) -> Tensor:
        """J g. A query that may look at nothing has no weights (NaN, which models fill later): its gradient is zero."""
        weights = self._weights.tensor().nan_to_num(0.0)
        part = gradient * weights
        return part.sub_(weights * part.sum(self.axis, keepdim=True))


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
