"""The query takes part in attention: `ah=query`.

A product of weights and values goes in part to the values and in part to the weights; of these the query is the cause,
and keys are the addresses that it looks up, constants as gates are. The softmax is its tangent at the scores s, p = J s
+ c. What does not come from the scores, c, is a constant: a line of the ledger, as f(0) is for an activation. So all of
it adds up, and no more is made than the gradient of a fused attention at its queries and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..lineage import Kind, mark
from ..saved import Lent
from ..scope import Call, Scope, is_signal, times
from ..sources import Sort

OFFSET = "attention offset"
ASKED = 0.6  # of a product of weights and values belongs to the weights: docs/generation.md says how it was chosen


def asked_attention(scope: Scope, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Any:
    """A fused attention. Where only the keys depend on the input, they stand in for the query."""
    rest = {name: given for name, given in call.kwargs.items() if name not in ("query", "key", "value")}
    asker = query if is_signal(query) else key
    if not is_signal(asker):
        return call.func(query, key, value, *call.args[3:], **rest)
    share = ASKED if is_signal(value) else 1.0
    own = Share.apply(asker, share)
    pair = (own, key.detach()) if asker is query else (query, own)
    values = Share.apply(value, 1 - ASKED) if is_signal(value) else value
    result = call.func(*pair, values, *call.args[3:], **rest)
    name = offset_name(scope)
    scope.books.enter(
        result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: share * times(g, y), held=(result,)
    )
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -share * times(g, q), held=(asker,))
    return result


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


class Share(torch.autograd.Function):
    """The same tensor, through which only a part of the gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: float) -> Tensor:
        ctx.part = part
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.part, None
