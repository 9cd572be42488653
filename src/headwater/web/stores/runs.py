"""What `headwater run` wrote: explanations of a whole dataset, in shards, as a sheet of rows and words."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ...plurals import say_count
from ...results.explanation import Explanation
from ...store.columns import LATER, RESERVED
from ...store.runs import StoredRun, open_run
from ...store.unit_totals import UnitTotal
from ...store.words import PLACED, WordTotals
from .interface import DirectoryStore, Sheet
from .run_page import PARTS, run_page

ROWS = 200_000  # that are sorted and searched
BYTES = 256 * 2**20  # of these rows: long texts make fewer of them
COUNTED = 20_000  # whose words are added up
SELDOM = ("constants", "cut_off", "held", "readout")  # shown where a row has some
NUMBERS = ("row_id", "prediction", "score", *PARTS, "closed")
NO_LEDGER: dict[str, Any] = {"bias_lines": (), "constant_lines": (), "cut_off_lines": (), "held_lines": ()}
RESERVED_SHORT = tuple(name for name in RESERVED if name not in NO_LEDGER and name not in LATER)


class RunStore(DirectoryStore):
    """One run, read when it is first asked; of a run that goes on, the shards that are done then."""

    kind: Literal["run"] = "run"

    def __init__(self, name: str, called: str, path: Path) -> None:
        super().__init__(name, called, path)
        self._lock = threading.Lock()  # a run has one file open at a time
        self._units: dict[tuple[str, int, int, int], list[UnitTotal]] = {}

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
            *([("in this view", f"the first {say_count(shown, 'row')}")] if shown < about.counts.rows else []),
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
            held = set(batch.schema.names)  # runs of earlier versions have no column for what is cut off
            for name in shown:
                kept[name].append(as_column(batch.column(name)) if name in held else np.zeros(batch.num_rows))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= ROWS or size >= BYTES:
                break
        found = {name: np.concatenate(parts)[:ROWS] for name, parts in kept.items() if parts}
        return Sheet({name: column for name, column in found.items() if name not in SELDOM or column.any()})

    def words(self) -> tuple[WordTotals, ...]:
        with self._lock:
            return self._words

    @cached_property
    def _words(self) -> tuple[WordTotals, ...]:
        return self.run.words(COUNTED)

    def explanations(self, rows: Iterable[int]) -> dict[int, Explanation]:
        """Some rows as `explain` gave them; what is not there is left out."""
        with self._lock:
            return self.run.explanations_by_id(rows)

    def colours(self, rows: Iterable[int]) -> dict[int, Explanation]:
        """The same with an empty ledger: to be coloured they need no more, and the lines of ledgers are long."""
        with self._lock:
            found = self.run.rows_by_id(rows, [*RESERVED_SHORT])
            return {i: self.run.make_explanation({**NO_LEDGER, **row}) for i, row in found.items()}

    def relevance(self, rows: int) -> dict[int, dict[str, Any]]:
        """What the words of the first rows are made of, by row number."""
        with self._lock:
            return {row["row_id"]: row for row in islice(self.run.rows(["row_id", *PLACED]), rows)}

    def explanation(self, row: int) -> Explanation:
        """One row as `explain` gave it."""
        found = self.explanations([row]).get(row)
        if found is None:
            raise DataError(f"{self.name} holds no explanation of row {row}: there is none, or none was possible.")
        return found

    def units(self, kind: str, count: int, tokens: int, rows: int) -> list[UnitTotal]:
        """Heads or neurons over the first rows, where the run holds them."""
        with self._lock:
            asked = (kind, count, tokens, rows)
            if asked not in self._units:
                self._units[asked] = self.run.units(*asked)
            return self._units[asked]

    def page(self) -> str:
        return run_page(self.name, self.facts(), self.words(), self.sheet())


def as_column(column: Any) -> NDArray[Any]:
    """Numbers as numbers, everything else as text."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False)) if column.null_count == 0 else as_floats(column)
    return np.array(["" if value is None else str(value) for value in column.to_pylist()], object)


def as_floats(column: Any) -> NDArray[Any]:
    return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
