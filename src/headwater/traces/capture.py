"""Work on a graphics card as a CUDA graph: launched kernel by kernel once, and as a whole from then on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from ..inputs.restoring import undone

Body = Callable[[], Any]


class CapturedCall:
    """Work that is captured as a CUDA graph by the first call, and replayed by every call."""

    def __init__(self, body: Body, pool: Any) -> None:
        self.body: Body = body
        self.pool = pool
        self.graph: Any = None
        self.result: Any = None

    def __call__(self) -> Any:
        if self.graph is None:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with (
                undone(partial(end_capture, graph)),
                pause_garbage_collection(),
                torch.cuda.graph(graph, pool=self.pool),
            ):
                self.result = self.body()
            self.graph = graph
        self.graph.replay()
        return self.result

    def release(self) -> None:
        """Frees the graph. It cannot be replayed from then on."""
        if self.graph is not None:
            self.graph.reset()
        self.body, self.graph, self.result = refuse_replay, None, None


def refuse_replay() -> Any:
    raise RuntimeError("the recording was given back")


def end_capture(graph: Any) -> None:
    """Ends a capture that an error or interrupt left open: the card would go on capturing."""
    if torch.cuda.is_current_stream_capturing():
        with suppress(RuntimeError):
            graph.capture_end()


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Inside, Python collects no garbage: freeing an old CUDA graph would break the capture."""
    gc.collect()
    with undone(gc.enable if gc.isenabled() else gc.disable):
        gc.disable()
        yield
