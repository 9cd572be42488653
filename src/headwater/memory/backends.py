"""Where bytes go that do not fit on the device: main memory beside a graphics card, or a folder on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHUNK = 64 << 20  # bytes: pinned memory is slow to allocate, so it is taken in pieces that torch can reuse
LEFT_ALONE = 4 << 30  # bytes of main memory that stay free
MEMORY = Path("/proc/meminfo")
CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


class Disk:
    """One file for each storage, deleted when nobody needs it any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count: int = 0

    def is_full(self, size: int) -> bool:
        return False

    def mark(self) -> None:
        return

    def offload(self, row: Tensor, mark: Any) -> OnDisk:
        self.count += 1
        return OnDisk(row, self.folder / f"{self.count}.pt")


class OnDisk:
    """The bytes of one storage in a file."""

    def __init__(self, row: Tensor, path: Path) -> None:
        self.path = path
        self.device: torch.device = row.device
        torch.save(row.cpu(), path)

    def is_done(self, wait: bool) -> bool:
        return True

    def prefetch(self) -> Any:
        return True  # the file is read by `fetch`: two reads at once would only be slower

    def fetch(self, fetching: Any) -> Tensor:
        found: Tensor = torch.load(self.path, weights_only=True)
        return found.to(self.device)

    def cancel(self, fetching: Any) -> None:
        return

    def __del__(self) -> None:
        if "path" in vars(self):  # else the constructor was interrupted
            self.path.unlink(missing_ok=True)


class Host:
    """Main memory beside a graphics card. Copies run on a stream of their own while the card computes."""

    def __init__(self, device: torch.device, free_bytes: int | None = None) -> None:
        self.device = device
        self.stream: torch.cuda.Stream = torch.cuda.Stream(device)
        self.free_bytes: int = free_on_host() if free_bytes is None else free_bytes

    def is_full(self, size: int) -> bool:
        return size > self.free_bytes

    def mark(self) -> Any:
        return torch.cuda.current_stream(self.device).record_event()

    def offload(self, row: Tensor, mark: Any) -> OnHost:
        self.free_bytes -= row.nbytes
        return OnHost(self, row, mark)


class OnHost:
    """The bytes of one storage in pinned main memory.

    Source and target of a copy are both held until the copy is known to be over. So torch cannot reuse the memory of
    either while a stream still reads or writes it.
    """

    def __init__(self, backend: Host, row: Tensor, mark: torch.cuda.Event) -> None:
        self.backend = backend
        self.device: torch.device = row.device
        self.size: int = row.nbytes
        self.pieces: list[Tensor] = [
            allocate_pinned(min(CHUNK, self.size - start)) for start in range(0, self.size, CHUNK)
        ]
        backend.stream.wait_event(mark)
        with torch.cuda.stream(backend.stream):
            for piece, part in zip(self.pieces, row.split(CHUNK), strict=True):
                piece.copy_(part, non_blocking=True)
            self.copied: torch.cuda.Event | torch.Event = backend.stream.record_event()

    def is_done(self, wait: bool) -> bool:
        if wait:
            self.copied.synchronize()
        return bool(self.copied.query())

    def prefetch(self) -> tuple[Tensor, torch.cuda.Event]:
        row = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        stream = self.backend.stream
        stream.wait_stream(
            torch.cuda.current_stream(self.device)
        )  # the memory of `row` may still be in use by earlier work
        with torch.cuda.stream(stream):
            for piece, part in zip(self.pieces, row.split(CHUNK), strict=True):
                part.copy_(piece, non_blocking=True)
            return row, stream.record_event()

    def fetch(self, fetching: tuple[Tensor, torch.cuda.Event]) -> Tensor:
        row, copied = fetching
        torch.cuda.current_stream(self.device).wait_event(copied)
        return row

    def cancel(self, fetching: tuple[Tensor, torch.cuda.Event]) -> None:
        fetching[1].synchronize()  # else torch would reuse its memory while the copy writes to it

    def __del__(self) -> None:
        if "size" in vars(self):  # else it was interrupted before it began
            self.backend.free_bytes += self.size


def allocate_pinned(size: int) -> Tensor:
    """Pinned main memory, which copies to the card in the background; ordinary memory where none can be pinned."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(size, dtype=torch.uint8)


def free_on_host() -> int:
    """How many bytes of main memory can be taken so that other programs have enough left."""
    if not MEMORY.exists():
        return 1 << 62
    told = {line.split(":")[0]: line.split()[1] for line in MEMORY.read_text().splitlines()}
    free = int(told.get("MemAvailable", "0")) * 1024
    if all(file.exists() for file in CONTAINER):
        most, now = (file.read_text().strip() for file in CONTAINER)
        free = min(free, int(most) - int(now)) if most.isdigit() else free
    return max(0, free - LEFT_ALONE)
