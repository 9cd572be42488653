"""Rows times a matrix of float32: on the processor by oneDNN, on a card by its matrix units.

torch multiplies matrices of float32 by MKL. On a processor of AMD oneDNN, which torch brings along as well, takes less
time: from less than half to nine tenths; on one of Intel as long, or twice as long with a matrix that lies by columns.
On a card torch leaves the matrix units unused, unless TF32 is allowed, which has fewer digits: see `split_products`.
Results differ by rounding alone. What the model itself computes stays with torch, so that the prediction is the same to
the last bit; backward passes and texts that are only read come here.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .cards import is_served_card

SOME = 32  # rows, from which on oneDNN is faster for small matrices, too: it takes some 12 microseconds to be called
LARGE = 1 << 18  # numbers of a matrix for which it is faster from two rows on
MANY = 1024  # rows, from which on a card takes less time for a product by parts
WIDE = 1 << 20  # numbers of a matrix, likewise
MAKERS = ("AuthenticAMD", "HygonGenuine")  # whose processors MKL keeps from its fastest ways


def multiply_rows(rows: Tensor, matrix: Tensor, count: int | None = None) -> Tensor:
    """rows @ matrix.

    `count` says how many rows there were before some were left out because they are zero. How many are left depends
    on numbers, and a plan must not.
    """
    if is_for_parts(rows, matrix):
        from . import split_products

        return split_products.multiply_by_parts(rows.detach(), matrix.detach())
    if not is_for_onednn(rows, matrix, count):
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
        if not is_for_onednn(rows, weight):
            return func(*args)
        return find_product()(rows, weight, bias, "none", [], "").view(*x.shape[:-1], -1)


def are_plain(rows: Tensor, matrix: Tensor) -> bool:
    """Whether both are plain matrices of float32, and no gradient is asked for."""
    plain = type(rows) is Tensor and type(matrix) in (Tensor, torch.nn.Parameter)
    fits = plain and rows.dim() == matrix.dim() == 2 and rows.dtype is matrix.dtype is torch.float32
    return fits and not (torch.is_grad_enabled() and rows.requires_grad)


def is_for_parts(rows: Tensor, matrix: Tensor) -> bool:
    """Whether a card multiplies them by parts: they are large enough, and torch would take no TF32."""
    large = len(rows) >= MANY and matrix.numel() >= WIDE
    return large and are_plain(rows, matrix) and is_served_card(rows) and not tf32_is_allowed()


def tf32_is_allowed() -> bool:
    """Whether torch multiplies float32 by the matrix units, in fewer digits."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def is_for_onednn(rows: Tensor, matrix: Tensor, count: int | None = None) -> bool:
    """Whether both are plain matrices on the processor, large enough."""
    if not are_plain(rows, matrix) or not rows.device.type == matrix.device.type == "cpu":
        return False
    enough = (len(rows) if count is None else count) >= SOME or matrix.numel() >= LARGE
    return enough and find_product() is not None


def find_product() -> Any:
    """oneDNN's x W^T. None where it is not the faster one, where torch was built without it, or it is switched off."""
    there = is_faster_here() and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if there else None


@cache
def is_faster_here() -> bool:
    """Whether oneDNN is faster than MKL: by the processor's maker, so that results are the same in every process."""
    said = platform.processor()  # on Windows it ends with the maker
    with suppress(OSError):
        said += Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")[:1000]
    return torch.backends.mkl.is_available() and any(maker in said for maker in MAKERS)
