"""A checksum of a file in the file itself, so that it proves itself wherever it lies.

A file is written with `BLANK` in the place of its seal, which stands near its end: in the footer of a parquet file, in
the last field of a JSON object. The seal is the SHA-256 of the whole file with the blank in that place. Any bit that
changes later, also one of the seal, shows.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

SEAL = "seal"
BLANK = "0" * 64
MARK = re.compile(rb'"seal": "([0-9a-f]{64})"')  # quotes within a JSON string are escaped: no text can look like it
TAIL = 2**16  # bytes at the end of a JSON file that are searched
PARQUET = b"PAR1"
BLOCK = 2**20


def seal(file: BinaryIO) -> None:
    """Writes the seal over the blank; the file is open for reading and writing, and otherwise complete."""
    found = find_seal(file)
    if found is None:
        raise ValueError("there is no place for a seal")
    made = digest(file, found[0])
    file.seek(found[0])
    file.write(made)


def check_seal(file: BinaryIO, needed: bool) -> None:
    """Raises OSError if the file is not as it was sealed, or, where a seal is `needed`, has none."""
    found = find_seal(file)
    if found is None and needed:
        raise OSError("it has no checksum")
    if found is not None and digest(file, found[0]) != found[1]:
        raise OSError("its checksum is not that of its content")
    file.seek(0)


def check_file_seal(path: Path, needed: bool) -> None:
    with path.open("rb") as file:
        check_seal(file, needed)


def seal_json(content: Mapping[str, Any]) -> bytes:
    """A JSON object with its seal as the last field."""
    file = io.BytesIO((json.dumps({**content, SEAL: BLANK}, indent=1, ensure_ascii=False) + "\n").encode())
    seal(file)
    return file.getvalue()


def find_seal(file: BinaryIO) -> tuple[int, bytes] | None:
    """Where the seal stands, and what it says. The last one counts: in a footer, texts stand before it."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - tail_of(file, size))
    file.seek(start)
    found = list(MARK.finditer(file.read()))
    return (start + found[-1].start(1), found[-1].group(1)) if found else None


def tail_of(file: BinaryIO, size: int) -> int:
    """How many bytes at the end may hold the seal: of a parquet file, its footer."""
    file.seek(max(0, size - 8))
    end = file.read()
    return 8 + int.from_bytes(end[:4], "little") if end[4:] == PARQUET else TAIL


def digest(file: BinaryIO, place: int) -> bytes:
    """Of the whole file, with the blank at `place`."""
    found = hashlib.sha256()
    file.seek(0)
    at = 0
    while block := file.read(BLOCK):
        found.update(blank_seal(block, place - at))
        at += len(block)
    return found.hexdigest().encode()


def blank_seal(block: bytes, place: int) -> bytes:
    """The block with blanks where the seal stands, if it is in this block. `place` counts from the block's start."""
    first, last = max(0, place), min(len(block), place + len(BLANK))
    return block if first >= last else block[:first] + b"0" * (last - first) + block[last:]
