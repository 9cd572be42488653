"""GAMMA-rule for sums of signals: terms that agree with the sum in sign count 1 + gamma times.

A sum y = sum_j a_j of vectors passes g = dS/dy back to every term. The relevance of a term at one position is
r_j = <g, a_j> over the features. Terms with the sign of t = sum_j r_j count 1 + gamma times, and all of them are
rescaled to t: R_j = w_j r_j t / s with s = sum_j w_j r_j. Since |s| >= |t|, s vanishes only where t does, and no
epsilon is needed. What a sum receives it passes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .ratio import Pending
from .saved import BorrowedTensor
from .sources import wide


def boost_agreeing(relevance: Tensor, total: Tensor, gamma: float) -> Tensor:
    """w: 1 + gamma for terms that have the sign of their sum, 1 for others."""
    agrees = relevance.sign() * total.sign() > 0
    return 1 + gamma * agrees.to(relevance.dtype)


def rescale_to(total: Tensor, boosted: Tensor) -> Tensor:
    """t / s: what makes the sum of the boosted terms the sum of the terms. Where s is 0, so is t, and nothing is done.

    Nor is it where a term is infinite, which a gradient of 0 meets behind a mask.
    """
    kept = (boosted == 0) | ~boosted.isfinite()
    return torch.where(kept, torch.ones_like(total), total / boosted)


def dot_features(gradient: Tensor, term: Tensor, axis: int) -> Tensor:
    """<g, a> over the features at every position, one number along the axis."""
    product = wide(gradient) * wide(term)
    return product.sum(axis, keepdim=True) if product.dim() else product


class Terms:
    """The terms of a sum, which the model may still write over before the backward pass."""

    __slots__ = ("__weakref__", "_kept", "axis", "gamma")

    def __init__(self, terms: Sequence[Tensor], axis: int, gamma: float, pending: Pending) -> None:
        self._kept = [BorrowedTensor(term) for term in terms]
        self.axis: int = axis
        self.gamma: float = gamma
        pending.register_borrower(self)

    def copy_before_write(self, written: Tensor) -> None:
        for one in self._kept:
            one.copy_before_write(written)

    def tensors(self) -> list[Tensor]:
        return [one.tensor() for one in self._kept]


class AgreeingSum(torch.autograd.Function):
    """signs[0] * a + signs[1] * b, whose value is already there."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, value: list[Tensor], terms: Terms, signs: tuple[float, float]
    ) -> Tensor:
        ctx.terms, ctx.signs = terms, signs
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        terms, gradient = ctx.terms, gradients[0]
        with torch.no_grad():
            own = terms.tensors()
            parts = [sign * dot_features(gradient, term, terms.axis) for sign, term in zip(ctx.signs, own, strict=True)]
            total = parts[0] + parts[1]
            weights = [boost_agreeing(part, total, terms.gamma) for part in parts]
            factor = rescale_to(total, sum(w * part for w, part in zip(weights, parts, strict=True)))
            back = [
                (gradient * (sign * w * factor).to(gradient.dtype)).sum_to_size(term.shape).to(term.dtype)
                for sign, w, term in zip(ctx.signs, weights, own, strict=True)
            ]
        return *back, None, None, None


class AgreeingReduction(torch.autograd.Function):
    """scale * sum of x over some axes, whose value is already there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: list[Tensor], terms: Terms, axes: tuple[int, ...], scale: float) -> Tensor:
        ctx.terms, ctx.axes, ctx.scale = terms, axes, scale
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        terms, axes = ctx.terms, ctx.axes
        with torch.no_grad():
            (x,) = terms.tensors()
            gradient = gradients[0].reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
            parts = dot_features(gradient, x, terms.axis)
            total = parts.sum(axes, keepdim=True)
            weights = boost_agreeing(parts, total, terms.gamma)
            factor = ctx.scale * weights * rescale_to(total, (weights * parts).sum(axes, keepdim=True))
            return (gradient * factor.to(gradient.dtype)).to(x.dtype), None, None, None, None


class AgreeingRows(torch.autograd.Function):
    """`base` with `scale` * rows added at `index` along an axis, whose value is already there.

    `base` is a term if it is a signal; several rows may be added in one place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        base: Tensor,
        rows: Tensor,
        index: Tensor,
        value: list[Tensor],
        terms: Terms,
        axis: int,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(index)
        ctx.terms, ctx.axis, ctx.scale = terms, axis, scale
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (index,) = ctx.saved_tensors
        terms, axis, scale, gradient = ctx.terms, ctx.axis, ctx.scale, gradients[0]
        with torch.no_grad():
            rows, *base = terms.tensors()
            received = gradient.index_select(axis, index)
            parts = scale * dot_features(received, rows, terms.axis)
            own = dot_features(gradient, base[0], terms.axis) if base else parts.new_zeros(())
            places = [1 if i == terms.axis % gradient.dim() else n for i, n in enumerate(gradient.shape)]
            empty = parts.new_zeros(places)
            total = empty.index_add(axis, index, parts) + own
            weights = boost_agreeing(parts, total.index_select(axis, index), terms.gamma)
            boost = boost_agreeing(own, total, terms.gamma)
            factor = rescale_to(total, empty.index_add(axis, index, weights * parts) + boost * own)
            back = received * (scale * weights * factor.index_select(axis, index)).to(received.dtype)
            stays = gradient * (boost * factor).to(gradient.dtype) if base else None
        return stays, back.to(rows.dtype), None, None, None, None, None
