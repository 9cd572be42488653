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

from ..kernels.reached import by_rows, rows_reached
from .waiting import Lent

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
    """What the way back needs of one product x W^T + b = z: x and z, which wait as saved tensors do.

    The factor z / D is made there, so that what is held constant costs none; where further ways back follow and x and z
    are at hand anyway, it is kept for them.
    """

    __slots__ = ("__weakref__", "_factor", "_x", "_z", "bias", "gamma")

    def __init__(self, x: Tensor, z: Tensor, bias: Tensor | None, gamma: float) -> None:
        self._x, self._z = Lent(x), Lent(z)
        self._factor: Tensor | None = None
        self.bias, self.gamma = bias, gamma

    def spare(self, written: Tensor) -> None:
        """Memory is about to be written over."""
        self._x.spare(written)
        self._z.spare(written)

    def factor(self, x: Tensor, z: Tensor, sizes: Tensor) -> Tensor:
        """z / D, given |W|."""
        summed = torch.nn.functional.linear(x.abs(), sizes)
        summed.copysign_(z).add_(z)  # |x| |W|^T is positive
        if self.bias is not None:
            summed.sub_(self.bias)
        boosted = torch.add(z, summed, alpha=0.5 * self.gamma, out=summed)
        nothing = boosted == 0
        return torch.div(z, boosted, out=boosted).masked_fill_(nothing, 0.0)

    def back(self, gradient: Tensor, weight: Tensor, record: Callable[[Tensor], None] | None) -> Tensor:
        """The gradient at x; `record` is told what reaches the bias."""
        x, z, sizes = self._x.tensor(), self._z.tensor(), weight.abs()
        if self._x.here and self._z.here and torch._C._autograd._get_current_graph_task_keep_graph():
            self._factor = self.factor(x, z, sizes) if self._factor is None else self._factor
        known = () if self._factor is None else (self._factor,)
        rows = rows_reached(gradient)
        if rows is None:
            flow = gradient * (known[0] if known else self.factor(x, z, sizes))
            if record is not None:
                record(flow)
            return self.shared(flow, x, z, weight, sizes)
        flow = by_rows(
            rows, (gradient, x, z, *known), lambda g, x, z, *f: g * (f[0] if f else self.factor(x, z, sizes))
        )
        if record is not None:
            record(flow)
        return by_rows(rows, (flow, x, z), lambda flow, x, z: self.shared(flow, x, z, weight, sizes))

    def shared(self, flow: Tensor, x: Tensor, z: Tensor, weight: Tensor, sizes: Tensor) -> Tensor:
        """What flows through z / D, which is written over, handed out to x."""
        half = 0.5 * self.gamma
        whole = flow @ weight
        return whole.mul_(1 + half).addcmul_(x.sign(), flow.mul_(z.sign()) @ sizes, value=half)


def boosted_map(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | float, product: Product, gamma: float) -> Any:
    """The same for any linear map (a convolution): what stands for its gradient, and the factor."""
    plain = product(x, weight)
    size = product(x * x.detach().sign(), weight.abs())
    factor = rescaling(z, bias, size.detach(), gamma)
    half = 0.5 * gamma
    return (1 + half) * plain * factor + half * size * (z.sign() * factor), factor
