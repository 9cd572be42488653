"""Rows whose gradient is exactly zero need no products in the backward pass: they are found, and left out.

There are many of them where the model reads one position only (the first or the last), where the batch is padded, and
after the token that is explained. Finding them on a graphics card would mean waiting for it, so only the processor
does.
"""

from __future__ import annotations

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
    if gradient[..., 0].count_nonzero() > most:  # one number of each row says it for nearly all gradients
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
