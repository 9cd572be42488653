"""Which cards have kernels of ours. Triton need not be there to ask."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

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


def on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Kernels are launched on the card where the tensor lies."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
