"""How a run saves memory: where saved tensors are kept, how many of them on the device, which blocks are recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..engine.forward import Run
from ..errors import UnknownName
from ..rules import Scope
from .recompute import Count, Recomputing, choose_blocks
from .saved_tensors import KEEP, SavedTensorOffload


@dataclass(frozen=True)
class MemoryPolicy:
    """Where an explanation keeps the tensors that its backward pass needs, and which blocks it recomputes instead.

    `keep` and `recompute` are the arguments of `explain`. Up to `on_device` bytes stay on the device.
    """

    keep: str = "device"
    recompute: Count = None
    on_device: int = 0
    synchronous: bool = False  # waits for every copy: slow, but it shows the least memory that is needed

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise UnknownName("place to keep", self.keep, KEEP)

    @contextmanager
    def open(self, model: nn.Module) -> Iterator[Callable[[Run], Run]]:
        """Gives a function that makes a run follow this policy. The run must end inside the block."""
        with SavedTensorOffload(self.keep, model, self.on_device, self.synchronous) as keeping:
            if keeping.buffer is None and not self.recompute:
                yield lambda run: run
                return
            yield lambda run: replace(run, watch=self._watch(run, keeping))

    def _watch(self, run: Run, keeping: SavedTensorOffload) -> Callable[[Scope], AbstractContextManager[Any]]:
        beside = [] if run.batch.beside is None else [run.batch.beside.module]
        blocks = choose_blocks(self.recompute, run.model, [*run.batch.places, *beside])
        before = run.watch

        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            with ExitStack() as stack:
                stack.enter_context(before(scope))
                stack.enter_context(keeping.watch(scope))
                if blocks:
                    stack.enter_context(Recomputing(run.model, blocks).watch(scope))
                yield

        return watch


UNLIMITED = MemoryPolicy()
