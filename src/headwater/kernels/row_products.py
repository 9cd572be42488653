"""Many rows times a matrix, on the processor by oneDNN.

torch multiplies matrices of float32 by MKL. On a processor of AMD oneDNN, which torch brings along as well, took less
than half the time. Results differ by rounding alone. To move no other number, only backward passes of several scores
and texts that are only read come here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

MANY = 256  # rows of a backward pass of several scores: with fewer it is short, and its numbers stay as they were
SOME = 32  # rows of a text that is only read: from there on oneDNN took half the time


def multiply_rows(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix."""
    if not is_for_onednn(rows, matrix):
        return rows @ matrix
    with torch.no_grad():
        product: Tensor = find_product()(rows, matrix.detach().T, None, "none", [], "")
    return product


class FasterLinear(TorchFunctionMode):
    """Linear layers of a model that is run without gradients, by the faster library."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        x, weight, bias = (*args, None)[:3]
        rows = x.reshape(-1, x.shape[-1])
        if not is_for_onednn(rows, weight, SOME):
            return func(*args)
        return find_product()(rows, weight, bias, "none", [], "").view(*x.shape[:-1], -1)


def is_for_onednn(rows: Tensor, matrix: Tensor, least: int = MANY) -> bool:
    """Whether both are plain matrices of float32 on the processor, and large enough."""
    plain = type(rows) is Tensor and type(matrix) in (Tensor, torch.nn.Parameter)
    fits = plain and rows.dim() == matrix.dim() == 2 and rows.dtype is matrix.dtype is torch.float32
    return (
        fits and rows.device.type == matrix.device.type == "cpu" and len(rows) >= least and find_product() is not None
    )


def find_product() -> Any:
    """oneDNN's x W^T, None where torch was built without it or it is switched off."""
    there = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if there else None
