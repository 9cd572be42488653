"""`ah=secant`: queries and keys take part, and the ledger closes, for the softmax is replaced by its secant.

Attention is even attention, which belongs to the values, plus what the scores make of it. That is a product of two
signals: half goes to the values, half to the scores, of which queries and keys get half each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..call import Call, is_signal
from ..gradients import value_of
from ..lineage import Kind, lineage, mark
from ..operands import Place, operand_places, run_with
from ..scope import Scope
from ..sources import Sort
from .call import AttentionCall
from .facts import Even
from .half import Share
from .registry import Softmax
from .token import mix_tokens, token_gamma
from .variant import Variant, register_variant

EVEN = "even attention"
_TINY = 1e-30
_NEAR = 1e-6  # of a score to the centre: there the slope is that of the weights themselves


@register_variant
class SecantVariant(Variant):
    """Even attention belongs to the values. What the scores make of it goes half to the values, half to the scores."""

    name = "secant"
    softmax = Softmax.LINEAR

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return weigh_by_secant(scope, scores, value, axis, base)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        return mix_from_even(call, weights, values, 0.5)

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        """The model's own value, with relevance through the secant of its softmax; queries and keys get half each."""
        with torch.no_grad():
            result = call.run()
        key, value = call.keys_and_values_per_head()
        scores, mask = call.scores(Share.apply(call.query, 0.5), Share.apply(key, 0.5)), call.mask
        if isinstance(mask, Tensor) and mask.dtype is not torch.bool and not is_signal(mask):
            scope.source(scores, mask, "attention mask")  # a bias of the scores, such as that of a distance
        weights = torch.softmax(scores.detach(), -1).nan_to_num(0.0)
        even = even_weights(weights)
        line = value_of(weights, gradient_of=secant(scores, weights, even))
        to_values, to_weights = split_weights(weights, line, even, 0.5)
        gamma = token_gamma(scope)
        seen = mix_tokens(to_values, value, gamma) if gamma else to_values @ value
        return value_of(result, gradient_of=seen + to_weights @ value.detach())


def weigh_by_secant(scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
    """The softmax `value` as even attention plus a linear function of the scores.

    Even attention does not depend on the scores: it belongs to the values, or is a line of the ledger if no values
    follow. A query that sees nothing has NaN weights, which models replace later. No relevance passes through them.
    """
    weights = value.nan_to_num(0.0)
    even = even_weights(weights, axis) if base is None else even_of(base, axis)
    line = secant(scores, weights, even, axis)
    result = value_of(value, gradient_of=line)
    module = scope.where()
    name = f"{module}: {EVEN}" if module else EVEN
    held = (weights > 0) if base is None else base
    scope.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=partial(even_part, axis), held=(held,))
    mark(result, Kind.WEIGHTS, root=Even(line, even))
    return result


def even_part(axis: int, gradient: Tensor, base: Tensor) -> Tensor:
    return gradient * even_of(base.to(gradient.dtype), axis)


def even_weights(weights: Tensor, dim: int = -1) -> Tensor:
    """The same weight for everything that a query sees, and zero for what is masked."""
    return even_of((weights > 0).to(weights.dtype), dim)


def even_of(base: Tensor, dim: int) -> Tensor:
    """`base` as weights: over its sum, and nothing where there is none."""
    total = base.sum(dim, keepdim=True)
    return base / torch.where(total == 0, torch.ones_like(total), total)


def secant(scores: Tensor, weights: Tensor, even: Tensor, dim: int = -1) -> Tensor:
    r"""p_j = u_j + l_j (s_j - sum_k w_k s_k): a softmax as a linear function of its scores, with l and w held constant.

    u is even attention. Since p_j = u_j exp(s_j - c) with c = log sum u exp(s), the slope l_j = (p_j - u_j) / (s_j - c)
    is the logarithmic mean of p_j and u_j: finite and positive. And c lies between the mean of the scores under u and
    that under p, so it is their mean under some w between the two. Scores that are all moved alike change nothing.
    """
    scores = scores.to(weights.dtype)
    with torch.no_grad():
        seen = even > 0
        own = torch.where(seen, scores.detach(), torch.zeros_like(scores))
        mixed = between(own, weights, even, dim)
        from_centre = own - (mixed * own).sum(dim, keepdim=True)
        near = from_centre.abs() < _NEAR
        slope = (weights - even) / torch.where(near, torch.ones_like(own), from_centre)
        least, most = torch.minimum(weights, even), torch.maximum(weights, even)
        slope = torch.where(near, 0.5 * (weights + even), slope.clamp(least, most))
    alive = torch.where(seen, scores, torch.zeros_like(scores))
    return even + slope * (alive - (mixed * alive).sum(dim, keepdim=True))


def between(own: Tensor, weights: Tensor, even: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Weights w between even ones and the softmax of the scores, such that log sum u exp(s) = sum_k w_k s_k."""
    low, high = ((part * own).sum(dim, keepdim=True) for part in (even, weights))
    gap = high - low
    centre = torch.where(even > 0, own, torch.full_like(own, -math.inf)) + even.clamp_min(_TINY).log()
    above = centre.logsumexp(dim, keepdim=True) - low
    share = (above / torch.where(gap > 0, gap, torch.ones_like(gap))).clamp(0, 1)
    return torch.lerp(even, weights, share)


def mix_from_even(call: Call, weights: Place, values: Place, part: float) -> Tensor:
    """Weights times values: what weights are without scores belongs to the values; of the rest the scores get `part`.

    Weights of which nothing is known are all from scores.
    """
    operands = operand_places(call)
    own, root = operands[weights], lineage(operands[weights]).root
    line, even = (root.line, root.weights) if isinstance(root, Even) else (own, torch.zeros_like(own))
    to_values, to_weights = split_weights(own, line, even, part)
    seen: Tensor = run_with(call, {weights: to_values})
    brought: Tensor = run_with(call, {weights: to_weights, values: operands[values].detach()})
    return seen + brought


def split_weights(weights: Tensor, line: Tensor, even: Tensor, part: float) -> tuple[Tensor, Tensor]:
    """Weights times values in two parts: the weights that mix the values, and the scores' part of the weights."""
    return (1 - part) * weights.detach() + part * even, part * (line - even)
