"""Rows whose gradient is exactly zero need no products in the backward pass: they are found, and left out.

There are many of them where the model reads one position only (the first or the last), where the batch is padded, and
after the token that is explained. Finding them on a graphics card would mean waiting for it, so only the processor
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..traces.record import looks_at_numbers

FEW = 32  # rows: so few are not worth the look
SHARE = 1 / 4  # of the rows that must be zero, or they are not worth being left out


@looks_at_numbers
def find_nonzero_rows(gradient: Tensor) -> Tensor | None:
    """Numbers of the rows that are not zero, all axes but the last taken as one; None where all are better kept."""
    width = gradient.shape[-1] if gradient.dim() > 1 else 0
    count = gradient.numel() // width if width else 0
    if count < FEW or gradient.device.type != "cpu":
        return None
    most = count * (1 - SHARE)
    if int(gradient[..., 0].count_nonzero()) > most:  # one number of each row says it for nearly all gradients
        return None
    rows = nonzero(gradient.reshape(count, width)).nonzero().squeeze(1)
    return rows if len(rows) <= most else None


def gather_rows(tensor: Tensor, rows: Tensor | None) -> Tensor:
    """These rows of a tensor, or all, as a matrix."""
    flat = tensor.reshape(tensor.shape[:-1].numel(), tensor.shape[-1])  # -1 is no number of rows without columns
    return flat if rows is None else flat.index_select(0, rows)


def scatter_rows(made: Tensor, rows: Tensor | None, shape: torch.Size) -> Tensor:
    """What was made of these rows in its place, and zero in the others'; `shape` without the last axis."""
    if rows is not None:
        made = made.new_zeros(shape.numel(), made.shape[-1]).index_copy_(0, rows, made)
    return made.view(*shape, made.shape[-1])


def find_nonzero_queries(gradient: Tensor) -> tuple[int, int]:
    """From where to where along the last axis but one a gradient is not zero: (0, 0) if nowhere."""
    length = gradient.shape[-2]
    if length < 2 or bool(gradient[..., 0, :].any() & gradient[..., -1, :].any()):
        return 0, length
    found = nonzero(gradient).flatten(0, -2).any(0).nonzero().squeeze(1)
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)


def nonzero(tensor: Tensor) -> Tensor:
    """Whether any number along the last axis is not zero: as any() tells, in a third of its time."""
    return (tensor.amax(-1) != 0) | (tensor.amin(-1) != 0)


@dataclass(frozen=True)
class RowBlocks:
    """Of several gradients [scores, rows, size], from which row to which each is not zero: those of all in one matrix.

    What comes before a token does not depend on it, so that in a language model these are most of what is not zero.
    """

    ranges: list[tuple[int, int]]
    count: int  # rows of each

    @classmethod
    def of(cls, gradients: Tensor) -> RowBlocks:
        scores, count = gradients.shape[:2]
        if gradients.device.type != "cpu" or not gradients.numel():
            return cls([(0, count)] * scores, count)
        alive, places = nonzero(gradients), torch.arange(count)
        first = torch.where(alive, places, count).amin(1).tolist()
        last = torch.where(alive, places, -1).amax(1).tolist()
        return cls([(a, max(a, b + 1)) if b >= 0 else (0, 0) for a, b in zip(first, last, strict=True)], count)

    def gather(self, gradients: Tensor, factor: Tensor) -> Tensor:
        """These rows, each times the factor of its place."""
        made = gradients.new_empty(sum(b - a for a, b in self.ranges), gradients.shape[-1])
        for (part, own), gradient in zip(self.parts(made), gradients, strict=True):
            torch.mul(gradient[own], factor[own], out=part)
        return made

    def parts(self, *matrices: Tensor) -> Iterator[tuple[Any, ...]]:
        """Of each score its part of matrices that were gathered, and its places."""
        start = 0
        for a, b in self.ranges:
            yield *(matrix[start : start + b - a] for matrix in matrices), slice(a, b)
            start += b - a

    def rows(self) -> Tensor | None:
        """Their numbers, the rows of all gradients counted one after the other; None where there are no others."""
        if all(part == (0, self.count) for part in self.ranges):
            return None
        return torch.cat([torch.arange(k * self.count + a, k * self.count + b) for k, (a, b) in enumerate(self.ranges)])

    def scatter(self, made: Tensor) -> Tensor:
        """What was made of them in its place, [scores, rows, size], and zero in the others'."""
        shape = (len(self.ranges), self.count, made.shape[-1])
        if len(made) == shape[0] * shape[1]:
            return made.view(shape)
        out = made.new_empty(shape)
        for (part, own), whole in zip(self.parts(made), out, strict=True):
            whole[own] = part
            whole[: own.start] = 0
            whole[own.stop :] = 0
        return out
