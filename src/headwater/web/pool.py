"""A few workers and a line in front of them: bounded, in order, every place known, every job can be taken out."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ..errors import HeadwaterError, UsageError
from .cancelling import Cancelled, Interruptible, OutOfTime, Stop

Found = TypeVar("Found")


class Busy(HeadwaterError):
    """As many requests wait as may."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"busy: {waiting} requests are waiting already. Try again in a moment.")


@dataclass(eq=False)
class Job:
    """One piece of work. `done` gets its result, or why there is none."""

    id: str
    work: Callable[[], Any]
    seconds: float
    done: Future[Any] = field(default_factory=Future)
    unwanted: threading.Event = field(default_factory=threading.Event)
    until: float = float("inf")

    def check(self) -> None:
        """Raises if the work is to stop."""
        if self.unwanted.is_set():
            raise Stop(Cancelled())
        if time.monotonic() > self.until:
            raise Stop(OutOfTime(self.seconds))

    def run(self) -> Callable[[], None]:
        """Do the work. What is given back tells whoever waits: to be called when the worker is free again."""
        self.until = time.monotonic() + self.seconds
        try:
            with Interruptible(self.check):
                self.check()
                found = self.work()
        except Stop as stop:
            return partial(self.done.set_exception, stop.why)
        except BaseException as error:  # a worker outlives whatever its work does
            return partial(self.done.set_exception, error)
        return partial(self.done.set_result, found)


class Pool:
    """Threads that do jobs in the order in which they came."""

    def __init__(self, workers: int, waiting: int, seconds: float) -> None:
        self.most, self.seconds = waiting, seconds
        self._line: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._changed = threading.Condition()
        self._open = True
        self._threads = [threading.Thread(target=self._work, name=f"worker {i}", daemon=True) for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Found], name: str | None = None) -> Job:
        """Work at the end of the line; refused where the line is full, or the name is in use."""
        with self._changed:
            job = Job(name or secrets.token_urlsafe(12), work, self.seconds)
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
            job.unwanted.set()
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
        for thread in self._threads:
            thread.join(timeout=5)

    def _find(self, name: str) -> Job | None:
        return self._running.get(name) or next((job for job in self._line if job.id == name), None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._line or not self._open)
                if not self._open:
                    return
                job = self._line.popleft()
                self._running[job.id] = job
            tell = job.run()
            with self._changed:
                del self._running[job.id]
            tell()
