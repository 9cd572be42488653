"""Places for what has no room on a device: main memory beside a graphics card, and a folder on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHUNK = 64 << 20  # bytes: memory that a card can reach is slow to get, so it comes in pieces that can be used again
LEFT_ALONE = 4 << 30  # bytes of main memory that stay free
MEMORY = Path("/proc/meminfo")
CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


class Disk:
    """Files, one for each row of bytes, which go when nobody needs them any more."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def full(self, size: int) -> bool:
        return False

    def mark(self) -> None:
        return

    def take(self, row: Tensor, mark: Any) -> OnDisk:
        self.count += 1
        return OnDisk(row, self.folder / f"{self.count}.pt")


class OnDisk:
    """A row of bytes in a file."""

    def __init__(self, row: Tensor, path: Path) -> None:
        self.path, self.device = path, row.device
        torch.save(row.cpu(), path)

    def left(self, wait: bool) -> bool:
        return True

    def send_for(self) -> Any:
        return True  # read when it is wanted: two at once would only be slower

    def back(self, coming: Any) -> Tensor:
        found: Tensor = torch.load(self.path, weights_only=True)
        return found.to(self.device)

    def forget(self, coming: Any) -> None:
        return

    def __del__(self) -> None:
        if "path" in vars(self):  # else it was interrupted before it began
            self.path.unlink(missing_ok=True)


class Host:
    """Main memory beside a graphics card. Copies go on a stream of their own, so that the card goes on computing."""

    def __init__(self, device: torch.device, room: int | None = None) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self.room = free_on_host() if room is None else room

    def full(self, size: int) -> bool:
        return size > self.room

    def mark(self) -> Any:
        return torch.cuda.current_stream(self.device).record_event()

    def take(self, row: Tensor, mark: Any) -> OnHost:
        self.room -= row.nbytes
        return OnHost(self, row, mark)


class OnHost:
    """A row of bytes in main memory that the card can reach.

    Both rows are held until a copy is known to be over, so no stream has to be told of the other's memory.
    """

    def __init__(self, place: Host, row: Tensor, mark: torch.cuda.Event) -> None:
        self.place, self.device, self.size = place, row.device, row.nbytes
        self.pieces = [reachable(min(CHUNK, self.size - start)) for start in range(0, self.size, CHUNK)]
        place.stream.wait_event(mark)
        with torch.cuda.stream(place.stream):
            for piece, part in zip(self.pieces, row.split(CHUNK), strict=True):
                piece.copy_(part, non_blocking=True)
            self.copied = place.stream.record_event()

    def left(self, wait: bool) -> bool:
        if wait:
            self.copied.synchronize()
        return bool(self.copied.query())

    def send_for(self) -> tuple[Tensor, torch.cuda.Event]:
        row = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        stream = self.place.stream
        stream.wait_stream(torch.cuda.current_stream(self.device))  # what used this memory before is done with it
        with torch.cuda.stream(stream):
            for piece, part in zip(self.pieces, row.split(CHUNK), strict=True):
                part.copy_(piece, non_blocking=True)
            return row, stream.record_event()

    def back(self, coming: tuple[Tensor, torch.cuda.Event]) -> Tensor:
        row, copied = coming
        torch.cuda.current_stream(self.device).wait_event(copied)
        return row

    def forget(self, coming: tuple[Tensor, torch.cuda.Event]) -> None:
        coming[1].synchronize()  # else its memory would be used again while it is being written

    def __del__(self) -> None:
        if "size" in vars(self):  # else it was interrupted before it began
            self.place.room += self.size


def reachable(size: int) -> Tensor:
    """Bytes of main memory that stay where they are; where there are no such, any, and the copy takes its time."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(size, dtype=torch.uint8)


def free_on_host() -> int:
    """Bytes of main memory that can be taken without leaving others too little."""
    if not MEMORY.exists():
        return 1 << 62
    told = {line.split(":")[0]: line.split()[1] for line in MEMORY.read_text().splitlines()}
    free = int(told.get("MemAvailable", "0")) * 1024
    if all(file.exists() for file in CONTAINER):
        most, now = (file.read_text().strip() for file in CONTAINER)
        free = min(free, int(most) - int(now)) if most.isdigit() else free
    return max(0, free - LEFT_ALONE)
