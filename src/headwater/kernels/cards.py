"""Which cards have kernels of ours."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

AMPERE = (8, 0)  # the first cards with bfloat16


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton is there, and a card that it was tried on."""
    if torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= AMPERE


def is_served_card(tensor: Tensor) -> bool:
    """Whether a tensor lies on such a card."""
    return tensor.is_cuda and has_triton(tensor.device)
