"""`ah=shares(q=…,k=…,v=…)`: queries, keys and values take their shares of attention, which add up to 1.

A product of weights and values goes to the values by their share and to the weights by the rest. The softmax is
replaced by its tangent at the scores s: p = J s + c. What the scores get, queries and keys share as q : k. The constant
c comes from no score. It is a line of the ledger, as f(0) is for an activation, so the ledger closes; or, as c v is
linear in the values, it is theirs (`offset=values`). The cost is that of the gradient of fused attention.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import UsageError
from ...kernels.capped import exact
from ..call import Call, is_signal
from ..gradients import times, value_of
from ..lineage import Kind, mark
from ..operands import Place, share_product
from ..saved import BorrowedTensor, find_maker
from ..scope import Scope
from ..shares import AttentionShares, parse_attention
from ..sources import PartOfProduct, Sort
from .call import AttentionCall
from .facts import Even
from .half import Share
from .registry import FAMILIES, Softmax
from .remade import attend_by_gradient, attend_by_rule
from .secant import mix_from_even
from .sinks import can_stay_whole, enter_sinks
from .token import token_gamma
from .variant import Variant

OFFSET = "attention offset"
EXAMPLE = "shares(q=0.35,k=0.15,v=0.5)"


class SharesVariant(Variant):
    """Queries, keys and values take shares of attention; the softmax is its tangent."""

    softmax = Softmax.LINEAR

    def __init__(self, shares: AttentionShares) -> None:
        self.weights_part: float = 1 - shares.value
        self.query_part: float = shares.query / (shares.query + shares.key) if shares.query + shares.key else 0.5
        self.books_offset: bool = shares.offset == "constant"

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return weigh_by_tangent(scope, scores, value, axis, follows=not self.books_offset)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        if not self.books_offset:
            return mix_from_even(call, weights, values, self.weights_part)
        mixed: Tensor = share_product(call, weights, values, self.weights_part)
        return mixed

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        """Fused attention, unless values take the offset of scores that have a bias: its part stays a bias's."""
        plain = call.mask is None or call.mask.dtype is torch.bool
        whole = self.books_offset or (plain and not call.options.get("dropout_p"))
        return self.attend_whole(scope, call) if whole else super().attend(scope, call)

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        whole = self.books_offset and can_stay_whole(scope, call)
        return self.attend_whole_with_cap(scope, call) if whole else None

    def parts(self, call: AttentionCall) -> Parts:
        """What each takes here. What depends on no input leaves its share to the others.

        Queries and keys leave theirs to each other, and both together to the values; the values leave theirs to both.
        """
        query, key, value, mask = (is_signal(part) for part in (call.query, call.key, call.value, call.mask))
        weights = 0.0 if not (query or key or mask) else self.weights_part if value else 1.0
        of_query = self.query_part if query and key else float(query)
        return Parts(weights * of_query, weights * (1 - of_query) if key else 0.0, 1 - weights, weights)

    def attend_whole(self, scope: Scope, call: AttentionCall) -> Any:
        """Fused attention with its own gradient, of which each takes its part. What nobody took is the offset."""
        parts, gamma = self.parts(call), token_gamma(scope)
        shared = parts.of(call)
        if not self.books_offset and is_signal(call.value):
            return attend_by_rule(scope, replace(shared, value=call.value), gamma, parts.weights)
        ruled = gamma and is_signal(shared.value)
        result = attend_by_rule(scope, shared, gamma) if ruled else attend_by_gradient(scope, shared)
        enter_offset(scope, result, call, shared, parts)
        return result

    def attend_whole_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        """The same with a cap or sinks. Sinks are a bias of the scores: what they take is no offset."""
        parts = self.parts(call)
        shared, sinks = replace(parts.of(call), mask=call.mask), call.sinks
        told = [
            enter_sinks(scope, call.query, sinks, parts.weights),
            enter_sinks(scope, call.query, sinks, -parts.weights, offset_name(scope)),
        ]
        entered = None if sinks is None else tell_all(told)
        options = {**call.options, "ratio": True, "token": token_gamma(scope)}
        result = exact((shared.query, shared.key, shared.value), call.mask, sinks, options, entered)
        enter_offset(scope, result, call, shared, parts)
        return result


class Parts(NamedTuple):
    """What queries, keys and values take of one attention, and what the weights take as a whole."""

    query: float
    key: float
    value: float
    weights: float

    def of(self, call: AttentionCall) -> AttentionCall:
        """The same attention, through which each gets its part of the gradient; a mask that is a signal, too."""
        query, key, value = (
            take_part(one, part) for one, part in zip((call.query, call.key, call.value), self[:3], strict=True)
        )
        mask = call.mask if call.mask is None else take_part(call.mask, self.weights)
        return replace(call, query=query, key=key, value=value, mask=mask)


def take_part(tensor: Tensor, part: float) -> Tensor:
    """The same tensor, through which `part` of the gradient goes back."""
    if not is_signal(tensor):
        return tensor
    taken: Tensor = Share.apply(tensor, part) if part else tensor.detach()
    return taken


def enter_offset(scope: Scope, result: Tensor, call: AttentionCall, shared: AttentionCall, parts: Parts) -> None:
    """A line of the ledger: the part of the weights, less what queries, keys and the mask took of it."""
    if not parts.weights:
        return
    name = offset_name(scope)
    entries: list[Any] = [(shared.query, call.query, -parts.query), (shared.key, call.key, -parts.key)]
    entries += [(shared.mask, call.mask, -parts.weights)]
    enter_result(scope, result, name, parts.weights)
    for own, given, part in entries:
        if is_signal(own):
            amount = part_of_product(scope, part)
            scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=amount, held=(given,))


def enter_result(scope: Scope, result: Tensor, name: str, part: float) -> None:
    """`part` of what comes back to the result of attention, which is made again if it can be."""
    maker, amount = find_maker(result), part_of_product(scope, part)
    if maker is None:
        scope.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=amount, held=(result,))
        return
    record = scope.books.record_amount(result, name, sort=Sort.CONSTANT, varies=(), amount=lambda relevance: relevance)
    result.register_hook(lambda gradient: record(amount(gradient, maker.tensor())))


def part_of_product(scope: Scope, part: float) -> PartOfProduct:
    return PartOfProduct(part, whole=scope.books.samples == 1)


def tell_all(told: list[Any]) -> Any:
    """One function that calls all of `told`."""

    def tell(gradient: Tensor) -> None:
        for one in told:
            one(gradient)

    return tell


def weigh_by_tangent(scope: Scope, scores: Tensor, value: Tensor, axis: int, *, follows: bool) -> Tensor:
    """A softmax with its own gradient. What the gradient does not explain, the offset, is a line of the ledger.

    With `follows` values that these weights mix take it instead: they are told of it by the weights' lineage.
    """
    tangent = Tangent(value, axis)
    scope.pending.register_borrower(tangent)
    line: Tensor = _Tangent.apply(scores, [value], tangent)
    held = value.nan_to_num(0.0)
    seen = torch.where(held > 0, scores.detach().to(held.dtype), torch.zeros_like(held))
    rest = held - held * (seen - (held * seen).sum(axis, keepdim=True))
    weights = value_of(value, gradient_of=line) if follows else line
    scope.books.enter(weights, offset_name(scope), sort=Sort.CONSTANT, varies=(), amount=times, held=(rest,))
    mark(weights, Kind.WEIGHTS, root=Even(line, rest) if follows else None)
    return weights


class Tangent:
    """The gradient of a softmax, computed from its weights, which are saved: the model may write over them."""

    __slots__ = ("__weakref__", "_weights", "axis")

    def __init__(self, weights: Tensor, axis: int) -> None:
        self._weights = BorrowedTensor(weights)
        self.axis: int = axis

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


@cache
def make_shares(text: str) -> SharesVariant:
    """The variant that a text such as `shares(q=0.35,k=0.15,v=0.5)` asks for: the same object for the same text."""
    found = parse_attention(text)
    if found is None:
        raise UsageError(f"{text!r} names no shares of attention: they are written as {EXAMPLE}.")
    made = SharesVariant(found)
    made.name = text
    return made


FAMILIES["shares"] = (EXAMPLE, make_shares)
