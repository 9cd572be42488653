"""Which recorder is active: the one of the block of `recorded` that an explanation is made in, if it is in one."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import Protocol

from .forward import Demand, Run
from .outcome import Outcome


class RunRecorder(Protocol):
    def takes(self, run: Run, demand: Demand) -> bool:
        """Whether it records runs of this kind."""
        ...

    def explain_run(self, run: Run, demand: Demand) -> Outcome: ...


class RecordingBlock(Protocol):
    """Exists while a block of `recorded` runs. An interrupt of the block frees it: no recorder is active then."""

    @property
    def recorder(self) -> RunRecorder: ...


ACTIVE: ContextVar[weakref.ref[RecordingBlock] | None] = ContextVar("recorder", default=None)


def find_recorder(run: Run, demand: Demand) -> RunRecorder | None:
    """The recorder that takes this run, if it is in the block of one."""
    found = ACTIVE.get()
    block = None if found is None else found()
    return None if block is None or not block.recorder.takes(run, demand) else block.recorder
