"""Slow, independent computations that the library is compared with. Nothing in here imports Headwater."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest deviation, relative to the largest expected number."""
    if found.shape != expected.shape:
        raise AssertionError(f"found the shape {tuple(found.shape)}, expected {tuple(expected.shape)}")
    return float((found - expected).abs().max() / expected.abs().max())


def lines_difference(found: Mapping[str, float], expected: Mapping[str, float]) -> float:
    """The same for named lines of a ledger. A missing line is a line of 0; a surplus one must be 0 too."""
    names = sorted({*found, *expected})
    return difference(column(found, names), column(expected, names))


def column(lines: Mapping[str, float], names: list[str]) -> Tensor:
    return torch.tensor([lines.get(name, 0.0) for name in names], dtype=torch.float64)
