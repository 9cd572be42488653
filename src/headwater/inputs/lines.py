"""Lines and cells of text files: where one ends, and how large it may be."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BOM = "\ufeff"  # what some editors and spreadsheets put in front of a file
MOST_BYTES = 64 * 2**20  # of one row of a text file; a quotation mark that is never closed would take the whole file


def read_lines(path: Path) -> list[str]:
    """The lines of a text file in UTF-8, with or without a byte order mark."""
    return split_lines(path.read_text(encoding="utf-8-sig"))


def split_lines(content: str) -> list[str]:
    """A text cut at its line feeds alone. `str.splitlines` cuts at U+2028 and U+0085, too, which JSON leaves in."""
    *lines, last = content.split("\n")
    return [*lines, last] if last else lines


@contextmanager
def wide_fields() -> Iterator[None]:
    """The csv module refuses fields of more than 128 KiB unless told otherwise; the limit is the whole process's."""
    before = csv.field_size_limit(MOST_BYTES // 4)  # characters, of which each may be four bytes
    try:
        yield
    finally:
        csv.field_size_limit(before)


def hint_at_separator(columns: Sequence[str]) -> str:
    """Where a table has a single column whose name looks like several: what may stand between them, and what to do."""
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            return f" Its columns seem to stand between {called}: a .csv file has commas, a .tsv file has tabs."
    return ""
