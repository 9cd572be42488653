"""How many bytes of tensors a computation holds at most, counted where torch allocates them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ..errors import UsageError
from ..inputs.restoring import hook_saved_tensors, undone
from .saved_tensors import SMALL, memories, memory_of


def peak_of(job: Callable[[], Any], device: torch.device) -> int:
    """The most that was held above what was held before, in bytes."""
    gc.collect()  # what goes while it is counted would be taken for its own
    return peak_on_card(job, device) if device.type == "cuda" else on_processor(job)


def peak_on_card(job: Callable[[], Any], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    job()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device)) - before


def on_processor(job: Callable[[], Any]) -> int:
    """Follows every allocation in the order that torch's profiler recorded them."""
    autograd: Any = torch.autograd
    asked = autograd.ProfilerConfig(
        autograd.ProfilerState.CPU, False, True, False, False, False, torch._C._profiler._ExperimentalConfig()
    )
    if autograd._profiler_enabled():
        raise UsageError("memory cannot be estimated while a profiler runs: end it first.")
    with undone(profiler_off):
        autograd._enable_profiler_legacy(asked)
        job()
        noted = autograd._disable_profiler_legacy()
    held = most = 0
    for thread in noted:
        for record in thread:
            if record.kind() == "memory_alloc":
                held += record.cpu_memory_usage()
                most = max(most, held)
    return most


def profiler_off() -> None:
    autograd: Any = torch.autograd
    if autograd._profiler_enabled():
        autograd._disable_profiler_legacy()


class Tally:
    """Bytes that wait for the backward pass; `tally.watch` belongs around the forward pass of a run."""

    def __init__(self, model: nn.Module) -> None:
        self.kept: int = 0
        self._weights = memories(model)
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    @contextmanager
    def watch(self, _: Any) -> Iterator[None]:
        with hook_saved_tensors(self._count, lambda tensor: tensor):
            yield
        self.kept = sum(size for memory, size in self._storages.values() if not memory.expired())

    def _count(self, tensor: Tensor) -> Tensor:
        place = memory_of(tensor)
        if place and place not in self._weights and tensor.nbytes >= SMALL:
            memory = StorageWeakRef(tensor.untyped_storage())
            self._storages.setdefault(memory.cdata, (memory, tensor.untyped_storage().nbytes()))
        return tensor
