"""The one writer: chunks come in any order, shards go out whole.

A shard is written aside, group by group as its chunks arrive in order, and takes its place when its last chunk is in.
Its bad rows lie beside it before that; when all shards are done they become one file.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import JobStopped
from ..store.aside import put_in_place, settle, written_aside
from ..store.manifest import ERRORS, FOOTER, SHARDS, WORK, Counts, said_in, shard_path
from .explaining import Finished

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 32 * 2**20  # of a group of rows, before compression
RESERVE = 64 * 2**20  # bytes that are left free on the disk
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Writer:
    """Of one directory. `done` hears of every shard that has taken its place."""

    def __init__(self, path: Path, job: str, done: Callable[[int, Counts], None]) -> None:
        self.path, self.job, self.done = path, job, done
        self._open: dict[int, Shard] = {}

    def add(self, finished: Finished) -> None:
        number = finished.chunk.shard
        with plain_failures(self.path):
            shard = self._open.get(number) or self._open.setdefault(number, Shard(self.path, number, self.job))
            shard.add(finished)
            if shard.complete:
                shard.close()
                del self._open[number]
                self.done(number, shard.counts)

    def close(self) -> None:
        """What is not complete is given up."""
        for shard in self._open.values():
            shard.give_up()
        self._open.clear()


class Shard:
    """A file in the making; chunks that come too early wait."""

    def __init__(self, path: Path, number: int, job: str) -> None:
        self.path, self.number, self.job = path, number, job
        self.aside = path / WORK / f"shard-{number:06d}.unfinished"
        self.counts = Counts()
        self._next, self._parts = 0, 1
        self._early: dict[int, Finished] = {}
        self._held: list[pa.Table] = []
        self._errors: list[pa.Table] = []
        self._file: BinaryIO | None = None
        self._writer: Any = None

    @property
    def complete(self) -> bool:
        return self._next == self._parts

    def add(self, finished: Finished) -> None:
        self._parts = finished.chunk.parts
        self._early[finished.chunk.part] = finished
        while (next_one := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.counts += next_one.counts
            self._held.append(next_one.table)
            if next_one.errors.num_rows:
                self._errors.append(next_one.errors)
            if sum(table.nbytes for table in self._held) > GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        """What is held becomes a group of rows."""
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.concat_tables(self._held).combine_chunks()
        need_room(self.path, table.nbytes)
        if self._writer is None:
            self._file = self.aside.open("wb")
            self._writer = parquet.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held = []

    def close(self) -> None:
        """The bad rows first: a shard that is in its place has them."""
        self._flush()
        assert self._file is not None
        self._writer.add_key_value_metadata({FOOTER.decode(): json.dumps(self._footer())})
        self._writer.close()
        settle(self._file)
        self._file.close()
        if self._errors:
            write_tables(errors_path(self.path, self.number), self.aside.with_suffix(".errors"), iter(self._errors))
        put_in_place(self.aside, shard_path(self.path, self.number))

    def _footer(self) -> dict[str, Any]:
        c = self.counts
        counts = {"rows": c.rows, "errors": c.errors, "tokens": c.tokens, "open": c.open}
        return {"job": self.job, "shard": self.number, **counts}

    def give_up(self) -> None:
        with suppress(OSError, ValueError):
            if self._file is not None:
                self._file.close()
            self.aside.unlink(missing_ok=True)


def errors_path(path: Path, number: int) -> Path:
    return path / WORK / f"errors-{number:06d}.parquet"


def write_tables(path: Path, aside: Path, tables: Iterator[pa.Table]) -> None:
    from pyarrow import parquet

    first = next(tables)
    with written_aside(path, aside) as file, parquet.ParquetWriter(file, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def gather_errors(path: Path) -> None:
    """The bad rows of all shards that are done, as one file in the order of the input; no file where there are none."""
    from pyarrow import parquet

    files = [
        file for file in sorted((path / WORK).glob("errors-*.parquet")) if shard_path(path, number_of(file)).is_file()
    ]
    with plain_failures(path):
        if files:
            write_tables(path / ERRORS, path / WORK / ERRORS, (parquet.read_table(file) for file in files))


def number_of(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])


def counts_of(file: Path, job: str, number: int) -> Counts | None:
    """What a shard says of itself; None where it is damaged, of another job, or not that shard."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        footer = parquet.read_metadata(file)
    except (OSError, ValueError, pa.ArrowException):
        return None
    said = said_in(footer)
    if (said.get("job"), said.get("shard"), said.get("rows")) != (job, number, footer.num_rows):
        return None
    return Counts(said["rows"], said["errors"], said["tokens"], said["open"])


def found_shards(path: Path, job: str) -> dict[int, Counts]:
    """The shards that lie in their place and belong to this job, and whose bad rows are there, too."""
    files = {number_of(file): file for file in (path / SHARDS).glob("shard-*.parquet")}
    found = {number: counts_of(file, job, number) for number, file in sorted(files.items())}
    whole = {number: counts for number, counts in found.items() if counts is not None}
    return {n: counts for n, counts in whole.items() if not counts.errors or errors_path(path, n).is_file()}


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
        what = "the disk is full" if error.errno in FULL else "it cannot be written"
        raise JobStopped(
            f"{path}: {what} ({error.strerror or error}). Every shard that is done is kept; make room, then run the "
            "same command again, and it goes on from there."
        ) from error
