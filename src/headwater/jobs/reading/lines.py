"""CSV, TSV and JSON lines. A file is read once to count its rows and to remember where every 512th begins.

Bytes that are not UTF-8 spoil the row they stand in and no other.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import DataError
from ...inputs.lines import BOM, MOST_BYTES, wide_fields
from ...plurals import say_count
from .rows import BAD_UTF8, STEP, UNREADABLE, Bad, add_bad_cells, check_cell, escape_beginning, make_string_table

if TYPE_CHECKING:
    import pyarrow as pa

Record = list[str] | bytes | Bad
SHOWN_KEYS = 120  # characters of the names that a row has in place of the one that is wanted
DIALECTS = {".csv": "excel", ".tsv": "excel-tab"}


class Records:
    """The records of a file from where it stands, blank lines left out; `offset` is where the next one begins."""

    def __init__(self, file: BinaryIO, suffix: str) -> None:
        self.file = file
        self.dialect: str | None = DIALECTS.get(suffix)
        self.offset: int = file.tell()
        self._reader = None if self.dialect is None else csv.reader(self._decode(), self.dialect)

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        return self._json() if self._reader is None else self._csv(self._reader)

    def _lines(self) -> Iterator[bytes]:
        """Physical lines. One that is too long comes without its rest."""
        while line := self.file.readline(MOST_BYTES):
            self.offset += len(line)
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = self.file.readline(MOST_BYTES)
                self.offset += len(rest)
            yield line

    def _decode(self) -> Iterator[str]:
        return (line.decode(errors="surrogateescape") for line in self._lines())

    def _json(self) -> Iterator[tuple[int, Record]]:
        begin = self.offset
        for line in self._lines():
            if len(line) >= MOST_BYTES:
                yield begin, too_large(escape_beginning(line))
            elif line.strip():
                yield begin, line
            begin = self.offset

    def _csv(self, reader: Any) -> Iterator[tuple[int, Record]]:
        """A record may go over many lines, where a field is quoted."""
        while True:
            begin = self.offset
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                bad = too_large(None) if "field larger" in str(error) else Bad(UNREADABLE, f"no row of a CSV: {error}")
                yield begin, bad
                continue
            if fields:
                yield begin, fields


def too_large(text: str | None) -> Bad:
    size = MOST_BYTES // 2**20
    return Bad(UNREADABLE, f"the row has more than {size} MiB; perhaps a quotation mark is never closed", text)


def header_of(records: Iterator[tuple[int, Record]], path: str) -> list[str]:
    _, found = next(records, (0, None))
    if not isinstance(found, list):
        raise DataError(f"{path} has no header line.")
    return [found[0].removeprefix(BOM), *found[1:]]


class TextFile:
    """A file of which it is known where every 512th row begins: `offsets`. `texts` are further columns of texts."""

    def __init__(
        self, path: str, suffix: str, offsets: Sequence[int], columns: Sequence[str], texts: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.suffix = suffix
        self.offsets = offsets
        self.columns = columns
        self.texts = texts

    def read(self, start: int, stop: int) -> tuple[list[str | Bad], pa.Table]:
        with open(self.path, "rb") as file, wide_fields():
            header = self._header(file)
            file.seek(self.offsets[start // STEP])
            found = islice(Records(file, self.suffix), start % STEP, start % STEP + stop - start)
            cells = [self._cells(record, header) for _, record in found]
        if len(cells) != stop - start:
            raise DataError(f"{self.path} ends at row {start + len(cells)}: it became shorter while it was read.")
        texts = [one if isinstance(one, Bad) else check_line_text(one[0]) for one in cells]
        for i, name in enumerate(self.columns):
            if name in self.texts:
                further = [None if isinstance(one, Bad) else one[i] for one in cells]
                add_bad_cells(texts, name, [None if cell is None else check_line_text(cell) for cell in further])
        gaps: list[Any] = [None] * len(self.columns)
        rows = [gaps if isinstance(one, Bad) else one for one in cells]
        return texts, make_string_table({name: [row[i] for row in rows] for i, name in enumerate(self.columns) if i})

    def _header(self, file: BinaryIO) -> list[str]:
        if self.suffix not in DIALECTS:
            return []
        file.seek(0)
        return header_of(iter(Records(file, self.suffix)), self.path)

    def _cells(self, record: Record, header: list[str]) -> list[Any] | Bad:
        """What a row has in the columns that are wanted."""
        if isinstance(record, Bad):
            return record
        if isinstance(record, bytes):
            found = json_object(record)
            return found if isinstance(found, Bad) else json_cells(found, self.columns)
        if len(record) != len(header):
            said = f"the row has {say_count(len(record), 'column')} under a header of {len(header)}"
            return Bad(UNREADABLE, said, escape_beginning(" ".join(record)))
        return [record[header.index(name)] for name in self.columns]

    def close(self) -> None:
        """Nothing stays open between two stretches."""


def check_line_text(value: Any) -> str | Bad:
    """Bytes that were not UTF-8 stand as lone surrogates; they are told as the bytes they were."""
    found = check_cell(value)
    if isinstance(found, Bad) and found.reason == BAD_UTF8 and isinstance(value, str):
        try:
            raw = value.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            return Bad(found.reason, found.message, escape_beginning(value))
        return check_cell(raw)
    return found


def json_object(line: bytes) -> dict[str, Any] | Bad:
    try:
        found = json.loads(line.decode().removeprefix(BOM))
    except UnicodeDecodeError as error:
        return Bad(BAD_UTF8, f"byte {error.start} of the line is not UTF-8", escape_beginning(line))
    except (ValueError, RecursionError) as error:
        return Bad(UNREADABLE, f"the line is no JSON: {error}", escape_beginning(line))
    if not isinstance(found, dict):
        return Bad(UNREADABLE, f"the line is a JSON {type(found).__name__}, not an object", escape_beginning(line))
    return found


def json_cells(found: dict[str, Any], columns: Sequence[str]) -> list[Any] | Bad:
    if columns[0] not in found:
        return Bad(UNREADABLE, f"the row has no {columns[0]!r}; it has {', '.join(map(repr, found))[:SHOWN_KEYS]}")
    return [found.get(name) for name in columns]
