"""Errors of the disk as messages: it is full, it cannot be written, or something else is where a file should go."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import JobStopped, UsageError

RESERVE = 64 * 2**20  # bytes that are left free on the disk
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def need_room(path: Path, size: int) -> None:
    """Stops before the disk is full, while there is still room to say so."""
    free = shutil.disk_usage(path).free
    if free < size + RESERVE:
        raise OSError(errno.ENOSPC, f"{free // 2**20} MiB are left on the disk")


@contextmanager
def plain_failures(path: Path) -> Iterator[None]:
    """A disk that is full, or cannot be written to, ends the job and says how to go on."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        what, then = ("the disk is full", "make room") if full else ("it cannot be written", "put that right")
        where = error.filename2 or error.filename or path
        raise JobStopped(
            f"{where}: {what} ({error.strerror or error}). Every shard that is done is kept; {then}, then run the same "
            "command again, and it goes on from there."
        ) from error


@contextmanager
def plain_refusals(path: Path) -> Iterator[None]:
    """The same before anything was done: a place that cannot be written is the wrong one, a full disk only full."""
    try:
        with plain_failures(path):
            yield
    except JobStopped as stop:
        error = stop.__cause__
        if not isinstance(error, OSError) or error.errno in FULL:
            raise
        raise UsageError(f"{error.filename or path} cannot be written: {error.strerror or error}.") from error


def need_directory(path: Path) -> None:
    """Refuses what is no directory of the run itself: through a link, files of others would be reached."""
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, and a run writes to its own directory alone. Move the link away.")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, where a run has a directory. Move it away, or choose another --out.")


def need_no_directory(path: Path) -> None:
    """Refuses a directory where a file goes; a link to one is replaced, as any file is."""
    if path.is_dir() and not path.is_symlink():
        raise UsageError(
            f"{path} is a directory, where a file of the run goes. Move it away, or choose another --out; then run the "
            "same command again."
        )
