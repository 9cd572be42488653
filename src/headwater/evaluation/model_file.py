"""A file without a name, for what worker processes are to read: a parent that is killed leaves none behind."""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any, BinaryIO


class NamelessFile:
    """Bytes that processes can read which it is handed to when they are started.

    A file, because a process that is handed much at its start keeps the next one from starting. Without a name, because
    the system frees it when the last process that has it open ends, however it ends.
    """

    def __init__(self, content: bytes) -> None:
        self._file: BinaryIO | Any = tempfile.TemporaryFile(prefix="headwater-")  # noqa: SIM115
        try:
            self._file.write(content)
            self._file.flush()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        if os.name == "nt":  # the name of a file that goes when it is closed everywhere
            return reopen, (self._file.name,)
        return receive, (reduction.DupFd(self._file.fileno()),)

    def read(self) -> bytes:
        """All of it. The place in the file is shared by all who have it open, so that it is not read from there."""
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return bytes(content)

    def close(self) -> None:
        self._file.close()


def receive(descriptor: Any) -> NamelessFile:
    """In the process that was started."""
    return open_descriptor(descriptor.detach())


def reopen(name: str) -> NamelessFile:
    return open_descriptor(os.open(name, os.O_RDONLY | getattr(os, "O_TEMPORARY", 0) | getattr(os, "O_BINARY", 0)))


def open_descriptor(descriptor: int) -> NamelessFile:
    found = NamelessFile.__new__(NamelessFile)
    found._file = os.fdopen(descriptor, "rb")
    return found
