"""What `headwater run` wrote: explanations of a whole dataset, in shards, as a sheet of rows and words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import DataError, MissingExtra
from ...explanation import Explanation, Provenance
from ...ledger import Ledger, Lines
from .interface import Lacking, Sheet, Word, Words

ROWS = 200_000  # that are sorted and searched
COUNTED = 20_000  # whose words are added up
LEAST = 3  # times that a word must stand somewhere to be listed
FIRST = ("row_id", "prediction", "score", "inputs", "biases", "unaccounted", "closed", "text")
HEAVY = {
    *("tokens", "relevance", "special", "starts", "ends", "word_ids", "segments", "bias_lines", "constant_lines"),
    *("target", "output", "ledger_error", "magnitude", "precision", "method", "at", "windows", "constants", "readout"),
}


class RunStore(Lacking):
    """One run, read when it is first asked; of a run that goes on, the shards that are done then."""

    kind: Literal["run"] = "run"

    def __init__(self, name: str, called: str, path: Path) -> None:
        self.id, self.name, self.path = name, called, path
        self._lock = threading.Lock()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.name} cannot be read: {error}.") from error
        if found.get("format") != 1:
            raise DataError(f"{self.name} has the format {found.get('format')!r}; this version reads 1.")
        return found

    @cached_property
    def shards(self) -> list[Path]:
        return sorted((self.path / "shards").glob("shard-*.parquet"))

    def facts(self) -> list[tuple[str, str]]:
        asked, made = self.manifest.get("asked", {}), self.manifest.get("provenance", {})
        return [
            ("model", str(made.get("model", ""))),
            ("method", str(asked.get("method", ""))),
            ("rows", f"{self.manifest.get('rows', 0):,}"),
            ("not explained", f"{self.manifest.get('errors', 0):,}"),
            ("open ledgers", f"{self.manifest.get('open_ledgers', 0):,}"),
            ("state", str(self.manifest.get("state", ""))),
        ]

    def sheet(self) -> Sheet:
        with self._lock:
            return self._sheet

    @cached_property
    def _sheet(self) -> Sheet:
        kept: dict[str, list[NDArray[Any]]] = {}
        rows = 0
        for table in self._tables(None):
            rows += table.num_rows
            for name in self._shown(table.column_names):
                kept.setdefault(name, []).append(as_column(table.column(name)))
            if rows >= ROWS:
                break
        return Sheet({name: np.concatenate(parts)[:ROWS] for name, parts in kept.items()})

    def _shown(self, names: list[str]) -> list[str]:
        first = [name for name in FIRST if name in names]
        return [*first[:-1], *(n for n in names if n not in HEAVY and n not in FIRST), *first[-1:]]

    def _tables(self, columns: list[str] | None) -> Iterator[Any]:
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise MissingExtra("reading a run", "data") from error
        for file in self.shards:
            try:
                names = parquet.read_schema(file).names
                light = [n for n in names if n not in HEAVY] if columns is None else columns
                yield parquet.read_table(file, columns=light)
            except (OSError, ValueError) as error:
                raise DataError(f"{file.name} of {self.name} cannot be read: {error}.") from error

    def words(self) -> Words:
        with self._lock:
            return self._words

    @cached_property
    def _words(self) -> Words:
        sums: dict[str, list[float]] = {}
        rows = 0
        for table in self._tables(["text", "relevance", "special", "starts", "ends", "word_ids"]):
            counted = table.slice(0, COUNTED - rows)
            rows += counted.num_rows
            for record in counted.to_pylist():
                for word, amount in words_in(record):
                    sums.setdefault(word, []).append(amount)
            if rows >= COUNTED:
                break
        found = [Word(w, len(a), sum(a) / len(a), sum(a)) for w, a in sums.items() if len(a) >= min(LEAST, rows)]
        return Words(sorted(found, key=lambda word: -word.total), rows)

    def explanation(self, row: int) -> Explanation:
        """One row as `explain` gave it."""
        from pyarrow import parquet

        for file in self.shards:
            found = parquet.read_table(file, filters=[("row_id", "=", row)]).to_pylist()
            if found:
                return explanation_of(found[0], self.manifest)
        raise DataError(f"{self.name} holds no row {row}.")

    def page(self) -> str:
        from .run_page import page

        return page(self.name, self.facts(), self.words(), self.sheet())


def as_column(column: Any) -> NDArray[Any]:
    """Numbers as numbers, everything else as text."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False)) if column.null_count == 0 else as_floats(column)
    return np.array(["" if value is None else str(value) for value in column.to_pylist()], object)


def as_floats(column: Any) -> NDArray[Any]:
    return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])


def words_in(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The words of a text in lower case, each with the relevance of its tokens."""
    if record["starts"] is None or record["word_ids"] is None:
        return
    sums: dict[Any, float] = {}
    spans: dict[Any, tuple[int, int]] = {}
    columns = (record[name] for name in ("word_ids", "relevance", "special", "starts", "ends"))
    for word, amount, special, start, end in zip(*columns, strict=True):
        if special or word is None:
            continue
        sums[word] = sums.get(word, 0.0) + amount
        spans[word] = (spans.get(word, (start, end))[0], end)
    for word, amount in sums.items():
        yield record["text"][slice(*spans[word])].strip().lower(), amount


def explanation_of(record: dict[str, Any], manifest: dict[str, Any]) -> Explanation:
    made: dict[str, Any] = manifest.get("provenance", {})
    starts, ends = record["starts"], record["ends"]
    ledger = Ledger(
        score=record["score"],
        inputs=record["inputs"],
        biases=Lines(dict(record["bias_lines"])),
        constants=Lines(dict(record["constant_lines"])),
        readout=record["readout"],
        dtype=record["precision"],
        magnitude=record["magnitude"] or 0.0,
    )
    return Explanation(
        tokens=tuple(record["tokens"]),
        relevance=torch.tensor(record["relevance"], dtype=torch.float64),
        score=record["score"],
        target=record["target"],
        ledger=ledger,
        method=record["method"],
        provenance=Provenance(**{name: made.get(name, "") for name in Provenance.__dataclass_fields__}),
        text=record["text"],
        prediction=record["prediction"],
        output=record["output"],
        at=record["at"],
        special=tuple(record["special"]),
        offsets=None if starts is None else tuple(zip(starts, ends, strict=True)),
        word_ids=None if record["word_ids"] is None else tuple(record["word_ids"]),
        windows=record["windows"],
    )
