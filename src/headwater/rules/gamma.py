"""GAMMA-rule: in a linear layer, contributions that agree with their output in sign count 1 + gamma times.

With contributions c_ij = x_i w_ij to z_j = sum_i c_ij + b_j, those of z_j's own sign are boosted and all, the bias
among them, are rescaled to z_j: R_i = c'_ij / D_j R_j with D_j = z_j + gamma * (sum of the boosted ones). D_j never
vanishes unless z_j does, so no epsilon is needed, and what a layer receives it passes on.

With P and M the sums of the positive and the negative contributions, P = (z - b + |x| |W|^T) / 2 and
M = (z - b - |x| |W|^T) / 2: one more product each way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.batching import close_batch, is_batched, open_batch
from ..kernels.elementwise import boost_flow, fit_one_pass, join_in_one_pass
from ..kernels.row_products import is_for_onednn, multiply_rows
from ..kernels.sparse_rows import RowBlocks, find_nonzero_rows, gather_rows, scatter_rows
from .ratio import ratio
from .saved import BorrowedTensor, borrow

CACHED = 1 << 19  # numbers of one matrix at a time: 2 MiB of float32
WHOLE = 1 << 22  # numbers of a matrix whose absolute values are made at once

Product = Callable[[Tensor, Tensor], Tensor]


def rescaling(z: Tensor, bias: Tensor | float, size: Tensor, gamma: float) -> Tensor:
    """z / D. `size` = |x| |W|^T."""
    boosted = z + 0.5 * gamma * (z - bias + z.sign() * size)
    return torch.where(boosted == 0, torch.zeros_like(z), z / boosted)


class Boost:
    """What the backward pass needs of one product x W^T + b = z: x and z, which are saved. Without z it is made again.

    The factor z / D is computed there, so a layer that passes on no relevance does not pay for it. It is kept if
    further backward passes follow and x and z are in memory anyway.
    """

    __slots__ = ("__weakref__", "_factor", "_x", "_z", "bias", "gamma")

    def __init__(self, x: Tensor, z: Tensor | None, bias: Tensor | None, gamma: float) -> None:
        self._x, self._z = borrow(x), None if z is None else BorrowedTensor(z)
        self._factor: Tensor | None = None
        self.bias: Tensor | None = bias
        self.gamma: float = gamma

    def copy_before_write(self, written: Tensor) -> None:
        """Memory is about to be written over."""
        self._x.copy_before_write(written)
        if self._z is not None:
            self._z.copy_before_write(written)

    def _input_and_output(self, gradient: Tensor, weight: Tensor, rows: Tensor | None) -> list[Tensor]:
        """Gradient, weight, x and z in the finest of their types; of x and z these rows, as matrices."""
        x = gather_rows(self._x.tensor(), rows)
        z = F.linear(x, weight, self.bias) if self._z is None else gather_rows(self._z.tensor(), rows)
        return in_the_finest(gradient, weight, x, z)

    def factor(self, size: Tensor, z: Tensor, sizes: Sizes) -> Tensor:
        """z / D as matrices, given |x| and |W|."""
        made = sizes.after(size)
        for part, whole in pieces(made, z):
            part.copysign_(whole).add_(whole)  # |x| |W|^T is positive
            if self.bias is not None:
                part.sub_(self.bias)
            torch.add(whole, part, alpha=0.5 * self.gamma, out=part)
            found = ratio(part, whole, 0.0, 0.0, into=part)  # nothing but 0 is divided by 0
            if found is not part:
                part.copy_(found)
        return made

    def _remember(self, weight: Tensor) -> None:
        further = torch._C._autograd._get_current_graph_task_keep_graph()
        if further and self._factor is None and self._x.here and (self._z is None or self._z.here):
            _, weight, x, z = self._input_and_output(weight, weight, None)
            self._factor = self.factor(x.abs(), z, Sizes(weight, len(x)))

    def back(self, gradient: Tensor, weight: Tensor, record: Callable[..., None] | None) -> Tensor:
        """The gradient at x; `record` is told what reaches the bias. Memory is used again: to get it takes long."""
        if is_batched(gradient):
            return self._back_at_once(gradient, weight, record)
        self._remember(weight)
        rows, shape = find_nonzero_rows(gradient), gradient.shape[:-1]
        gradient, weight, x, z = self._input_and_output(gather_rows(gradient, rows), weight, rows)
        sizes, half = Sizes(weight, shape.numel()), 0.5 * self.gamma
        size, signed = x.abs(), None
        if self._factor is not None:
            flow = gradient * gather_rows(self._factor, rows)
        elif self.bias is None and fit_one_pass(gradient, z):
            flow, signed = boost_flow(sizes.after(size), z, gradient, half)
        else:
            flow = self.factor(size, z, sizes).mul_(gradient)
        if record is not None:
            record(flow, rows, shape)
        whole = multiply_rows(flow, weight, shape.numel())
        signed = with_signs(flow, z) if signed is None else signed
        if sizes.can_reuse_memory(signed):
            other = sizes.before(signed, out=size)
        else:
            del size  # oneDNN makes memory of its own
            other = sizes.before(signed)
        return scatter_rows(join_parts(whole, x, other, half), rows, shape)

    def _back_at_once(self, gradient: Tensor, weight: Tensor, record: Callable[..., None] | None) -> Tensor:
        """The same for several scores: x, z and what is made of them are theirs in common."""
        opened, level = open_batch(gradient)
        self._remember(weight)
        gradient, weight, x, z = self._input_and_output(opened, weight, None)
        shape = gradient.shape[:-1]
        sizes, half = Sizes(weight, shape.numel()), 0.5 * self.gamma
        factor = self.factor(x.abs(), z, sizes) if self._factor is None else self._factor
        blocks = RowBlocks.of(gradient.flatten(1, -2))
        flow = blocks.gather(gradient.flatten(1, -2), factor)
        if record is not None:
            record(flow, blocks.rows(), shape, level)
        whole = multiply_rows(flow, weight, shape.numel()).mul_(1 + half)
        signs = z.sign()
        for part, own in blocks.parts(flow):
            part.mul_(signs[own])
        other, signs = sizes.before(flow), x.sign()
        for part, term, own in blocks.parts(whole, other):
            part.addcmul_(signs[own], term, value=half)
        return close_batch(blocks.scatter(whole).view(*shape, -1), level)


def with_signs(flow: Tensor, z: Tensor) -> Tensor:
    """`flow` times the sign of z, in its own memory."""
    for part, sign in pieces(flow, z):
        part.mul_(sign.sign())
    return flow


def join_parts(whole: Tensor, x: Tensor, other: Tensor, half: float) -> Tensor:
    """(1 + half) whole + half sign(x) other; without a kernel in the memory of `whole`."""
    if fit_one_pass(whole, x, other):
        return join_in_one_pass(whole, x, other, half)
    for total, sign, part in pieces(whole, x, other):
        total.mul_(1 + half).addcmul_(sign.sign(), part, value=half)
    return whole


class Sizes:
    """|W|, the absolute values of a matrix. Of a large one on the processor only some rows are there at a time.

    `count`: the number of rows that it is multiplied by, those that were left out among them.
    """

    __slots__ = ("_count", "_weight", "_whole")

    def __init__(self, weight: Tensor, count: int) -> None:
        whole = weight.device.type != "cpu" or weight.numel() <= WHOLE
        self._weight, self._whole, self._count = weight, weight.abs() if whole else None, count

    def after(self, rows: Tensor) -> Tensor:
        """x |W|^T."""
        if self._whole is not None:
            return multiply_rows(rows, self._whole.T, self._count)
        made = rows.new_empty(len(rows), len(self._weight))
        for own, part in self._parts():
            made[:, own] = multiply_rows(rows, part.T, self._count)
        return made

    def before(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """x |W|; in the memory of `out` if it is given."""
        if self._whole is not None:
            if out is not None:
                return torch.mm(rows, self._whole, out=out)
            return multiply_rows(rows, self._whole, self._count)
        made = torch.zeros(len(rows), self._weight.shape[1], dtype=rows.dtype) if out is None else out.zero_()
        for own, part in self._parts():
            made += multiply_rows(rows[:, own], part, self._count)
        return made

    def can_reuse_memory(self, rows: Tensor) -> bool:
        """Whether x |W| can be made in memory that is given."""
        return self._whole is None or not is_for_onednn(rows, self._whole, self._count)

    def _parts(self) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, CACHED // self._weight.shape[1])
        memory = torch.empty(step, self._weight.shape[1], dtype=self._weight.dtype)
        for start in range(0, len(self._weight), step):
            part = self._weight[start : start + step]
            yield slice(start, start + len(part)), torch.abs(part, out=memory[: len(part)])


def pieces(*matrices: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each, so few on the processor that they stay in its cache from one operation to the next."""
    if matrices[0].device.type != "cpu":
        yield matrices
        return
    rows = max(1, CACHED // max(1, *(matrix.shape[-1] for matrix in matrices)))
    yield from zip(*(matrix.split(rows) for matrix in matrices), strict=True)


def in_the_finest(*tensors: Tensor) -> list[Tensor]:
    """In the finest of their types, where autocast made them differ."""
    fine = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return [tensor.to(fine) for tensor in tensors]


def boost_map(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | float, product: Product, gamma: float) -> Any:
    """The same for any linear map (a convolution): what stands for its gradient, and the factor."""
    plain = product(x, weight)
    size = product(x * x.detach().sign(), weight.abs())
    factor = rescaling(z, bias, size.detach(), gamma)
    half = 0.5 * gamma
    return (1 + half) * plain * factor + half * size * (z.sign() * factor), factor
