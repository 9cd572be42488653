"""One job writes to a directory at a time. The lock is the kernel's: a job that is killed leaves none behind."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from ..evaluation.provenance import now
from .disk import plain_refusals

SAID = 4096  # bytes of a lock file that are read


@contextmanager
def hold_lock(file: Path, what: Path) -> Iterator[None]:
    """Whoever comes second is told who is there."""
    with plain_refusals(file):
        descriptor = open_lock_file(file)
    try:
        if not try_lock(descriptor, what):
            said = os.pread(descriptor, SAID, 0) if hasattr(os, "pread") else b""
            raise UsageError(f"{what} is being written by {holder(said)}. Wait for it, or choose another --out.")
        with plain_refusals(file):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, describe_owner())
        yield
    finally:
        os.close(descriptor)


def describe_owner() -> bytes:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now()}).encode()


def open_lock_file(file: Path) -> int:
    """A link is refused: what it names would be written over. Windows cannot refuse it while it opens the file."""
    refusal = UsageError(f"{file} is a symbolic link, where the lock of a run goes. Move the link away.")
    if not hasattr(os, "O_NOFOLLOW") and file.is_symlink():
        raise refusal
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refusal from error
        raise


def holder(said: bytes) -> str:
    try:
        found = json.loads(said)
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def try_lock(descriptor: int, what: Path) -> bool:
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
    except OSError as error:
        raise UsageError(
            f"{what} lies on a file system that cannot lock files ({error.strerror or error}), so that two jobs could "
            "write there at once. Choose an --out on a local disk, or mount it with locks."
        ) from error
    return True
