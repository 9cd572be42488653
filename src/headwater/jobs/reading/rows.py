"""A stretch of rows as it was read: a text or the reason why there is none, and the columns that go along."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

STEP = 512  # rows between two places of a file that are remembered
SHOWN = 200  # characters of a bad row's text that are kept

LONE = re.compile("[\ud800-\udfff]")  # halves of surrogate pairs, which stand for bytes that are not UTF-8, too

EMPTY, TOO_LONG, NOT_TEXT, BAD_UTF8, UNREADABLE, FAILED = (
    "empty",
    "too long",
    "not text",
    "invalid UTF-8",
    "unreadable row",
    "failed",
)


@dataclass(frozen=True)
class Bad:
    """Why a row cannot be explained: a reason to count by, a message to read, the beginning of what was found."""

    reason: str
    message: str
    text: str | None = None


@dataclass(frozen=True)
class RowSlice:
    """Rows from `start` on; `carried` has one row for each."""

    start: int
    texts: list[str | Bad]
    carried: pa.Table


class File(Protocol):
    """One file of the input, or one split of a dataset's directory."""

    path: str

    def read(self, start: int, stop: int) -> tuple[list[str | Bad], pa.Table]: ...

    def close(self) -> None: ...


def check_cell(value: Any) -> str | Bad:
    """A cell as a text that can be written down again."""
    if value is None:
        return Bad(EMPTY, "the cell is empty")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            return Bad(BAD_UTF8, f"byte {error.start} is not UTF-8", escape_beginning(value))
    if not isinstance(value, str):
        return Bad(NOT_TEXT, f"the cell holds {type(value).__name__}, not a text", escape_beginning(repr(value)))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return Bad(BAD_UTF8, f"character {error.start} is half of a surrogate pair, or a byte that is not UTF-8")
    return value


def add_bad_cells(texts: list[str | Bad], name: str, found: Sequence[str | Bad | None]) -> None:
    """A row whose cell of a further column of texts is no text is bad, too. An empty cell is left to who reads it."""
    for i, cell in enumerate(found):
        if isinstance(cell, Bad) and not isinstance(texts[i], Bad):
            texts[i] = replace(cell, message=f"in the column {name!r} {cell.message}")


def escape_beginning(value: str | bytes) -> str:
    """The beginning of a bad row; bytes that are not UTF-8 as \\x.."""
    start = value[: 4 * SHOWN]
    text = start.decode(errors="backslashreplace") if isinstance(start, bytes) else start
    return text.encode(errors="backslashreplace").decode()[:SHOWN]


def make_string_table(columns: dict[str, Sequence[Any]]) -> pa.Table:
    """Columns of a text file: strings, gaps where a row has none; what is not UTF-8 is replaced."""
    import pyarrow as pa

    return pa.table(
        {name: pa.array([to_json_text(v) for v in values], pa.string()) for name, values in columns.items()}
    )


def to_json_text(value: Any) -> str | None:
    """A string as it is, anything else as JSON has it."""
    if value is None:
        return None
    return LONE.sub("\ufffd", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
