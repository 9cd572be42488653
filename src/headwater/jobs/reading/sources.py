"""What the input consists of: its files in order, how many rows each has, and by what it can be known again."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...inputs.given import is_frame
from ...inputs.lines import hint_at_separator, wide_fields
from ...store.columns import need_arrow
from .arrow import DatasetSplit, ParquetFile, is_string_type, load_split
from .lines import DIALECTS, Records, TextFile, header_of, json_object
from .rows import STEP, Bad, File, RowSlice

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
DATASET, DICT = "state.json", "dataset_dict.json"
PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")


@dataclass(frozen=True)
class InputFile:
    """One file of the input. `kinds` are the types of the columns that are wanted.

    `changed` are its times in nanoseconds: of its content, and of its entry in the file system, which nobody can set.
    `offsets` are where every 512th row of a text file begins.
    """

    path: str
    kind: str
    rows: int
    bytes: int
    changed: tuple[int, int]
    sha256: str
    kinds: Mapping[str, str]
    offsets: tuple[int, ...] = ()

    def open(self, columns: Sequence[str], texts: Sequence[str] = ()) -> File:
        """Its rows of these columns. The first holds texts, and so do those that are in `texts`."""
        if self.kind == ".parquet":
            return ParquetFile(self.path, columns, dict(self.kinds), texts)
        if self.kind == DATASET:
            return DatasetSplit(self.path, columns, dict(self.kinds), texts)
        return TextFile(self.path, self.kind, self.offsets, columns, texts)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> InputFile:
        return cls(**{**found, "changed": tuple(found["changed"]), "offsets": tuple(found["offsets"])})

    def to_manifest(self) -> dict[str, Any]:
        """For the manifest: what tells it from every other file."""
        return {"path": self.path, "rows": self.rows, "bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True)
class InputFiles:
    """All files of the input, one after the other: a row's number is its place in this order.

    The first of `columns` holds texts, and so do those that are in `texts`.
    """

    files: tuple[InputFile, ...]
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def sha256(self) -> str:
        """Of what the files hold in their order; where they lie does not matter."""
        return hashlib.sha256(":".join(file.sha256 for file in self.files).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        return {"files": [asdict(file) for file in self.files], "columns": self.columns}

    def find_changed(self) -> str | None:
        """A file that is not what it was when it was looked through."""
        return next((f.path for f in self.files if has_changed(f)), None)

    def place(self, row_id: int) -> tuple[str, int]:
        """The file of a row, and its number there."""
        for file in self.files:
            if row_id < file.rows:
                return file.path, row_id
            row_id -= file.rows
        raise IndexError(row_id)


class RowReader:
    """Stretches of rows by number. The file that was read last stays open, since the next stretch is mostly there."""

    def __init__(self, sources: InputFiles) -> None:
        self.sources = sources
        self._open: tuple[int, File] | None = None

    def read(self, start: int, stop: int) -> RowSlice:
        import pyarrow as pa

        texts: list[str | Bad] = []
        tables, first = [], 0
        for number, source in enumerate(self.sources.files):
            begin, end = max(start - first, 0), min(stop - first, source.rows)
            first += source.rows
            if begin >= end:
                continue
            found, table = self._file(number).read(begin, end)
            texts += found
            tables.append(table)
        return RowSlice(start, texts, pa.concat_tables(tables))

    def _file(self, number: int) -> File:
        if self._open is None or self._open[0] != number:
            if self._open is not None:
                self._open[1].close()
            self._open = (number, self.sources.files[number].open(self.sources.columns, self.sources.texts))
        return self._open[1]


def find_sources(
    data: Any, columns: Sequence[str], known: Mapping[str, InputFile] | None = None, texts: Sequence[str] = ()
) -> InputFiles:
    """The files that `data` names, looked through. `known` are files of which it is known what they hold.

    `data` is a path, a pattern such as `in/*.parquet`, a directory, or a list of those. `texts` are columns beside the
    first that hold texts.
    """
    need_arrow("reading a dataset")
    paths = found_paths(data)
    files = [describe_file(path, columns, (known or {}).get(path)) for path in paths]
    files = [replace(file, kinds=check_kinds_agree(file, files[0], columns)) for file in files]
    sources = InputFiles(tuple(files), tuple(columns), tuple(texts))
    if not sources.rows:
        raise DataError(f"{', '.join(paths[:3])}: no rows.")
    return sources


def found_paths(data: Any) -> list[str]:
    named = (str, os.PathLike)
    several = isinstance(data, Iterable) and not (isinstance(data, (*named, Mapping)) or is_frame(data))
    asked: list[Any] = list(data) if several else [data]
    if not all(isinstance(one, named) for one in asked):
        raise DataError(
            f"a run reads files, and was given a {type(data).__name__}: write it into one, such as "
            "data.to_parquet('data.parquet'), and pass the path. hw.explain takes texts in memory."
        )
    found: list[str] = []
    for one in asked:
        found += in_one(os.fspath(one))
    if not found:
        raise DataError("no input: pass a path, a pattern such as 'in/*.parquet', or a list of those.")
    return list(dict.fromkeys(os.path.abspath(path) for path in found))


def in_one(name: str) -> list[str]:
    """A path as it is, else what a pattern matches, sorted by name."""
    matches = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
    if not matches:
        raise DataError(f"there is no file {name}.")
    if len(matches) > 1 or not os.path.isdir(matches[0]):
        return [path for match in matches for path in (files_in_directory(match) if os.path.isdir(match) else [match])]
    return files_in_directory(matches[0])


def files_in_directory(path: str) -> list[str]:
    """A dataset, the splits of one, or the files that lie in it."""
    here = Path(path)
    if (here / DATASET).is_file():
        return [path]
    if (here / DICT).is_file():
        return [str(child) for child in sorted(here.iterdir()) if (child / DATASET).is_file()]
    files = sorted(str(child) for child in here.iterdir() if child.suffix.lower() in SUFFIXES)
    if not files:
        raise DataError(f"{path} holds no {', '.join(SUFFIXES)} file and is no dataset that `save_to_disk` wrote.")
    return files


def describe_file(path: str, columns: Sequence[str], known: InputFile | None) -> InputFile:
    """A file looked through once. One that holds what is known of it is read for its checksum alone."""
    kind = DATASET if os.path.isdir(path) else os.path.splitext(path)[1].lower()
    if kind in PACKED:
        raise DataError(f"{path} is packed, so that no row can be found in it without all before; unpack it first.")
    if kind not in (*SUFFIXES, DATASET):
        raise DataError(f"{path} is none of {', '.join(SUFFIXES)}.")
    try:
        size, changed = measure_file(path)
        content = sha256_of(path)
        if known is not None and known.sha256 == content and set(columns) <= set(known.kinds):
            return replace(known, bytes=size, changed=changed)
        looked = {".parquet": look_through_parquet, DATASET: look_through_dataset}.get(kind, look_through_lines)(
            path, kind, columns
        )
        return InputFile(path, kind, looked[0], size, changed, content, looked[1], looked[2])
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def list_files(path: str) -> list[Path]:
    """The file, or those of a dataset without what `datasets` keeps there for itself."""
    here = Path(path)
    if not here.is_dir():
        return [here]
    return sorted(p for p in here.rglob("*") if p.is_file() and not p.name.startswith("cache-"))


def measure_file(path: str) -> tuple[int, tuple[int, int]]:
    found = [file.stat() for file in list_files(path)]
    times = max(one.st_mtime_ns for one in found), max(one.st_ctime_ns for one in found)
    return sum(one.st_size for one in found), times


def has_changed(file: InputFile) -> bool:
    """Read again only if its size or one of its times is another."""
    try:
        return measure_file(file.path) != (file.bytes, file.changed) and sha256_of(file.path) != file.sha256
    except OSError:
        return True


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    for part in list_files(path):
        with part.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


Looked = tuple[int, dict[str, str], tuple[int, ...]]


def look_through_parquet(path: str, _: str, columns: Sequence[str]) -> Looked:
    import pyarrow as pa
    from pyarrow import parquet as files

    try:
        with files.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except pa.ArrowException as error:
        raise DataError(f"{path} is no parquet file: {error}.") from error
    return rows, arrow_kinds(path, schema, columns), ()


def look_through_dataset(path: str, _: str, columns: Sequence[str]) -> Looked:
    found = load_split(path)
    return len(found), arrow_kinds(path, found.features.arrow_schema, columns), ()


def arrow_kinds(path: str, schema: Any, columns: Sequence[str]) -> dict[str, str]:
    import pyarrow as pa

    need_columns(path, columns, schema.names)
    found = {}
    for name in columns:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        found[name] = "string" if is_string_type(kind) else str(kind)
    return found


def look_through_lines(path: str, suffix: str, columns: Sequence[str]) -> Looked:
    """Every row is passed once, to know where each 512th begins."""
    offsets, rows, keys = [], 0, set()
    with open(path, "rb") as file, wide_fields():
        records = iter(Records(file, suffix))
        if suffix in DIALECTS:
            need_columns(path, columns, header_of(records, path))
        for begin, record in records:
            if rows % STEP == 0:
                offsets.append(begin)
            if rows < STEP and isinstance(record, bytes) and not isinstance(found := json_object(record), Bad):
                keys |= set(found)
            rows += 1
    if suffix not in DIALECTS and rows:
        need_columns(path, columns, sorted(keys))
    return rows, dict.fromkeys(columns, "string"), tuple(offsets)


def need_columns(path: str, columns: Sequence[str], known: Sequence[str]) -> None:
    for name in columns:
        if name not in known:
            held = ", ".join(map(repr, known)) or "none"
            raise DataError(f"{path} has no column {name!r}; it has {held}.{hint_at_separator(known)}")
        if known.count(name) > 1:
            raise DataError(f"{path} has {known.count(name)} columns called {name!r}. Rename all but one of them.")


def check_kinds_agree(file: InputFile, first: InputFile, columns: Sequence[str]) -> Mapping[str, str]:
    """The columns that go along have one type in all files. Which it is, the first file says."""
    for name in columns[1:]:
        if file.kinds[name] != first.kinds[name]:
            raise DataError(
                f"the column {name!r} is {first.kinds[name]} in {first.path} and {file.kinds[name]} in {file.path}; "
                "give it one type, or leave it out of the columns."
            )
    return first.kinds
