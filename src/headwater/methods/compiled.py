"""Compiled parts of a model run as the Python code that they were made from: a compiled graph hides its operations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import torch

_LOCK = Lock()
_INSIDE = [0]
_STANCE = ExitStack()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, what `torch.compile` made runs eagerly, wherever in the model it stands.

    Torch has one such switch for all threads: the first that comes in turns it, the last that leaves turns it back.
    Nothing can be compiled before torch has loaded its compiler, so without that nothing is done.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with _LOCK:
        _INSIDE[0] += 1
        if _INSIDE[0] == 1:
            _STANCE.enter_context(torch.compiler.set_stance("force_eager"))
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE[0] -= 1
            if _INSIDE[0] == 0:
                _STANCE.close()
