"""A model's own casts to float32 and less, lifted: what is missing then was lost, not rounded away."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headwater.inputs.batch import map_leaves

_LOWER = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)


class Exact(TorchFunctionMode):
    """Inside, every cast to a lower precision is one to float64. Stands around the rules, which see the result."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            return args[0].double()
        args, kwargs = map_leaves((tuple(args), kwargs or {}), lift_dtype)
        return func(*args, **kwargs)


def lift_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOWER else value
