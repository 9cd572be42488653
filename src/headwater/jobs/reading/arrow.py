"""Parquet files and the directories that `datasets` writes, both as Arrow columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...errors import DataError, require_extra
from .rows import STEP, Bad, add_bad_cells, check_cell

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetFile:
    """Goes forward through a file as long as it is asked in order; a group of rows may be larger than memory."""

    def __init__(self, path: str, columns: Sequence[str], kinds: dict[str, str], texts: Sequence[str] = ()) -> None:
        from pyarrow import parquet

        self.path = path
        self.columns: list[str] = list(columns)
        self.kinds = kinds
        self.texts = texts
        self._file = parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False)
        footer = self._file.metadata
        self._starts = [0, *accumulate(footer.row_group(i).num_rows for i in range(footer.num_row_groups))]
        self._batches: Iterator[Any] = iter(())
        self._at, self._next = 0, 0  # the row that the held batch begins with, and the first after it
        self._held: Any = None

    def read(self, start: int, stop: int) -> tuple[list[str | Bad], pa.Table]:
        import pyarrow as pa

        parts = []
        try:
            if start < self._at or self._group(start) > self._group(self._next) or self._held is None:
                self._seek(start)
            while start < stop:
                while self._next <= start:
                    self._advance()
                end = min(stop, self._next)
                parts.append(self._held.slice(start - self._at, end - start))
                start = end
        except (OSError, pa.ArrowException, StopIteration) as error:
            raise DataError(f"{self.path} cannot be read from row {start} on: {error}.") from error
        return split_columns(pa.Table.from_batches(parts), self.columns, self.kinds, self.texts)

    def _group(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def _seek(self, row: int) -> None:
        group = self._group(row)
        groups = range(group, self._file.metadata.num_row_groups)
        self._batches = self._file.iter_batches(STEP, row_groups=groups, columns=self.columns, use_threads=False)
        self._at = self._next = self._starts[group]
        self._held = None

    def _advance(self) -> None:
        self._held = next(self._batches)
        self._at, self._next = self._next, self._next + len(self._held)

    def close(self) -> None:
        self._batches, self._held = iter(()), None
        self._file.close()


class DatasetSplit:
    """A directory that `datasets.save_to_disk` wrote, or one split of it."""

    def __init__(self, path: str, columns: Sequence[str], kinds: dict[str, str], texts: Sequence[str] = ()) -> None:
        self.path = path
        self.columns: list[str] = list(columns)
        self.kinds = kinds
        self.texts = texts
        self._data = load_split(path).select_columns(self.columns).with_format("arrow")

    def read(self, start: int, stop: int) -> tuple[list[str | Bad], pa.Table]:
        import pyarrow as pa

        try:
            found = self._data[start:stop]
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path} cannot be read from row {start} on: {error}.") from error
        return split_columns(found, self.columns, self.kinds, self.texts)

    def close(self) -> None:
        self._data = None


def load_split(path: str) -> Any:
    with require_extra(f"reading the dataset {path}", "data"):
        from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, load_from_disk
    silent = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        return load_from_disk(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a dataset: {error}.") from error
    finally:
        if not silent:
            enable_progress_bars()


def split_columns(
    table: pa.Table, columns: Sequence[str], kinds: dict[str, str], further: Sequence[str] = ()
) -> tuple[list[str | Bad], pa.Table]:
    """The texts one by one, the other columns as they are; cells of `further` columns must be texts, too."""
    import pyarrow as pa

    texts = [check_cell(value) for value in read_cells(table.column(columns[0]))]
    for name in further:
        cells = read_cells(table.column(name))
        add_bad_cells(texts, name, [None if cell is None else check_cell(cell) for cell in cells])
    others = {name: cast_column(table.column(name), kinds[name]) for name in columns[1:]}
    return texts, pa.table(others) if others else pa.table({"": pa.nulls(len(texts))}).select([])


def read_cells(column: Any) -> list[Any]:
    """Strings as bytes, so that one that is not UTF-8 does not spoil the others."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if is_string_type(kind):
        column = column.cast(pa.large_binary())
    found: list[Any] = column.to_pylist()
    return found


def is_string_type(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def cast_column(column: Any, kind: str) -> Any:
    """A column of the type that it has in the first file; of strings, what is not UTF-8 is replaced."""
    import pyarrow as pa

    if kind == "string":
        values = [None if v is None else v if isinstance(v, str) else decode_text(v) for v in read_cells(column)]
        return pa.array(values, pa.string())
    return column.combine_chunks()


def decode_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
