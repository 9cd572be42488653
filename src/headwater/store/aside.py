"""Files that are whole or not there: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .seal import seal_json


def open_anew(path: Path) -> BinaryIO:
    """A new file to write and to read. What had its name is gone; of a symbolic link the link, not what it names."""
    path.unlink(missing_ok=True)
    return path.open("x+b")


@contextmanager
def write_aside(path: Path, aside: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` when the block ends well; `aside` is where it is written, on the same disk."""
    try:
        with open_anew(aside) as file:
            yield file
            flush_to_disk(file)
        put_in_place(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def flush_to_disk(file: BinaryIO) -> None:
    """What was written is on the disk, not only on its way there."""
    file.flush()
    os.fsync(file.fileno())


def put_in_place(aside: Path, path: Path) -> None:
    """The renaming too is on the disk when this returns."""
    os.replace(aside, path)
    if os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_sealed_json(path: Path, aside: Path, content: Mapping[str, Any]) -> None:
    with write_aside(path, aside) as file:
        file.write(seal_json(content))
