"""One job writes to a directory at a time. The lock is the kernel's: a job that is killed leaves none behind."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from ..measures.provenance import now


@contextmanager
def locked(file: Path, what: Path) -> Iterator[None]:
    """Whoever comes second is told who is there."""
    with file.open("a+", encoding="utf-8") as lock:
        if not taken(lock.fileno()):
            lock.seek(0)
            raise UsageError(f"{what} is being written by {holder(lock.read())}. Wait for it, or choose another --out.")
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now()}))
        lock.flush()
        yield


def holder(said: str) -> str:
    try:
        found = json.loads(said)
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def taken(descriptor: int) -> bool:
    """Whether the lock is ours now; it is given back when the file is closed."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            os.lseek(descriptor, 2**20, os.SEEK_SET)  # beyond what is written, which others may read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
