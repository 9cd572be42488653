"""A product f(g) u of an activation and another signal, kept as g and u: all else is made again on the way back.

Of such a product the rules need f(g) and u, which share its relevance, the ratio f(g) / g, and in the next linear
layer the product itself. All of them are elementwise in g and u: two tensors are kept instead of four.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.elementwise import Activation, multiply_gate, share_gate
from .ratio import Pending, Ratio, find_ratio, settle_ratio
from .saved import BorrowedTensor, mark_remade


class GatedProduct:
    """f(g) u, of which f takes `share` and u the rest. The model may write over g and u before the backward pass."""

    __slots__ = ("__weakref__", "_function", "_gate", "_other", "_share", "_slope")

    def __init__(self, gate: Tensor, other: Tensor, function: Activation, slope: float, share: float) -> None:
        self._gate, self._other = BorrowedTensor(gate), BorrowedTensor(other)
        self._function, self._slope, self._share = function, slope, share

    def copy_before_write(self, written: Tensor) -> None:
        self._gate.copy_before_write(written)
        self._other.copy_before_write(written)

    @property
    def here(self) -> bool:
        return self._gate.here and self._other.here

    def tensor(self) -> Tensor:
        """The product, made again."""
        return multiply_gate(self._gate.tensor(), self._other.tensor(), self._function)

    def back(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients at g and u."""
        return share_gate(gradient, self._gate.tensor(), self._other.tensor(), self._function, self._slope, self._share)


class _Gated(torch.autograd.Function):
    """The value of f(g) u; on the way back what the product says."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, other: Tensor, value: list[Tensor], product: GatedProduct) -> Tensor:
        ctx.product = product
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *ctx.product.back(gradients[0]), None, None


def share_with_gate(a: Tensor, b: Tensor, share: float, pending: Pending) -> Tensor | None:
    """a * b, of which a takes `share`, kept as what went into the activation and the other factor.

    None if neither is the plain result of an activation.
    """
    for factor, other, part in ((a, b, share), (b, a, 1 - share)):
        found = find_ratio(factor)
        if found is None or not is_plain_gate(factor, other, found):
            continue
        settle_ratio(other)  # it may be an activation, too
        with torch.no_grad():
            value = a.detach() * b.detach()
        gate, function, slope = found.take_input()
        product = GatedProduct(gate, other, function, slope, part)
        pending.register_borrower(product)
        result: Tensor = _Gated.apply(gate, other, [value], product)
        mark_remade(result, product)
        return result
    return None


def is_plain_gate(factor: Tensor, other: Tensor, ratio: Ratio) -> bool:
    """Whether f(g) can be made again from g, and nobody looks at the gradient that would go through it."""
    alike = factor.shape == other.shape and factor.dtype is other.dtype
    return alike and ratio.can_be_made_again and not factor._backward_hooks and factor is not other
