"""Compiled parts of a model run as the Python code that they were made from: a compiled graph hides its operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from threading import RLock
from typing import Any

import torch

from ..inputs.restoring import undone

_LOCK = RLock()
_INSIDE: set[object] = set()
_BEFORE: list[Any] = []  # the stance that is to come back


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Inside, what `torch.compile` made runs eagerly, wherever in the model it stands.

    Torch has one such switch for all threads: the first that comes in turns it, the last that leaves turns it back.
    Nothing can be compiled before torch has loaded its compiler, so without that nothing is done.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    me = object()
    with undone(partial(change_exclusively, _INSIDE.discard, me)):
        change_exclusively(_INSIDE.add, me)
        yield


def change_exclusively(change: Callable[[object], None], me: object) -> None:
    """Adds or removes this thread under the lock. Called again after an interrupt, it does what is left to do."""
    try:
        _LOCK.acquire()
        change(me)
        turn()
    finally:
        let_go()


def turn() -> None:
    """Sets torch's switch: eager while any thread is inside."""
    dynamo: Any = import_module("torch._dynamo.eval_frame")
    if _INSIDE and not _BEFORE:
        _BEFORE.append(dynamo._stance)
    if _INSIDE and dynamo._stance.stance != "force_eager":
        torch.compiler.set_stance("force_eager")
    if not _INSIDE and _BEFORE:
        dynamo._set_stance(_BEFORE[0])
        _BEFORE.clear()


def let_go() -> None:
    """Releases the lock as often as this thread holds it."""
    with suppress(RuntimeError):
        while True:
            _LOCK.release()
