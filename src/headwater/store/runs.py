"""`open_run`: what a run wrote, a row at a time or by row number, as plain rows or as explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UnknownName, UsageError
from ..plurals import say_count
from ..results.explanation import Explanation, Provenance
from .columns import LATER, RESERVED, need_arrow, to_explanation
from .inside_columns import inside_columns, read_inside
from .manifest import ERRORS, MANIFEST, SHARDS, Manifest, damage_error, read_footer, read_manifest, shard_path
from .seal import check_file_seal
from .unit_totals import UnitTotal, rank_units
from .words import LEAST, PLACED, WordTotals, count_words

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


def open_run(path: str | Path) -> StoredRun:
    r"""The directory that `hw.run` or `headwater run` wrote, also while a run is still writing to it.

    `len(run)`, `for row in run.rows()`, `for e in run.explanations()`, `run.explanation(row_id)`, `run.errors()`.

    Args:
        path: the directory.

    Returns:
        A `StoredRun`.

    Raises:
        DataError: there is no run; `DamagedRun` where its files are not as they were written.
        MissingExtra: pyarrow is not installed.

    Example:
        >>> with open("reviews.csv", "w") as file:
        ...     written = file.write("text\na warm film\n")
        >>> stored = hw.run("headwater/sentiment", "reviews.csv", "explained", workers=1, progress=False)
        >>> hw.open_run("explained").explanation(0).target
        'positive'
    """
    need_arrow("reading a run")
    path = Path(path)
    manifest = read_manifest(path)
    check_claims(path, manifest)
    return StoredRun(path, manifest)


def check_claims(path: Path, manifest: Manifest) -> None:
    """Refuses more rows and shards than there are bytes on the disk, before memory is taken for any of them."""
    rows, shards = manifest.counts.rows, len(manifest.done)
    held = bytes_in(path / SHARDS) if shards else 0
    if rows + shards > held:
        said = f"it claims {rows:,} rows in {shards:,} shards, and {path / SHARDS} holds {held:,} bytes"
        raise damage_error(path / MANIFEST, said)


def bytes_in(directory: Path) -> int:
    """Of all files there; none where there is no directory."""
    found = 0
    with suppress(OSError):
        for file in directory.iterdir():
            with suppress(OSError):  # a link that leads nowhere, a file that is just being replaced
                found += file.stat().st_size
    return found


class StoredRun:
    """A run's directory, read as it was when it was opened. Memory holds one group of rows at a time."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._group: tuple[tuple[int, int | None], dict[int, Row]] | None = None
        self._files: tuple[int, Any] | None = None
        self._whole: set[tuple[Path, int, int]] = set()  # files whose checksum was right: their size and time

    def __getstate__(self) -> dict[str, Any]:
        """Another process opens the files for itself."""
        return {**self.__dict__, "_group": None, "_files": None}

    def __len__(self) -> int:
        """How many rows were explained."""
        return self.manifest.counts.rows

    def __repr__(self) -> str:
        m = self.manifest
        held = f"{say_count(m.counts.rows, 'row')}, {say_count(m.counts.errors, 'error')}"
        return f"StoredRun({str(self.path)!r}, {m.state}, {held})"

    @property
    def finished(self) -> bool:
        """Whether every row is done."""
        return self.manifest.finished

    @property
    def method(self) -> str:
        """The name of the method, with its parameters."""
        return str(self.manifest.asked["method"])

    @cached_property
    def inside_columns(self) -> tuple[str, ...]:
        """The columns that hold relevance inside the model."""
        return inside_columns(self.manifest.asked.get("inside"))

    @cached_property
    def provenance(self) -> Provenance:
        """Of every explanation of the run."""
        about = self.manifest.provenance
        return Provenance(**{f.name: about[f.name] for f in fields(Provenance) if f.name in about})

    def shard_files(self) -> list[Path]:
        """The shards that are done, in the order of the input."""
        return [shard_path(self.path, n) for n in self.manifest.done]

    def rows(self, columns: list[str] | None = None, start: int = 0) -> Iterator[Row]:
        """Rows as they lie in the shards, from the row number `start` on, of these `columns` or of all."""
        for batch in self.batches(with_id(columns), start):
            for row in batch.to_pylist():
                if row["row_id"] >= start:
                    yield row if columns is None or "row_id" in columns else without_id(row)

    def batches(self, columns: list[str] | None = None, start: int = 0) -> Iterator[pa.RecordBatch]:
        """The same as Arrow has them, these `columns` or all, hundreds of rows at a time, from the shard of `start`."""
        for number in self.manifest.done:
            if (number + 1) * self.manifest.shard_rows > start:
                with self._readable(number) as file:
                    check_columns(file, columns)
                    yield from file.iter_batches(batch_size=256, columns=columns)

    def explanations(self, start: int = 0) -> Iterator[Explanation]:
        """Every row as the `Explanation` it was, from the row number `start` on."""
        return (self.make_explanation(row) for row in self.rows(start=start))

    def row(self, row_id: int) -> Row | None:
        """The row with the number `row_id` in the input; None where it is not there: a bad row, or not yet done."""
        number = row_id // self.manifest.shard_rows
        if number not in self.manifest.done:
            return None
        place = (number, self._group_of(number, row_id))
        if self._group is None or self._group[0] != place:
            with self._readable(number) as file:
                found = [] if place[1] is None else file.read_row_group(place[1]).to_pylist()
            self._group = (place, {row["row_id"]: row for row in found})
        return self._group[1].get(row_id)

    def explanation(self, row_id: int) -> Explanation | None:
        """The row with the number `row_id` in the input, as the `Explanation` it was; None where it is not there."""
        row = self.row(row_id)
        return None if row is None else self.make_explanation(row)

    def rows_by_id(self, ids: Iterable[int], columns: list[str] | None = None) -> dict[int, Row]:
        """The rows with these numbers, `ids`, of these `columns` or of all; what is not there is left out."""
        import pyarrow.compute as pc

        places: dict[tuple[int, int], list[int]] = {}
        for row_id in ids:
            number = row_id // self.manifest.shard_rows
            group = self._group_of(number, row_id) if number in self.manifest.done else None
            if group is not None:
                places.setdefault((number, group), []).append(row_id)
        found: dict[int, Row] = {}
        for (number, group), wanted in sorted(places.items()):
            with self._readable(number) as file:
                check_columns(file, columns)
                table = file.read_row_group(group, columns=with_id(columns))
            kept = table.filter(pc.is_in(table.column("row_id"), value_set=as_ids(wanted)))
            found.update((row["row_id"], row) for row in kept.to_pylist())
        return found

    def explanations_by_id(self, ids: Iterable[int]) -> dict[int, Explanation]:
        """The rows with these numbers, `ids`, as the explanations they were."""
        return {row_id: self.make_explanation(row) for row_id, row in self.rows_by_id(ids).items()}

    def words(self, rows: int | None = None, least: int = LEAST) -> tuple[WordTotals, ...]:
        """The words that matter most, a list for every class that was explained; of the first `rows` rows, or of all.

        Whole words, in lower case, punctuation apart, each with how often it stands there, mean and sum of relevance. A
        word that stands there less often than `least` is left out.
        """
        return count_words(islice(self.rows([*PLACED, "target"]), rows), least)

    def units(self, kind: str, count: int = 20, tokens: int = 5, rows: int | None = None) -> list[UnitTotal]:
        """The `count` heads or neurons (`kind`) with most relevance, each with the `tokens` at which it has most of it.

        Of the first `rows` rows, or of all. A run holds them where it was asked for them: `run(…, inside=["neurons"])`.
        """
        if kind not in self.inside_columns:
            held = ", ".join(self.inside_columns) or "nothing"
            raise UsageError(f"{self.path} holds no {kind} but {held}: run it again elsewhere with inside=[{kind!r}].")
        return rank_units(self.batches, kind, count, tokens, rows)

    def errors(self) -> Iterator[Row]:
        """Rows that could not be explained: `row_id`, `file`, `row`, `reason`, `message`, `text` (its beginning)."""
        from pyarrow import ArrowException, parquet

        file = self.path / ERRORS
        if not file.is_file() and not (self.finished and self.manifest.counts.errors):
            return
        try:
            self._check(file)
            with parquet.ParquetFile(file) as found:
                check_errors(found.metadata, self.manifest)
                for batch in found.iter_batches(batch_size=1024):
                    yield from batch.to_pylist()
        except (OSError, ArrowException) as error:
            raise damage_error(file, error) from error

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """All rows at once, of these `columns` or of all, for a run that fits into memory."""
        import pyarrow as pa

        if not self.manifest.done:
            raise DataError(f"no shard of {self.path} is done yet.")
        found = []
        for number in self.manifest.done:
            with self._readable(number) as file:
                check_columns(file, columns)
                found.append(file.read(columns=columns))
        return pa.concat_tables(found)

    def carried(self, column: str) -> str:
        """What the input's `column` is called here."""
        known = self.manifest.columns
        if column not in known:
            raise UsageError(
                f"{self.path} was written without the column {column!r}; it has {', '.join(known)}. Name one of these, "
                f"or run it again into another directory with --columns {','.join([*known, column])}."
            )
        return known[column]

    def make_explanation(self, row: Row) -> Explanation:
        """A `row`, with all its columns, as the explanation it was."""
        row["double"] = self.manifest.asked["dtype"] == "float64"
        found = to_explanation(row, self.provenance, tuple(sorted(self.manifest.rules_met.items())))
        held = all(name in row for name in self.inside_columns)
        return replace(found, inside=read_inside(row, self.inside_columns)) if self.inside_columns and held else found

    @contextmanager
    def _readable(self, number: int) -> Iterator[Any]:
        """A shard's file. One that is not what the manifest says of it is refused, and the message says what to do."""
        from pyarrow import ArrowException, parquet

        file = shard_path(self.path, number)
        try:
            if self._files is None or self._files[0] != number:
                self._check(file)
                self._files = (number, check_shard(parquet.ParquetFile(file), self.manifest.job, number))
            yield self._files[1]
        except (OSError, ArrowException) as error:
            self._files = None
            raise damage_error(file, error) from error

    def _check(self, file: Path) -> None:
        """A file is read once to compare its checksum, however often it is opened."""
        found = file.stat()
        known = (file, found.st_size, found.st_mtime_ns)
        if known not in self._whole:
            check_file_seal(file, needed=self.manifest.sealed)
            self._whole.add(known)

    def _group_of(self, number: int, row_id: int) -> int | None:
        """Which group of rows of a shard may hold the row, by what the file's footer says of each."""
        with self._readable(number) as file:
            footer = file.metadata
        for group in range(footer.num_row_groups):
            known = footer.row_group(group).column(0).statistics
            if known is not None and known.min <= row_id <= known.max:
                return group
        return None


def check_shard(file: Any, job: str, number: int) -> Any:
    """The file, if it is this shard of this job. Another's rows would be read as ours."""
    said = read_footer(file.metadata)
    if (said.get("job"), said.get("shard")) != (job, number):
        raise OSError("it is of another job")
    lacking = [name for name in RESERVED if name not in file.schema_arrow.names and name not in LATER]
    if lacking:
        raise OSError(f"it lacks the column {lacking[0]!r}")
    return file


def check_columns(file: Any, columns: Sequence[str] | None) -> None:
    """Refuses a name that no column has: pyarrow would pass over it, and rows would come without it."""
    known = file.schema_arrow.names
    for name in columns or ():
        if name not in known:
            raise UnknownName("column of this run", name, known)


def check_errors(footer: Any, manifest: Manifest) -> None:
    """Raises OSError if bad rows are another job's, or, of a job that has ended, not all that it counts."""
    said = read_footer(footer)
    if manifest.sealed and said.get("job") != manifest.job:
        raise OSError("it is of another job")
    if manifest.finished and footer.num_rows != manifest.counts.errors:
        raise OSError(f"it has {footer.num_rows:,} rows, the run counts {manifest.counts.errors:,}")


def with_id(columns: list[str] | None) -> list[str] | None:
    return None if columns is None else ["row_id", *(name for name in columns if name != "row_id")]


def as_ids(wanted: list[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(wanted, pa.int64())


def without_id(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "row_id"}
