"""Torch's functions in Python: what is in their bodies is seen operation by operation."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any

# torch functions in Python that are no computation on the tensor, or hold none of our operations inside
OPAQUE = frozenset(
    """
    backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad __repr__ __format__ __str__
    __deepcopy__ __reduce_ex__ __len__ __contains__ __iter__ __hash__ __array__ __dlpack__ detach is_shared
    """.split()
)


def is_transparent(func: Any, name: str) -> bool:
    """Whether a function is written in Python, in operations that are of interest here."""
    return isinstance(func, types.FunctionType) and name not in OPAQUE


@cache
def inside(func: types.FunctionType) -> Callable[..., Any]:
    """The same Python function without its hand-over to overrides, so that the operations in its body are seen."""
    no = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _no)
    copy = types.FunctionType(
        func.__code__, {**func.__globals__, **no}, func.__name__, func.__defaults__, func.__closure__
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _no(*_: Any) -> bool:
    return False
