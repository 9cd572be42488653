"""How much memory a computation takes above what was held before it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FORGET_PEAK = "5"  # see proc_pid_clear_refs(5)


@dataclass(frozen=True)
class Meter:
    """Bytes held before anything is measured: the model's and, on the processor, this program's own."""

    on_card: bool
    before: int

    @classmethod
    def start(cls, on_card: bool) -> Meter | None:
        """None where the system does not tell the highest memory that a program held."""
        if on_card:
            return cls(True, torch.cuda.memory_allocated())
        return cls(False, settle_memory()) if REFERENCES.exists() else None

    def peak(self, job: Callable[[], Any]) -> tuple[Any, int]:
        """What `job` gives, and the most that was held above the start while it ran.

        On a card that is what torch allocated; on the processor what the system had to lend, with all that lies unused
        in between.
        """
        if self.on_card:
            torch.cuda.reset_peak_memory_stats()
            result = job()
            torch.cuda.synchronize()
            return result, torch.cuda.max_memory_allocated() - self.before
        settle_memory()
        REFERENCES.write_text(FORGET_PEAK)
        result = job()
        return result, max(0, resident("VmHWM") - self.before)


def settle_memory() -> int:
    """Resident bytes once what is no longer used was given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident("VmRSS")


def resident(line: str) -> int:
    """A line of the process's status, in bytes."""
    words = next(row.split() for row in STATUS.read_text().splitlines() if row.startswith(f"{line}:"))
    return int(words[1]) * 1024
