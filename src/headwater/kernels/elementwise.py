"""What the rules compute for each number of large matrices, in few passes over memory.

On a card such passes take as long as their memory traffic: each function here is one kernel there, where one is made
for it, and the same numbers by torch's operations elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .batching import is_batched
from .cards import is_served_card

WIDEST_ROW = 16384  # numbers that one program of a kernel goes through at a time


@dataclass(frozen=True, eq=False)
class Activation:
    """An activation as it was called, to be called again."""

    name: str
    func: Callable[..., Tensor]
    rest: tuple[Any, ...] = ()
    options: Mapping[str, Any] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.func(x, *self.rest, **(self.options or {}))


def fit_one_pass(*tensors: Tensor) -> bool:
    """Whether a kernel may go through all of them at once: on a card, alike, one number after the other."""
    first = tensors[0]
    if is_batched(first) or not is_served_card(first):
        return False
    known = first.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return known and all(
        one.dtype is first.dtype and one.shape == first.shape and one.is_contiguous() for one in tensors
    )


def sum_products(gradient: Tensor, value: Tensor) -> Tensor | None:
    """Numbers that add up to the sum of g v, 0 where g is 0, in one pass; None where no kernel is made for it."""
    if gradient.stride() != value.stride():
        return None
    if gradient.dim() == 4 and not gradient.is_contiguous():  # heads before positions
        gradient, value = gradient.transpose(1, 2), value.transpose(1, 2)
    if not fit_one_pass(gradient, value):
        return None
    from . import elementwise_launch

    return elementwise_launch.launch_dot(gradient, value)


def boost_flow(size: Tensor, z: Tensor, gradient: Tensor, half: float) -> tuple[Tensor, Tensor]:
    """g z / D of the GAMMA-rule without a bias, and the same times sign(z). Where they fit one pass."""
    from . import elementwise_launch

    return elementwise_launch.launch_flow(size, z, gradient, half)


def join_in_one_pass(whole: Tensor, x: Tensor, other: Tensor, half: float) -> Tensor:
    """(1 + half) whole + half sign(x) other. Where they fit one pass."""
    from . import elementwise_launch

    return elementwise_launch.launch_join(whole, x, other, half)


def pass_back_norm(gradient: Tensor, weight: Tensor | None, scale: Tensor) -> Tensor | None:
    """s (g w - E[g w]) along the last axis, with one s for each row; None where no kernel is made for it."""
    if gradient.shape[-1] > WIDEST_ROW or not fit_one_pass(gradient) or (weight is not None and is_batched(weight)):
        return None
    from . import elementwise_launch

    return elementwise_launch.launch_centring(gradient, weight, scale)


def multiply_gate(gate: Tensor, other: Tensor, function: Activation) -> Tensor:
    """f(g) u."""
    if function.name == "silu" and fit_one_pass(gate, other):
        from . import elementwise_launch

        return elementwise_launch.multiply_silu(gate, other)
    return function(gate).mul_(other)


def share_gate(
    gradient: Tensor, gate: Tensor, other: Tensor, function: Activation, slope: float, share: float
) -> tuple[Tensor, Tensor]:
    """The gradients at g and u of f(g) u: `share` of it is g's, with f(g) as g times a constant, and the rest u's.

    `slope` is f'(0), and f(0) is 0.
    """
    if function.name == "silu" and fit_one_pass(gradient, gate, other):
        from . import elementwise_launch

        return elementwise_launch.share_silu(gradient, gate, other, share)
    first, value = times_gradient(share * other, gradient), function(gate)
    first *= divide_by_input(gate, value, slope)
    return first, times_gradient(value.mul_(1 - share), gradient)


def times_gradient(own: Tensor, gradient: Tensor) -> Tensor:
    """Their product, in the memory of `own` unless there are several gradients."""
    return own * gradient if is_batched(gradient) else own.mul_(gradient)


def divide_by_input(x: Tensor, value: Tensor, slope: float, into: Tensor | None = None) -> Tensor:
    """f(x) / x of a function with f(0) = 0; f'(0) where x is 0. `into` is memory that may be used for it."""
    if fit_one_pass(x, value):
        from . import elementwise_launch

        return elementwise_launch.launch_ratio(x, value, slope)
    if x.device.type != "cpu":
        close = x == 0
        return torch.div(value, x, out=into).masked_fill_(close, slope)
    quotient = torch.div(value, x, out=into)
    if bool(quotient.sum().isfinite()):  # 0 / 0 is not, so that no x was 0
        return quotient
    return quotient.masked_fill_(quotient.isnan() & (value == 0), slope)
