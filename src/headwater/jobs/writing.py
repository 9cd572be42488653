"""The one writer: chunks come in any order, shards go out whole.

A shard is written aside, group by group as its chunks arrive in order, and takes its place when its last chunk is in.
Its bad rows lie beside it before that; when all shards are done they become one file. All have their checksum in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..store.aside import flush_to_disk, open_anew, put_in_place, write_aside
from ..store.manifest import ERRORS, FOOTER, SHARDS, WORK, Counts, Manifest, damage_error, read_footer, shard_path
from ..store.ranges import check_whole
from ..store.seal import BLANK, SEAL, check_file_seal, seal
from .disk import need_room, plain_failures
from .explaining import Finished

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 32 * 2**20  # of a group of rows, before compression
NAME = re.compile(r"shard-(\d{6,})\.parquet")


class Writer:
    """Of one directory. `done` hears of every shard that has taken its place."""

    def __init__(self, path: Path, job: str, done: Callable[[int, Counts], None]) -> None:
        self.path = path
        self.job = job
        self.done = done
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
        self.path = path
        self.number = number
        self.job = job
        self.aside: Path = path / WORK / f"shard-{number:06d}.unfinished"
        self.counts: Counts = Counts()
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
            self._file = open_anew(self.aside)
            self._writer = parquet.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held = []

    def close(self) -> None:
        """The bad rows first: a shard that is in its place has them, and only those."""
        if self._held:  # the last chunk may have filled a group
            self._flush()
        assert self._file is not None
        self._writer.add_key_value_metadata(make_footer(self._describe()))
        self._writer.close()
        seal(self._file)
        flush_to_disk(self._file)
        self._file.close()
        errors = errors_path(self.path, self.number)
        if self._errors:
            said = {"job": self.job, "shard": self.number}
            write_tables(errors, self.aside.with_suffix(".errors"), iter(self._errors), said)
        else:
            errors.unlink(missing_ok=True)
        put_in_place(self.aside, shard_path(self.path, self.number))

    def _describe(self) -> dict[str, Any]:
        c = self.counts
        counts = {"rows": c.rows, "errors": c.errors, "tokens": c.tokens, "open": c.open}
        return {"job": self.job, "shard": self.number, **counts}

    def give_up(self) -> None:
        with suppress(OSError, ValueError):
            if self._file is not None:
                self._file.close()
            self.aside.unlink(missing_ok=True)


def make_footer(said: Mapping[str, Any]) -> dict[str, str]:
    """What a file says of itself, with room for its seal."""
    return {FOOTER.decode(): json.dumps({**said, SEAL: BLANK})}


def errors_path(path: Path, number: int) -> Path:
    return path / WORK / f"errors-{number:06d}.parquet"


def write_tables(path: Path, aside: Path, tables: Iterator[pa.Table], said: Mapping[str, Any]) -> None:
    from pyarrow import parquet

    first = next(tables)
    with write_aside(path, aside) as file:
        with parquet.ParquetWriter(file, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
            writer.add_key_value_metadata(make_footer(said))
        seal(file)


def gather_errors(path: Path, manifest: Manifest) -> None:
    """The bad rows of all shards that are done, as one file in the order of the input; no file where there are none."""
    files = [file for file in (errors_path(path, number) for number in manifest.done) if file.is_file()]
    if files:
        with plain_failures(path):
            write_tables(path / ERRORS, path / WORK / ERRORS, map(read_whole, files), {"job": manifest.job})


def read_whole(file: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise damage_error(file, error) from error


def read_description(file: Path, manifest: Manifest) -> dict[str, Any] | None:
    """What a parquet file of this job says of itself, and its number of rows; None if it is damaged, or another's."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        check_file_seal(file, needed=manifest.sealed)
        metadata = parquet.read_metadata(file)
    except (OSError, ValueError, pa.ArrowException):
        return None
    said = read_footer(metadata)
    known = said.get("job") == manifest.job if manifest.sealed or "job" in said else True
    return {**said, "found": metadata.num_rows} if known else None


def job_of_file(file: Path) -> Any:
    """The job that a shard says it is of; None where it says nothing that can be read."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return read_footer(parquet.read_metadata(file)).get("job")
    except (OSError, ValueError, pa.ArrowException):
        return None


def counts_of(path: Path, number: int, manifest: Manifest) -> Counts | None:
    """How many rows a shard holds. None where it or its list of bad rows is damaged, or of another job."""
    said = read_description(shard_path(path, number), manifest)
    if said is None or (said.get("shard"), said.get("rows")) != (number, said["found"]):
        return None
    try:
        counts = Counts(*(check_whole(said[name]) for name in ("rows", "errors", "tokens", "open")))
    except (KeyError, ValueError):
        return None
    if counts.rows + counts.errors != len(manifest.extent(number)):
        return None
    bad = read_description(errors_path(path, number), manifest) if counts.errors else {"found": 0}
    return counts if bad is not None and bad["found"] == counts.errors else None


def found_shards(path: Path, manifest: Manifest) -> dict[int, Counts]:
    """The shards of this job that lie in their place, whole, and whose bad rows are there, too."""
    found = {n: counts_of(path, n, manifest) for n in shard_numbers(path) if n < manifest.shards}
    return {number: counts for number, counts in found.items() if counts is not None}


def shard_numbers(path: Path) -> list[int]:
    """Of the files that are called as shards are; others are somebody else's."""
    named = [NAME.fullmatch(file.name) for file in (path / SHARDS).iterdir()] if (path / SHARDS).is_dir() else []
    return sorted(int(found.group(1)) for found in named if found)
