"""A few workers and a line in front of them: bounded, in order, every place known, every job can be taken out.

Work stops at its next operation of torch (`cancelling`). Work that does not hear this is given up after a moment. Its
thread is told to end when it can, and a new thread takes its place in the pool.
"""

from __future__ import annotations

import ctypes
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ..errors import HeadwaterError, UsageError
from ..inputs.restoring import restores
from .cancelling import Cancelled, Interruptible, OutOfTime, Stop, Stopped

Found = TypeVar("Found")
GRACE = 2.0  # seconds that work may take to stop by itself
LOOK = 0.25  # seconds between two looks at what should have stopped


class Busy(HeadwaterError):
    """As many requests wait as may."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"busy: {waiting} requests are waiting already. Try again in a moment.")


@dataclass(eq=False)
class PoolJob:
    """One piece of work. `done` gets its result, or why there is none."""

    id: str
    work: Callable[[], Any]
    seconds: float
    done: Future[Any] = field(default_factory=Future)
    unwanted_since: float | None = None
    until: float = float("inf")
    thread: int = 0
    given_up: bool = False

    def reason(self, grace: float = 0.0) -> Stopped | None:
        """Why it should have stopped by now; None where it need not."""
        now = time.monotonic()
        if self.unwanted_since is not None and now >= self.unwanted_since + grace:
            return Cancelled()
        return OutOfTime(self.seconds) if now > self.until + grace else None

    def check(self) -> None:
        """Raises if the work is to stop."""
        why = self.reason()
        if why is not None:
            raise Stop(why)

    def run(self) -> Callable[[], None]:
        """Do the work. What is given back tells whoever waits: to be called when the worker is free again."""
        self.thread, self.until = threading.get_ident(), time.monotonic() + self.seconds
        try:
            found = self._do()
        except Stop as stop:
            return partial(self.done.set_exception, stop.why)
        except BaseException as error:  # a worker outlives whatever its work does
            return partial(self.done.set_exception, error)
        return partial(self.done.set_result, found)

    @restores
    def _do(self) -> Any:
        with Interruptible(self.check):
            self.check()
            return self.work()


class JobPool:
    """Threads that do jobs in the order in which they came."""

    def __init__(self, workers: int, waiting: int, seconds: float) -> None:
        self.most = waiting
        self.seconds = seconds
        self._line: deque[PoolJob] = deque()
        self._running: dict[str, PoolJob] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._open = True
        for _ in range(workers):
            self._hire()
        threading.Thread(target=self._watch, name="watches workers", daemon=True).start()

    def submit(self, work: Callable[[], Found], name: str | None = None) -> PoolJob:
        """Work at the end of the line; refused where the line is full, or the name is in use."""
        with self._changed:
            job = PoolJob(name or secrets.token_urlsafe(12), work, self.seconds)
            if self._find(job.id) is not None:
                raise UsageError(f"a request called {job.id!r} is under way. Give each its own name.")
            if len(self._line) >= self.most or not self._open:
                raise Busy(len(self._line))
            self._line.append(job)
            self._changed.notify()
            return job

    def place(self, name: str) -> int | None:
        """0 for what is being done, 1 for what comes next, and so on; None for what is not here (any more)."""
        with self._changed:
            if name in self._running:
                return 0
            return next((i for i, job in enumerate(self._line, 1) if job.id == name), None)

    def cancel(self, name: str) -> bool:
        """Take a job out of the line, or stop it at its next operation. Says whether there was one."""
        with self._changed:
            job = self._find(name)
            if job is None:
                return False
            job.unwanted_since = time.monotonic()
            if job in self._line:
                self._line.remove(job)
                job.done.set_exception(Cancelled())
            return True

    @property
    def running(self) -> int:
        with self._changed:
            return len(self._running)

    @property
    def waiting(self) -> int:
        with self._changed:
            return len(self._line)

    def close(self) -> None:
        """Stop everything that is under way or waits, and let the workers go."""
        with self._changed:
            self._open = False
            names = [*self._running, *(job.id for job in self._line)]
        for name in names:
            self.cancel(name)
        with self._changed:
            self._changed.notify_all()

    def _find(self, name: str) -> PoolJob | None:
        return self._running.get(name) or next((job for job in self._line if job.id == name), None)

    def _hire(self) -> None:
        threading.Thread(target=self._work, name="worker", daemon=True).start()

    def _work(self) -> None:
        with suppress(Stop):  # a stop that came a little late, for a job that was given up
            while True:
                with self._lock:  # a condition's block is in Python: a late stop in there would leave it locked
                    self._changed.wait_for(lambda: self._line or not self._open)
                    if not self._open:
                        return
                    job = self._line.popleft()
                    self._running[job.id] = job
                tell = job.run()
                with self._lock:
                    if job.given_up:
                        return
                    del self._running[job.id]
                tell()

    def _watch(self) -> None:
        """Gives up what was to stop and has not: whoever waits is told, and the worker is replaced."""
        while True:
            with self._changed:
                if not self._open and not self._running:
                    return
                for job in list(self._running.values()):
                    why = job.reason(GRACE)
                    if why is not None:
                        self._give_up(job, why)
            time.sleep(LOOK)

    def _give_up(self, job: PoolJob, why: Stopped) -> None:
        job.given_up = True
        del self._running[job.id]
        job.done.set_exception(why)
        if self._open:
            self._hire()
        # its thread takes no other job: it ends as soon as Python gets hold of it
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(job.thread), ctypes.py_object(LateStop))


class LateStop(Stop):
    """Raised in a thread from outside, which can only name a class."""

    def __init__(self) -> None:
        super().__init__(Cancelled())
