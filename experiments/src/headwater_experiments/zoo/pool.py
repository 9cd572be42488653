"""A process for every entry, with a limit on its time and on its memory: one that hangs or grows stops nothing else."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .entries import Entry
from .results import Finding, unfinished_finding

PRELOADED = ["transformers.modeling_utils", "transformers.generation.utils", "headwater_experiments.zoo.judging"]


@dataclass
class Worker:
    """One entry under way. `stage` says how far it has come, so that what stops it is blamed on the right part."""

    entry: Entry
    process: Any
    pipe: Connection
    began: float
    stage: str = "building"

    def receive(self) -> Finding | None:
        """The finding, if it has come; what the process says on its way moves the stage."""
        while self.pipe.poll():
            try:
                said = self.pipe.recv()
            except (EOFError, OSError):
                return self.end_with(f"its process ended while {self.stage}, exit code {self.code()}")
            if isinstance(said, Finding):
                return said
            self.stage = said
        return None

    def code(self) -> int | None:
        self.process.join(5)
        code: int | None = self.process.exitcode
        return code

    def late(self, limit: float) -> bool:
        return time.monotonic() - self.began > limit

    def end_with(self, why: str) -> Finding:
        verdict = "not built" if self.stage == "building" else "open"
        return unfinished_finding(self.entry, verdict, why, time.monotonic() - self.began)

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()


Target = Callable[[Entry, Connection, float], None]


def findings(
    entries: Sequence[Entry], jobs: int, timeout: float, memory: float, target: Target | None = None
) -> Iterator[Finding]:
    """The finding of every entry, as it comes. `timeout` in seconds, `memory` in GiB, both for one entry."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    waiting, running = list(reversed(entries)), list[Worker]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start_worker(context, target or work, waiting.pop(), memory))
            wait([worker.pipe for worker in running], timeout=0.2)
            for worker in list(running):
                found = worker.receive()
                if found is None and worker.late(timeout):
                    found = worker.end_with(f"stopped after {timeout:.0f} s while {worker.stage}")
                if found is not None:
                    running.remove(worker)
                    worker.stop()
                    yield found
    finally:
        for worker in running:
            worker.stop()


def start_worker(context: Any, target: Target, entry: Entry, memory: float) -> Worker:
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(entry, theirs, memory), daemon=True)
    process.start()
    theirs.close()
    return Worker(entry, process, mine, time.monotonic())


def work(entry: Entry, pipe: Connection, memory: float) -> None:
    """In the child: quiet, on one thread, within its memory."""
    silence_output()
    limit_memory(memory)
    import torch

    torch.set_num_threads(1)
    from .judging import judge

    with note_memory_error(entry, pipe, memory):
        pipe.send(judge(entry, pipe.send))
    pipe.close()


@contextmanager
def note_memory_error(entry: Entry, pipe: Connection, memory: float) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        pipe.send(unfinished_finding(entry, "not built", f"needs more than {memory:g} GiB of memory"))


def silence_output() -> None:
    """What models print and warn of while they are built belongs to nobody's output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    import warnings

    warnings.simplefilter("ignore")


def limit_memory(gibibytes: float) -> None:
    """A bound on the address space, above what the process holds already; where the system knows such a bound."""
    if sys.platform == "win32":
        return
    import resource

    try:
        held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        held = 8 << 30
    bound = held + int(gibibytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
