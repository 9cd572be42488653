"""Chunks of an evaluation computed by several processes, each with its own copy of the model on the device.

The parent hands out chunks and hears the numbers back; it alone writes, so that an evaluation with workers can be
interrupted and taken up as any other.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from copy import deepcopy
from typing import Protocol

import torch

from ..engine.model import where_it_is
from ..errors import ModelError
from .model_file import NamelessFile
from .perturbation import SampleSource
from .results import Samples


class ChunkJob(Protocol):
    """What a worker is given: where its model is, and how it computes some samples."""

    @property
    def source(self) -> SampleSource: ...

    def chunk(self, numbers: Sequence[int], tick: Callable[[float], None]) -> Samples: ...


_job: ChunkJob | None = None  # a worker's own, put there when it starts


@contextmanager
def working(job: ChunkJob, workers: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes that know the job; they are gone when the block ends, however it ends."""
    device, _ = where_it_is(job.source.model)
    threads = max(1, torch.get_num_threads() // workers)
    with closing(NamelessFile(pickle.dumps(_portable(job), protocol=pickle.HIGHEST_PROTOCOL))) as file:
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),  # a forked process cannot use a GPU, nor torch's threads
            initializer=_begin,
            initargs=(file, str(device), threads),
        )
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def compute_chunks(pool: ProcessPoolExecutor, chunks: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, Samples]]:
    """The chunks by number, in the order in which they are done."""
    waiting: dict[Future[Samples], int] = {pool.submit(_chunk, numbers): n for n, numbers in chunks.items()}
    try:
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise ModelError(
            "a worker process ended in mid-work: it was killed, perhaps for want of memory (try fewer workers), or it "
            "could not start (a script that uses workers needs `if __name__ == '__main__':`). With out= what is done "
            "is kept, and the same call goes on from there."
        ) from error


def _portable(job: ChunkJob) -> ChunkJob:
    """The job with its model on the CPU, where tensors can be handed to another process."""
    if where_it_is(job.source.model)[0].type == "cpu":
        return job
    job = deepcopy(job)
    job.source.model.cpu()
    return job


def _begin(file: NamelessFile, device: str, threads: int) -> None:
    global _job
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    job: ChunkJob = pickle.loads(file.read())
    job.source.model.to(device)
    _job = job


def end_with_parent() -> None:
    """A parent that is killed cannot tell its workers; they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _chunk(numbers: Sequence[int]) -> Samples:
    assert _job is not None
    return _job.chunk(numbers, lambda more: None)
