"""Tensors that autograd saves for the backward pass, moved off the device when they take more than a limit of bytes.

The tensor that was saved first moves first, because the backward pass needs it last. When the backward pass takes a
tensor, copying starts for those that were saved just before it, so that the copies run while the device computes.
Several tensors that share one storage are held, and moved, once.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..errors import HiddenOperation

AHEAD = 512 << 20  # bytes that are copied back ahead of their use
UNDERWAY = 1 << 30  # bytes that may be leaving at a time; they are on the device until their copy is made


class Transfer(Protocol):
    """The copy of one storage in a backend, from the moment that copying starts."""

    def is_done(self, wait: bool) -> bool:
        """Whether the copy is made, so that the device can free the bytes. `wait` returns only when it is."""

    def prefetch(self) -> Any:
        """Starts copying to the device. `fetch` or `cancel` takes what this returns."""

    def fetch(self, fetching: Any) -> Tensor:
        """The bytes on the device, once they are copied."""

    def cancel(self, fetching: Any) -> None:
        """Gives up a prefetch that nobody needs any more."""


class Backend(Protocol):
    """Where bytes go that do not fit on the device: main memory or a disk."""

    def is_full(self, size: int) -> bool:
        """Whether `size` more bytes do not fit."""

    def mark(self) -> Any:
        """The point in the device's work at which a tensor is computed. Its copy must not start before."""

    def offload(self, row: Tensor, mark: Any) -> Transfer:
        """Starts copying the bytes of a storage that was computed at `mark`."""


class OffloadBuffer:
    """Keeps up to `limit` bytes of saved tensors on the device, and the rest in `backend`.

    Bytes whose copy is not finished come on top of the limit. With `synchronous`, each copy is waited for and nothing
    is prefetched: slower, but at any time only what is needed is on the device.
    """

    def __init__(self, limit: int, backend: Backend, synchronous: bool = False) -> None:
        self.limit = limit
        self.backend = backend
        self.synchronous = synchronous
        self.moved: int = 0  # how many storages went to the backend
        self.bytes_on_device: int = 0
        self._entries: deque[weakref.ref[Entry]] = deque()  # those on the device, oldest first
        self._leaving: deque[Entry] = deque()
        self._known: dict[Any, weakref.ref[Entry]] = {}
        self._saved: list[weakref.ref[Entry]] = []

    def put(self, tensor: Tensor) -> Handle:
        """Takes a tensor. The handle gives it back."""
        tensor = tensor.detach()
        whole = tensor.untyped_storage().nbytes() <= 2 * tensor.nbytes
        memory = StorageWeakRef(tensor.untyped_storage())
        view = () if whole else (tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (memory.cdata, tensor._version, view)
        entry = self._known[key]() if key in self._known else None
        if entry is None or entry.memory.expired():
            entry = self._new(tensor if whole else tensor.clone(), memory)
            self._known[key] = weakref.ref(entry)
        offset, stride = (int(tensor.storage_offset()), tensor.stride()) if whole else (0, entry.stride)
        self._saved.append(weakref.ref(entry))
        return Handle(self, entry, len(self._saved) - 1, tensor.dtype, offset, tensor.shape, stride)

    def _new(self, tensor: Tensor, memory: StorageWeakRef) -> Entry:
        entry = Entry(self, tensor, memory)
        self._entries.append(weakref.ref(entry))
        self.bytes_on_device += entry.size
        while self.bytes_on_device > self.limit and self._entries:
            oldest = self._entries.popleft()()
            if oldest is not None and not self.backend.is_full(oldest.size):
                oldest.leave()
                self._leaving.append(oldest)
                self.moved += 1
        self.release_finished(0 if self.synchronous else UNDERWAY)
        return entry

    def release_finished(self, allowed: int | None = None) -> None:
        """Frees what the backend has a copy of. Where more than `allowed` bytes are leaving, waits for the oldest."""
        size = sum(entry.size for entry in self._leaving)
        while self._leaving and self._leaving[0].try_release(wait=allowed is not None and size > allowed):
            size -= self._leaving.popleft().size

    def prefetch(self, before: int) -> None:
        """Starts copying back what was saved just before handle number `before`: it is needed next."""
        if self.synchronous:
            return
        ahead = 0
        for number in range(before - 1, -1, -1):
            entry = self._saved[number]()
            if entry is not None:
                entry.prefetch()
                ahead += entry.size
            if ahead >= AHEAD:
                return


class Entry:
    """One storage: on the device, or in the backend."""

    def __init__(self, buffer: OffloadBuffer, tensor: Tensor, memory: StorageWeakRef) -> None:
        self.buffer = buffer
        self.memory = memory
        self.mark: Any = buffer.backend.mark()
        self.tensor: Tensor | None = tensor
        self.version: int = tensor._version
        self.stride: tuple[int, ...] = tensor.stride()
        self.transfer: Transfer | None = None
        self.fetching: Any = None
        self.size: int = tensor.untyped_storage().nbytes()

    def leave(self) -> None:
        self.check()
        assert self.tensor is not None
        self.transfer = self.buffer.backend.offload(memory_as_bytes(self.tensor), self.mark)
        self.buffer.bytes_on_device -= self.size

    def try_release(self, wait: bool) -> bool:
        """Frees the storage on the device if its copy is made."""
        assert self.transfer is not None
        if not self.transfer.is_done(wait):
            return False
        self.check()
        self.tensor = None
        return True

    def check(self) -> None:
        """Autograd notices when a saved tensor is written over, but not for tensors that hooks took from it."""
        if self.tensor is not None and self.tensor._version != self.version:
            raise HiddenOperation("the model writes over a tensor that the backward pass still needs.")

    def prefetch(self) -> None:
        if self.tensor is None and self.fetching is None and self.transfer is not None:
            self.fetching = self.transfer.prefetch()

    def row(self) -> Tensor:
        if self.tensor is not None:
            self.check()
            return memory_as_bytes(self.tensor)
        self.prefetch()
        assert self.transfer is not None
        fetching, self.fetching = self.fetching, None
        return self.transfer.fetch(fetching)

    def __del__(self) -> None:
        if "size" not in vars(self):
            return  # it was interrupted before it began
        if self.transfer is None:
            self.buffer.bytes_on_device -= self.size
        elif self.fetching is not None:
            self.transfer.cancel(self.fetching)


@dataclass
class Handle:
    """One saved tensor: its storage, and which part of that it is."""

    buffer: OffloadBuffer
    entry: Entry
    number: int
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]

    def tensor(self) -> Tensor:
        self.buffer.release_finished()
        row = self.entry.row()
        self.buffer.prefetch(self.number)
        made = torch.empty(0, dtype=self.dtype, device=row.device)
        return made.set_(row.untyped_storage(), self.offset, self.shape, self.stride)


def memory_as_bytes(tensor: Tensor) -> Tensor:
    """The storage of a tensor as a row of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
