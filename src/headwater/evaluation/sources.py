"""Labelled texts in whatever form they come, refused before any work where a row cannot be used."""

from __future__ import annotations

import csv
import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import DataError, TargetError, UnknownName, check_least, require_extra
from ..inputs.classes import Names
from ..inputs.given import is_column
from ..inputs.lines import hint_at_separator, read_lines, wide_fields
from ..inputs.table import LabelledTexts
from ..inputs.text import check_characters
from ..plurals import say_count

Columns = Mapping[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Labelled:
    """Texts or graphs with the index of their class, None where labels are not needed; `rows`: places in the source."""

    texts: list[Any]
    labels: list[int] | None
    rows: list[int]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def sha256(self) -> str:
        """Of texts (or what graphs hold) and labels in their order."""
        digest = hashlib.sha256()
        for i, text in enumerate(self.texts):
            label = None if self.labels is None else self.labels[i]
            said = text if isinstance(text, str) else text.sha256
            digest.update(json.dumps([said, label], ensure_ascii=False).encode())
        return digest.hexdigest()

    def draw(self, limit: int | None, seed: int) -> Labelled:
        """At most `limit` rows, drawn with the seed and left in their order: files are often sorted by label."""
        kept = sample_rows(len(self), limit, seed)
        if kept is None:
            return self
        labels = None if self.labels is None else [self.labels[i] for i in kept]
        return replace(self, texts=[self.texts[i] for i in kept], labels=labels, rows=[self.rows[i] for i in kept])


def sample_rows(count: int, limit: int | None, seed: int) -> list[int] | None:
    """At most `limit` of so many rows, in their order; None where that is all of them."""
    if limit is None or limit >= count:
        return None
    check_least("limit", limit)
    drawn: list[int] = sorted(np.random.default_rng(seed).permutation(count)[:limit].tolist())
    return drawn


def read_labelled(
    data: Any, text_column: str, label_column: str, names: Names, needs_label: bool, tokenizer: Any = None
) -> Labelled:
    """`data` is a path, a `LabelledTexts`, a list of (text, label), or anything with columns by name.

    Labels are class indices or names. Every row is checked here, and the first that cannot be used is named.
    """
    columns, source = columns_of(data, text_column, label_column)
    known = check_columns(columns, (text_column, label_column) if needs_label else (text_column,), source)
    texts = [text_of(value, i, source, tokenizer) for i, value in enumerate(columns[text_column])]
    if not texts:
        raise DataError(f"{source} has no rows.")
    if label_column not in known:
        return Labelled(texts, None, list(range(len(texts))), source)
    given = list(columns[label_column])
    if len(given) != len(texts):
        raise DataError(f"{source} has {say_count(len(texts), 'text')} and {say_count(len(given), 'label')}.")
    translate = match_labels(data, names, source)
    labels = [label_of(value, names, translate, i, source) for i, value in enumerate(given)]
    return Labelled(texts, labels, list(range(len(texts))), source)


def columns_of(data: Any, text_column: str, label_column: str, *others: str) -> tuple[Columns, str]:
    """Columns by name, and what to call their source. A file may have each that is named once."""
    if isinstance(data, (str, Path)):
        return columns_from_file(Path(data), (text_column, label_column, *others)), str(data)
    if isinstance(data, LabelledTexts):
        return {text_column: data.texts, label_column: data.labels}, data.source
    if is_column(data):
        raise DataError(
            f"a {type(data).__name__} has texts and no labels: pass the table with text_column= and label_column=, or "
            "list(zip(texts, labels))."
        )
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        return {name: [row.get(name) for row in data] for name in data[0]}, "the list"
    if isinstance(data, (list, tuple)):
        return from_pairs(data, text_column, label_column), "the list"
    if hasattr(data, "__getitem__") and column_names(data):
        return data, "the data"
    raise DataError(f"data must be a path, a table, columns by name, or a list of (text, label), not {data!r:.60}.")


def check_columns(columns: Any, needed: Sequence[str], source: str) -> list[str]:
    """The names of all columns, if those are there that are needed."""
    known = list(map(str, column_names(columns)))
    for name in needed:
        if name not in known:
            held = ", ".join(known) or "none"
            raise DataError(f"{source} has no column {name!r}; it has {held}.{hint_at_separator(known)}")
    return known


def column_names(columns: Any) -> list[Any]:
    """pandas and dicts name them by iteration, datasets and pyarrow by an attribute."""
    names = getattr(columns, "column_names", None)
    if names is None:
        names = getattr(columns, "columns", columns)
    return list(names) if hasattr(names, "__iter__") else []


def from_pairs(rows: Sequence[Any], text_column: str, label_column: str) -> Columns:
    for i, row in enumerate(rows):
        if not is_pair(row):
            raise DataError(f"row {i} of the list is not a (text, label): {row!r:.60}.")
    return {text_column: [row[0] for row in rows], label_column: [row[1] for row in rows]}


def is_pair(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) == 2


def columns_from_file(path: Path, wanted: Sequence[str]) -> Columns:
    readers: dict[str, Callable[[Path], Columns]] = {
        ".parquet": lambda p: columns_from_parquet(p, wanted),
        ".csv": lambda p: columns_from_csv(p, "excel", wanted),
        ".tsv": lambda p: columns_from_csv(p, "excel-tab", wanted),
        ".jsonl": from_jsonl,
        ".ndjson": from_jsonl,
    }
    return read_by_ending(path, readers)


def read_by_ending(path: Path, readers: Mapping[str, Callable[[Path], Found]]) -> Found:
    """What the reader for the ending of this file gives."""
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is none of {', '.join(readers)}.")
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    try:
        return readers[path.suffix.lower()](path)
    except (UnicodeDecodeError, OSError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def columns_from_parquet(path: Path, wanted: Sequence[str]) -> Columns:
    with require_extra(f"reading {path.name}", "data"):
        import pyarrow
        from pyarrow import parquet
    try:
        with parquet.ParquetFile(path) as file:
            check_once(file.schema_arrow.names, wanted, path)
            columns: Columns = file.read().to_pydict()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is no parquet file: {error}.") from error
    return columns


def columns_from_csv(path: Path, dialect: str, wanted: Sequence[str]) -> Columns:
    """Columns under a header line; blank lines are left out."""
    with path.open(encoding="utf-8-sig", newline="") as file, wide_fields():
        header, *rows = [row for row in csv.reader(file, dialect) if row] or [[]]
    check_once(header, wanted, path)
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise DataError(f"row {i} of {path} has {say_count(len(row), 'column')} under a header of {len(header)}.")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def from_jsonl(path: Path) -> Columns:
    """One object per line; the columns are the keys of the first. Blank lines are left out."""
    rows: list[dict[str, Any]] = []
    for i, line in enumerate(line for line in read_lines(path) if line.strip()):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise DataError(f"row {i} of {path} is no JSON object: {error}.") from error
    return {name: [row.get(name) for row in rows] for name in (rows[0] if rows else {})}


def check_once(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Of two columns with one name nobody can say which is meant."""
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(f"{path} has {names.count(name)} columns called {name!r}. Rename all but one of them.")


def text_of(value: Any, row: int, source: str, tokenizer: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"row {row} of {source}: the text is {value!r:.40}, not a string.")
    check_characters(value, f"row {row} of {source}")
    if not any(map(str.isalnum, value)) and not has_tokens(value, tokenizer):
        raise DataError(f"row {row} of {source}: the text is empty ({value!r:.40}).")
    return value


def has_tokens(text: str, tokenizer: Any) -> bool:
    """Whether a text without letters and digits is more than blanks: the tokenizer knows."""
    if not text.strip() or tokenizer is None:
        return bool(text.strip())
    return len(tokenizer(text, add_special_tokens=False)["input_ids"]) > 0


def match_labels(data: Any, names: Names, source: str) -> Sequence[int] | None:
    """Where a table names its labels and the model's classes have those names: each label's class."""
    said = data.label_names if isinstance(data, LabelledTexts) else ()
    if said and len(said) != names.size:
        labels = say_count(len(said), "label")
        raise DataError(f"{source} has {labels} ({', '.join(said)}), the model {names.size} classes.")
    if said and all(names.knows(label) for label in said):
        return [names.index(label) for label in said]
    return None


def label_of(value: Any, names: Names, translate: Sequence[int] | None, row: int, source: str) -> int:
    """The class of a label, which is an index or a name."""
    try:
        label = value.strip() if isinstance(value, str) else class_index(value)
        if isinstance(label, int) and not 0 <= label < names.size:
            raise TargetError(f"the model has {names.size} classes, 0 to {names.size - 1}.")
        found = names.index(label)
    except (UnknownName, TargetError, TypeError, ValueError) as error:
        raise DataError(f"row {row} of {source}: the model has no label {value!r}: {error}") from error
    return translate[found] if translate is not None else found


def class_index(value: Any) -> int:
    """An index, also as a number of numpy or pandas, where a column with gaps holds floats."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a class is an index or a name, not a truth value.")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    return operator.index(value)
