"""The local engine: worker processes on this machine.

A worker that dies is replaced, and its chunk is done again. Where workers die again and again, the batch is run row
by row. The row at which they die is left out, and reported as a bad row.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from ..errors import JobStopped
from ..evaluation.model_file import NamelessFile
from .disk import plain_failures
from .explaining import Finished
from .failures import STARTS, ChunkTask, Place
from .machines import device_kind, workers_for
from .payload import Payload
from .planning import Chunk
from .worker import work

PATIENCE = 5.0  # seconds for a worker to end when it is told to

Tick = Callable[[int, int], None]  # rows and tokens more that are done


class Worker:
    """A process, the pipe to it, and what it was given."""

    pipe: Connection
    rows: int  # of its chunk, done so far
    tokens: int

    def __init__(self, payload: NamelessFile, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU, nor torch's threads
        self.device = device
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=work, args=(theirs, payload, device), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False
        self.task: ChunkTask | None = None
        self.failure: str | None = None  # in its own words
        self.place: Place | None = None
        self.rows = self.tokens = 0

    def give(self, task: ChunkTask) -> None:
        self.task, self.place, self.rows, self.tokens = task, None, 0, 0
        self.pipe.send((task.chunk, task.care))

    def end(self) -> str:
        """At once if it is at work; one that waits for more ends by itself. Says how it ended."""
        self.pipe.close()
        self.process.join(PATIENCE if self.task is None or not self.process.is_alive() else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        return self.failure or (signal.Signals(-code).name if code < 0 else f"exit code {code}")


class Tasks:
    """What is still to be done: chunks that came back first, then the next that nobody has had."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._coming, self._new = iter(chunks), len(chunks)
        self._back: deque[ChunkTask] = deque()

    @property
    def left(self) -> int:
        return len(self._back) + self._new

    def take(self) -> ChunkTask:
        if self._back:
            return self._back.popleft()
        self._new -= 1
        return ChunkTask(next(self._coming))

    def give_back(self, task: ChunkTask) -> None:
        self._back.appendleft(task)


class LocalEngine:
    """Processes of this machine."""

    name = "local"

    def device(self, asked: str | None) -> str:
        return device_kind(asked)

    def staff(self, payload: Payload) -> int:
        return workers_for(payload.model, payload.settings.device, payload.settings.threads)

    def results(self, payload: Payload, workers: int, chunks: Sequence[Chunk], tick: Tick) -> Iterator[Finished]:
        with Staff(payload, workers, tick) as staff:
            yield from staff.results(chunks)


class Staff:
    """So many workers; they are gone when the block ends, however it ends."""

    def __init__(self, payload: Payload, workers: int, tick: Tick) -> None:
        self.workers = workers
        self.tick = tick
        with plain_failures(Path(tempfile.gettempdir())):
            self._payload = NamelessFile(payload.pack())
        self._devices = list_devices(payload.settings.device)
        self._staff: list[Worker] = []
        self._failed_starts = 0

    def __enter__(self) -> Staff:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._staff:
            worker.pipe.close()  # to all first: they end side by side
        for worker in self._staff:
            worker.end()
        self._staff.clear()
        self._payload.close()

    def results(self, chunks: Sequence[Chunk]) -> Iterator[Finished]:
        """As they are done. A chunk that must be done again goes first, since its shard waits for it."""
        tasks = Tasks(chunks)
        while tasks.left or self._busy:
            while len(self._staff) < min(self.workers, tasks.left + self._busy):
                self._hire()
            for worker in [worker for worker in self._staff if worker.ready and worker.task is None]:
                if tasks.left:
                    self._give(worker, tasks.take(), tasks)
            yield from self._receive(tasks)

    @property
    def _busy(self) -> int:
        return sum(worker.task is not None for worker in self._staff)

    def _hire(self) -> None:
        used = Counter(worker.device for worker in self._staff)
        self._staff.append(Worker(self._payload, min(self._devices, key=lambda device: used[device])))

    def _give(self, worker: Worker, task: ChunkTask, tasks: Tasks) -> None:
        try:
            worker.give(task)
        except OSError:
            self._forget_worker(worker, tasks)

    def _receive(self, tasks: Tasks) -> Iterator[Finished]:
        """Whatever the workers said next."""
        by_pipe: dict[Any, Worker] = {worker.pipe: worker for worker in self._staff}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._forget_worker(worker, tasks)
                continue
            finished = self._handle_message(worker, *message)
            if finished is not None:
                yield finished

    def _handle_message(self, worker: Worker, what: str, *said: Any) -> Finished | None:
        if what == "ready":
            worker.ready = True
        elif what == "refused":
            raise said[0]
        elif what == "failed":
            (worker.failure,) = said
        elif what == "at":
            worker.place, rows, tokens = said
            worker.rows, worker.tokens = worker.rows + rows, worker.tokens + tokens
            self.tick(rows, tokens)
            self._failed_starts = 0
        elif what == "done":
            worker.task = None
            finished: Finished = said[0]
            return finished
        else:
            raise JobStopped(f"a worker says {what!r}, which nobody here knows.")
        return None

    def _forget_worker(self, worker: Worker, tasks: Tasks) -> None:
        """Its chunk is done again, by another one."""
        self._staff.remove(worker)
        how = worker.end()
        self.tick(-worker.rows, -worker.tokens)
        if worker.task is not None and worker.place is not None:
            worker.task.note_death(worker.place, how)
        else:
            self._failed_starts += 1
        if worker.task is not None:
            tasks.give_back(worker.task)
            if worker.task.should_give_up:
                raise JobStopped(worker.task.describe_failure(how))
        if self._failed_starts >= STARTS or (not worker.ready and worker.process.exitcode == 1):
            raise JobStopped(
                f"worker processes end before they get to work ({how}): perhaps there is too little memory for so many "
                "(try fewer workers), or a script that calls hw.run lacks `if __name__ == '__main__':`. What is done "
                "is kept; the same call goes on from there."
            )


def list_devices(device: str) -> list[str]:
    """Where workers compute: on the GPUs in turn, if there are several."""
    if device != "cuda":
        return [device]
    import torch

    return [f"cuda:{i}" for i in range(max(1, torch.cuda.device_count()))]
