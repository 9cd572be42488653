"""What `headwater bias --out` wrote: every mention of a group's members, and a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ...store.words import WordTotal, WordTotals
from .interface import DirectoryStore, Sheet

NUMBERS = ("row", "relevance", "score")
LEFT_OUT = ("start", "end")
LARGEST = 10**7  # characters of a field; csv allows less by default


class BiasStore(DirectoryStore):
    """One bias audit, read when it is first asked."""

    kind: Literal["bias"] = "bias"

    @cached_property
    def found(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads((self.path / "audit.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.name} cannot be read: {error}.") from error
        return said

    def facts(self) -> list[tuple[str, str]]:
        made = self.found.get("provenance", {})
        return [
            ("model", str(made.get("model", ""))),
            ("score", str(self.found.get("target", ""))),
            ("method", str(self.found.get("method", ""))),
            ("texts", f"{self.found.get('texts', 0):,}"),
            ("mentions", f"{len(self.sheet()):,}"),
        ]

    def sheet(self) -> Sheet:
        return self._sheet

    @cached_property
    def _sheet(self) -> Sheet:
        records = list(self._records())
        names = [name for name in (records[0] if records else {}) if name not in LEFT_OUT]
        columns: dict[str, NDArray[Any]] = {}
        for name in names:
            values = [record[name] for record in records]
            columns[name] = np.array([float(v) for v in values]) if name in NUMBERS else np.array(values, object)
        return Sheet(columns)

    def _records(self) -> Iterator[dict[str, str]]:
        csv.field_size_limit(LARGEST)
        try:
            with (self.path / "mentions.csv").open(encoding="utf-8", newline="") as file:
                yield from csv.DictReader(file)
        except (OSError, csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{self.name}'s mentions cannot be read: {error}.") from error

    def words(self) -> tuple[WordTotals, ...]:
        """The names that push most to each side of the one score that all texts were explained for."""
        found = [
            WordTotal(one["name"], one["mentions"], one["mean"], one["mean"] * one["mentions"])
            for one in self.found.get("names", [])
        ]
        found.sort(key=lambda word: -word.total)
        return (WordTotals(str(self.found.get("target", "")), int(self.found.get("texts", 0)), tuple(found), ()),)

    def page(self) -> str:
        try:
            return (self.path / "page.html").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.name} has no page.html beside its results.") from error
