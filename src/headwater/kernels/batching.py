"""Gradients of several scores in one backward pass: torch.vmap hands them on as batched tensors, one axis more each.

What looks at numbers or writes into memory of its own opens them, works with the axis in sight, and closes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack


def open_batch(tensor: Tensor) -> tuple[Tensor, int | None]:
    """The numbers of a batched tensor, the batch along the first axis, and its level; a plain tensor has none."""
    if not functorch.is_batchedtensor(tensor):
        return tensor, None
    return functorch.get_unwrapped(tensor).movedim(functorch.maybe_get_bdim(tensor), 0), functorch.maybe_get_level(
        tensor
    )


def close_batch(tensor: Tensor, level: int | None) -> Tensor:
    """The batched tensor again, of numbers that have the batch along the first axis."""
    return tensor if level is None else functorch._add_batch_dim(tensor, 0, level)


def map_batch(function: Callable[[Tensor], Any], tensor: Tensor) -> Any:
    """A function of one score's gradient, that gives tensors or None, for each score in turn."""
    opened, level = open_batch(tensor)
    if level is None:
        return function(tensor)
    found = [function(one) for one in opened]
    if isinstance(found[0], Tensor):
        return close_batch(torch.stack(found), level)
    return tuple(
        None if part[0] is None else close_batch(torch.stack(part), level) for part in zip(*found, strict=True)
    )


def outside_batches() -> Any:
    """Inside, plain tensors may have graphs of their own, also within torch.vmap."""
    return temporarily_clear_interpreter_stack()


def is_batched(tensor: Tensor) -> bool:
    return bool(functorch.is_batchedtensor(tensor))
