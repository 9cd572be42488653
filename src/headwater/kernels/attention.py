"""Which kernel computes dV = P^T dO, the backward pass of attention whose weights are held constant."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from . import blocked
from .forward import is_usual_shape

AMPERE = (8, 0)  # the first cards with bfloat16


def values_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor | None, mask: Tensor | None, options: Any
) -> Tensor | None:
    """P^T dO by a kernel, or None where none is made for it. `options` are those of torch's attention."""
    if not is_usual_shape(query, key, mask, options):
        return None
    scale = options.get("scale") or query.shape[-1] ** -0.5
    causal = bool(options.get("is_causal"))
    if query.is_cuda:
        return on_card(gradient, query, key, sums, mask, scale, causal)
    if query.device.type == "cpu" and sums is not None and blocked.knows(sums, mask):
        return blocked.values_gradient(gradient, query, key, sums, mask, scale=scale, causal=causal)
    return None


def on_card(
    gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor | None, mask: Tensor | None, scale: float, causal: bool
) -> Tensor | None:
    if not has_triton(query.device):
        return None
    from . import fused

    if not fused.knows(query, key, gradient):
        return None
    return fused.values_gradient(gradient, query, key, sums, mask, scale=scale, causal=causal)


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton is there, and a card that it was tried on."""
    if torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= AMPERE
