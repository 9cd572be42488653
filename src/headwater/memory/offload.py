"""A shelf of so many bytes for what a backward pass will need: what does not fit waits elsewhere, the oldest first.

The oldest is needed last. On the way back, taking one from the shelf sends for those before it, so that they travel
while there is something to compute. What several nodes save of one memory stands there, and travels, once.
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

AHEAD = 512 << 20  # bytes: what was put here so little before what is taken is sent for
UNDERWAY = 1 << 30  # bytes on their way out at a time; they still take room


class Transfer(Protocol):
    """A row of bytes that is elsewhere, or on its way there."""

    def left(self, wait: bool) -> bool:
        """Whether the bytes on the shelf are no longer needed; with `wait`, as soon as that is so."""

    def send_for(self) -> Any:
        """Begins the way back; its result says how it goes."""

    def back(self, coming: Any) -> Tensor:
        """The same bytes, where they were before."""

    def forget(self, coming: Any) -> None:
        """What was sent for is not needed."""


class Backend(Protocol):
    """A place for what does not fit on the shelf."""

    def full(self, size: int) -> bool:
        """Whether so many bytes more have no room there."""

    def mark(self) -> Any:
        """This moment: what is put on the shelf now is, or will be, computed by then."""

    def take(self, row: Tensor, mark: Any) -> Transfer:
        """Begins the way out of a row of bytes that was put on the shelf at that moment."""


class OffloadBuffer:
    """Room for `room` bytes (copies on their way out come on top), and a place for the rest.

    A `synchronous` one has nothing on its way while something else goes on: each journey is waited for.
    """

    def __init__(self, room: int, elsewhere: Backend, synchronous: bool = False) -> None:
        self.room, self.elsewhere, self.synchronous = room, elsewhere, synchronous
        self.moved = 0  # how many went elsewhere
        self.lying = 0  # bytes
        self._things: deque[weakref.ref[Entry]] = deque()  # those that lie here, from the oldest to the youngest
        self._underway: deque[Entry] = deque()
        self._known: dict[Any, weakref.ref[Entry]] = {}
        self._tickets: list[weakref.ref[Entry]] = []

    def put(self, tensor: Tensor) -> Handle:
        """What to give back for the same tensor."""
        tensor = tensor.detach()
        whole = tensor.untyped_storage().nbytes() <= 2 * tensor.nbytes
        memory = StorageWeakRef(tensor.untyped_storage())
        view = () if whole else (tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (memory.cdata, tensor._version, view)
        thing = self._known[key]() if key in self._known else None
        if thing is None or thing.memory.expired():
            thing = self._new(tensor if whole else tensor.clone(), memory)
            self._known[key] = weakref.ref(thing)
        offset, stride = (int(tensor.storage_offset()), tensor.stride()) if whole else (0, thing.stride)
        self._tickets.append(weakref.ref(thing))
        return Handle(self, thing, len(self._tickets) - 1, tensor.dtype, offset, tensor.shape, stride)

    def _new(self, tensor: Tensor, memory: StorageWeakRef) -> Entry:
        thing = Entry(self, tensor, memory)
        self._things.append(weakref.ref(thing))
        self.lying += thing.size
        while self.lying > self.room and self._things:
            oldest = self._things.popleft()()
            if oldest is not None and not self.elsewhere.full(oldest.size):
                oldest.leave()
                self._underway.append(oldest)
                self.moved += 1
        self.tidy(0 if self.synchronous else UNDERWAY)
        return thing

    def tidy(self, allowed: int | None = None) -> None:
        """Lets go of what has left. Where more than `allowed` bytes are under way, waits for the first of them."""
        size = sum(thing.size for thing in self._underway)
        while self._underway and self._underway[0].try_release(wait=allowed is not None and size > allowed):
            size -= self._underway.popleft().size

    def send_for(self, before: int) -> None:
        """What was put here before ticket number `before` will be wanted next."""
        if self.synchronous:
            return
        ahead = 0
        for number in range(before - 1, -1, -1):
            thing = self._tickets[number]()
            if thing is not None:
                thing.send_for()
                ahead += thing.size
            if ahead >= AHEAD:
                return


class Entry:
    """One memory that lies on the shelf, or is elsewhere."""

    def __init__(self, buffer: OffloadBuffer, tensor: Tensor, memory: StorageWeakRef) -> None:
        self.buffer, self.memory, self.mark = buffer, memory, buffer.elsewhere.mark()
        self.tensor: Tensor | None = tensor
        self.version, self.stride = tensor._version, tensor.stride()
        self.away: Transfer | None = None
        self.coming: Any = None
        self.size = tensor.untyped_storage().nbytes()

    def leave(self) -> None:
        self.check()
        assert self.tensor is not None
        self.away = self.buffer.elsewhere.take(memory_as_bytes(self.tensor), self.mark)
        self.buffer.lying -= self.size

    def try_release(self, wait: bool) -> bool:
        """Lets go of the memory once the copy is made."""
        assert self.away is not None
        if not self.away.left(wait):
            return False
        self.check()
        self.tensor = None
        return True

    def check(self) -> None:
        """autograd itself looks after what is written over; of what goes through hooks it knows nothing."""
        if self.tensor is not None and self.tensor._version != self.version:
            raise HiddenOperation("the model writes over a tensor that the backward pass still needs.")

    def send_for(self) -> None:
        if self.tensor is None and self.coming is None and self.away is not None:
            self.coming = self.away.send_for()

    def row(self) -> Tensor:
        if self.tensor is not None:
            self.check()
            return memory_as_bytes(self.tensor)
        self.send_for()
        assert self.away is not None
        coming, self.coming = self.coming, None
        return self.away.back(coming)

    def __del__(self) -> None:
        if "size" not in vars(self):
            return  # it was interrupted before it began
        if self.away is None:
            self.buffer.lying -= self.size
        elif self.coming is not None:
            self.away.forget(self.coming)


@dataclass
class Handle:
    """How a saved tensor lies in its memory."""

    buffer: OffloadBuffer
    thing: Entry
    number: int
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]

    def tensor(self) -> Tensor:
        self.buffer.tidy()
        row = self.thing.row()
        self.buffer.send_for(self.number)
        made = torch.empty(0, dtype=self.dtype, device=row.device)
        return made.set_(row.untyped_storage(), self.offset, self.shape, self.stride)


def memory_as_bytes(tensor: Tensor) -> Tensor:
    """A tensor's memory as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
