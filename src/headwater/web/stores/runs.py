"""What `headwater run` wrote: explanations of a whole dataset, in shards, as a sheet of rows and words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ...results.explanation import Explanation
from ...store.runs import StoredRun, open_run
from .interface import Lacking, Sheet, Words, WordTotal

ROWS = 200_000  # that are sorted and searched
BYTES = 256 * 2**20  # of these rows: long texts make fewer of them
COUNTED = 20_000  # whose words are added up
LEAST = 3  # times that a word must stand somewhere to be listed
NUMBERS = ("row_id", "prediction", "score", "inputs", "biases", "unaccounted", "closed")
PLACED = ("text", "relevance", "special", "starts", "ends", "word_ids")


class RunStore(Lacking):
    """One run, read when it is first asked; of a run that goes on, the shards that are done then."""

    kind: Literal["run"] = "run"

    def __init__(self, name: str, called: str, path: Path) -> None:
        self.id, self.name, self.path = name, called, path
        self._lock = threading.Lock()  # a run has one file open at a time

    @cached_property
    def run(self) -> StoredRun:
        return open_run(self.path)

    def facts(self) -> list[tuple[str, str]]:
        about, shown = self.run.manifest, len(self.sheet())
        target = about.asked.get("target")
        return [
            ("model", self.run.provenance.model),
            ("method", self.run.method),
            ("score", "of the predicted class" if target is None else str(target)),
            ("rows", f"{about.counts.rows:,}"),
            *([("in this view", f"the first {shown:,} rows")] if shown < about.counts.rows else []),
            ("not explained", f"{about.counts.errors:,}"),
            ("open ledgers", f"{about.counts.open:,}"),
            ("state", about.state),
        ]

    def sheet(self) -> Sheet:
        with self._lock:
            return self._sheet

    @cached_property
    def _sheet(self) -> Sheet:
        """What is short of every row; texts last, since they are wide."""
        shown = [*NUMBERS, *(name for name in self.run.manifest.columns.values() if name != "text"), "text"]
        kept: dict[str, list[NDArray[Any]]] = {name: [] for name in shown}
        rows = size = 0
        for batch in self.run.batches(shown):
            for name in shown:
                kept[name].append(as_column(batch.column(name)))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= ROWS or size >= BYTES:
                break
        return Sheet({name: np.concatenate(parts)[:ROWS] for name, parts in kept.items() if parts})

    def words(self) -> Words:
        with self._lock:
            return self._words

    @cached_property
    def _words(self) -> Words:
        sums: dict[str, tuple[int, float]] = {}
        rows = 0
        for record in islice(self.run.rows([*PLACED]), COUNTED):
            rows += 1
            for word, amount in words_in(record):
                count, total = sums.get(word, (0, 0.0))
                sums[word] = (count + 1, total + amount)
        found = [WordTotal(word, n, total / n, total) for word, (n, total) in sums.items() if n >= min(LEAST, rows)]
        return Words(sorted(found, key=lambda word: -word.total), rows)

    def explanation(self, row: int) -> Explanation:
        """One row as `explain` gave it."""
        with self._lock:
            found = self.run.explanation(row)
        if found is None:
            raise DataError(f"{self.name} holds no explanation of row {row}: there is none, or none was possible.")
        return found

    def page(self) -> str:
        from .run_page import run_page

        return run_page(self.name, self.facts(), self.words(), self.sheet())


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
