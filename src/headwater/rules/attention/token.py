"""TOKEN-rule: in a sum over tokens, tokens that agree with the sum count 1 + gamma times (`kernels.token_sums`).

Here is the rule for attention that a model writes out: whatever product of weights and values it takes, values get
their part of its gradient by the rule, and weights get theirs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...kernels.batching import map_batch
from ...kernels.token_sums import TokenRule, rescale
from ..call import Call
from ..operands import Place, operand_places, run_with
from ..rule_set import gamma_of
from ..scope import Scope
from ..sources import wide

_USUAL = ("matmul", "mm", "bmm")

Product = Callable[[Tensor, Tensor], Tensor]


def token_gamma(scope: Scope) -> float:
    """The gamma of sums over tokens in the module whose code is running; 0 if there is none."""
    if "token" not in scope.rules or not scope.rules.token:
        return 0.0
    found = gamma_of(scope.rules.token, scope.where())
    if found:
        scope.applies("token")
    return found


def boost_tokens(scope: Scope, call: Call, weights: Place, values: Place) -> Call:
    """The same product of weights and values, in which values get their part of the gradient by the rule."""
    gamma = token_gamma(scope)
    if not gamma:
        return call
    operands = operand_places(call)
    usual = call.name in _USUAL and weights == (0, -1) and operands[weights].dim() > 1 < operands[values].dim()

    def product(first: Tensor, second: Tensor) -> Tensor:
        made: Tensor = run_with(call, {weights: first, values: second})
        return made

    def boosted(*args: Any, **kwargs: Any) -> Any:
        own = operand_places(replace(call, args=args))
        return mix_tokens(own[weights], own[values], gamma, product, usual=usual)

    return replace(call, func=boosted)


def mix_tokens(
    weights: Tensor, values: Tensor, gamma: float, product: Product = torch.matmul, *, usual: bool = True
) -> Tensor:
    """A product of weights and values; `usual`: it is p @ v, and the keys are the last axis of p."""
    mixed: Tensor = _TokenMix.apply(weights, values, TokenProduct(product, gamma, usual))
    return mixed


@dataclass(frozen=True)
class TokenProduct:
    """A product of weights and values, and its way back by the rule for sums over tokens."""

    product: Product
    gamma: float
    usual: bool

    def back(self, gradient: Tensor, weights: Tensor, values: Tensor, needed: Sequence[bool]) -> Any:
        """The gradients of weights and values, where they are needed. Half precision is too coarse for the sums."""
        kinds = (weights.dtype, values.dtype)
        parts = (wide(gradient), wide(weights), wide(values))
        ways = (self.to_weights, self.to_values) if self.usual else (self.any_to_weights, self.any_to_values)
        found = [way(*parts) if asked else None for way, asked in zip(ways, needed, strict=True)]
        return tuple(None if one is None else one.to(kind) for one, kind in zip(found, kinds, strict=True))

    def to_weights(self, gradient: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        return (gradient @ values.transpose(-2, -1)).sum_to_size(weights.shape)

    def to_values(self, gradient: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        boosted = TokenRule(values, self.gamma).boost(weights, gradient, values)
        return (boosted.transpose(-2, -1) @ gradient).sum_to_size(values.shape)

    def any_to_weights(self, gradient: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        return pull_back(lambda one: self.product(one, values), weights, gradient)

    def any_to_values(self, gradient: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        """Whatever axes the product sums over: its own way forward makes the sums of terms, on values that are all 1.

        A factor 1 + gamma [r R > 0] is 1 + gamma / 2 (1 + sign(r) sign(R)) where r is not 0. So the sign of R, which
        has the shape of the result, stays there.
        """
        terms, half = weights * self.any_to_weights(gradient, weights, values), 0.5 * self.gamma
        total, size = (self.product(part, torch.ones_like(values)) for part in (terms, terms.abs()))
        flow = gradient * rescale(total, size, self.gamma)
        plain, signed = weights * (1 + half * (terms != 0)), weights * (half * terms.sign())
        return pull_back(lambda one: self.product(plain, one), values, flow) + pull_back(
            lambda one: self.product(signed, one), values, flow * total.sign()
        )


class _TokenMix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, way: TokenProduct) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.way = way
        return way.product(weights, values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weights, values = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        return (*map_batch(lambda one: ctx.way.back(one, weights, values, needed), gradients[0]), None)


def pull_back(linear: Callable[[Tensor], Tensor], at: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of a linear function."""
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        (found,) = torch.autograd.grad(linear(leaf), leaf, gradient)
    return found
