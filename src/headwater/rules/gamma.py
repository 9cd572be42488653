"""GAMMA-rule: in a linear layer, contributions that agree with their output in sign count 1 + gamma times.

With contributions c_ij = x_i w_ij to z_j = sum_i c_ij + b_j, those of z_j's own sign are boosted and all, the bias
among them, are rescaled to z_j: R_i = c'_ij / D_j R_j with D_j = z_j + gamma * (sum of the boosted ones). D_j never
vanishes unless z_j does, so no epsilon is needed, and what a layer receives it passes on.

With P and M the sums of the positive and the negative contributions, P = (z - b + |x| |W|^T) / 2 and
M = (z - b - |x| |W|^T) / 2: one more product each way.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor], Tensor]

Gamma = float | tuple[tuple[str, float], ...]


def gamma_of(gamma: Gamma, name: str | None) -> float:
    """The gamma of one layer: a number for all, or by patterns of the weight's name, of which the last match counts."""
    if not isinstance(gamma, tuple):
        return gamma
    found = [value for pattern, value in gamma if fnmatchcase(name or "", pattern)]
    return found[-1] if found else 0.0


def rescaling(z: Tensor, bias: Tensor | float, size: Tensor, gamma: float) -> Tensor:
    """z / D. `size` = |x| |W|^T."""
    boosted = z + 0.5 * gamma * (z - bias + z.sign() * size)
    return torch.where(boosted == 0, torch.zeros_like(z), z / boosted)


class Boosted(torch.autograd.Function):
    """A product x W^T + b whose value is the model's, and the factor by which its outputs were rescaled."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, compute: Callable[[Tensor], Tensor], gamma: float
    ) -> tuple[Tensor, Tensor]:
        z = compute(x.detach()).data
        size = torch.nn.functional.linear(x.detach().abs(), weight.abs())
        factor = rescaling(z, 0.0 if bias is None else bias, size, gamma)
        ctx.save_for_backward(weight, x.detach().sign(), factor, z.sign())
        ctx.gamma = gamma
        ctx.mark_non_differentiable(factor)
        return z, factor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weight, sign, factor, out_sign = ctx.saved_tensors
        flow = gradients[0] * factor
        half = 0.5 * ctx.gamma
        back = (1 + half) * (flow @ weight) + half * sign * ((flow * out_sign) @ weight.abs())
        return back, None, None, None, None


def boosted_map(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | float, product: Product, gamma: float) -> Any:
    """The same for any linear map (a convolution): what stands for its gradient, and the factor."""
    plain = product(x, weight)
    size = product(x * x.detach().sign(), weight.abs())
    factor = rescaling(z, bias, size.detach(), gamma)
    half = 0.5 * gamma
    return (1 + half) * plain * factor + half * size * (z.sign() * factor), factor
