"""Work that can be stopped from outside, at any operation of torch.

A thread cannot be killed, and killing a process loses the model that it holds. But everything slow here consists of
torch's operations. A torch function mode sees each of them, asks whether the work is still wanted, and raises if not.
That is a place where the library already promises to leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import HeadwaterError
from ..inputs.restoring import Mode


class Stopped(HeadwaterError):
    """Work that ended before it was done."""


class Cancelled(Stopped):
    """Nobody waits for the answer any more."""

    def __init__(self) -> None:
        super().__init__("the request was cancelled.")


class OutOfTime(Stopped):
    """The work took longer than one request may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this took longer than the {seconds:g} seconds that one request may. Ask for fewer methods, quicker ones, "
            "or a shorter input."
        )


class Stop(BaseException):
    """Passes through everything that catches errors on the way, as an interrupt from the keyboard does.

    `compare` takes an error of a method as that method's refusal: a stop is no refusal.
    """

    def __init__(self, why: Stopped) -> None:
        super().__init__(str(why))
        self.why = why


class Interruptible(Mode):
    """Inside, every operation of torch on this thread calls `check` first, which raises to stop the work.

    A switch is no operation: whoever leaves `torch.no_grad()` because the work stops must get through.
    """

    harmless = True

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self.check = check

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch._C._set_grad_enabled:
            self.check()
        return func(*args, **(kwargs or {}))
