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

from ..errors import HiddenOperation

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


class Boost:
    """What the way back needs of one product x W^T + b = z. It is made there, so that what is held constant costs none.

    Until then x and z are held; before anything is written in place, their signs and the factor z / D instead.
    """

    __slots__ = ("__weakref__", "_factor", "_versions", "_x", "_z", "bias", "gamma", "weight")

    def __init__(self, x: Tensor, z: Tensor, weight: Tensor, bias: Tensor | None, gamma: float) -> None:
        self._x, self._z, self._versions = x.detach(), z.detach(), (x._version, z._version)
        self._factor: Tensor | None = None
        self.weight, self.bias, self.gamma = weight, bias, gamma

    def make(self) -> None:
        """Nothing of the model's is held from here on."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.factor(self.weight.abs())
            self._x, self._z = self._x.sign(), self._z.sign()
            self._versions = (self._x._version, self._z._version)

    def factor(self, sizes: Tensor) -> Tensor:
        """z / D, given |W|."""
        if self._factor is None:
            summed = torch.nn.functional.linear(self._x.abs(), sizes)
            summed.copysign_(self._z).add_(self._z)  # |x| |W|^T is positive
            if self.bias is not None:
                summed.sub_(self.bias)
            boosted = torch.add(self._z, summed, alpha=0.5 * self.gamma, out=summed)
            nothing = boosted == 0
            self._factor = torch.div(self._z, boosted, out=boosted).masked_fill_(nothing, 0.0)
        return self._factor

    def back(self, gradient: Tensor, record: Callable[[Tensor], None] | None) -> Tensor:
        """The gradient at x; `record` is told what reaches the bias."""
        if (self._x._version, self._z._version) != self._versions:
            raise HiddenOperation("the model writes over what goes into or comes out of a linear layer.")
        half, sizes = 0.5 * self.gamma, self.weight.abs()
        flow = gradient * self.factor(sizes)
        if record is not None:
            record(flow)
        whole = flow @ self.weight
        return whole.mul_(1 + half).addcmul_(self._x.sign(), flow.mul_(self._z.sign()) @ sizes, value=half)


class Boosted(torch.autograd.Function):
    """A product x W^T + b whose value is the model's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: list[Tensor], boost: Boost) -> Tensor:
        ctx.boost, ctx.record = boost, None
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.boost.back(gradients[0], ctx.record), None, None


def boosted_map(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | float, product: Product, gamma: float) -> Any:
    """The same for any linear map (a convolution): what stands for its gradient, and the factor."""
    plain = product(x, weight)
    size = product(x * x.detach().sign(), weight.abs())
    factor = rescaling(z, bias, size.detach(), gamma)
    half = 0.5 * gamma
    return (1 + half) * plain * factor + half * size * (z.sign() * factor), factor
