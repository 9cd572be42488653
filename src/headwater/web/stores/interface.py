"""What every result can be asked: its rows, and where it has them its words, its curves, its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, UnknownName

Kind = Literal["evaluation", "run", "bias"]
Cell = str | float | int | bool | None


@dataclass(frozen=True)
class Query:
    """Which rows: those with `find` in one of their texts, in this order, from `start` on."""

    sort: str | None = None
    down: bool = False
    find: str = ""
    start: int = 0
    count: int = 50


@dataclass(frozen=True)
class FoundRows:
    """Some rows of a sheet, and how many there are to these terms."""

    rows: list[list[Cell]]
    matched: int


@dataclass(frozen=True, eq=False)
class Sheet:
    """Named columns of one length: numbers, or texts."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def is_text(self, name: str) -> bool:
        return self.columns[name].dtype == object

    def find(self, query: Query) -> FoundRows:
        chosen = self._matching(query.find)
        if query.sort is not None:
            if query.sort not in self.columns:
                raise UnknownName("column", query.sort, self.columns)
            chosen = chosen[self._order(query.sort, chosen, query.down)]
        shown = chosen[query.start : query.start + query.count]
        return FoundRows([[json_cell(column[i]) for column in self.columns.values()] for i in shown], len(chosen))

    def _matching(self, find: str) -> NDArray[np.int64]:
        everything = np.arange(len(self))
        if not find:
            return everything
        wanted, kept = find.lower(), np.zeros(len(self), bool)
        for name, column in self.columns.items():
            if self.is_text(name):
                kept |= np.fromiter((wanted in str(text).lower() for text in column), bool, len(column))
        return everything[kept]

    def _order(self, name: str, chosen: NDArray[np.int64], down: bool) -> NDArray[np.intp]:
        values = self.columns[name][chosen]
        keys = values.astype(str) if self.is_text(name) else np.nan_to_num(values.astype(float), nan=-np.inf)
        order = np.argsort(keys, kind="stable")
        return order[::-1] if down else order


def json_cell(value: Any) -> Cell:
    """As JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


@dataclass(frozen=True)
class WordTotal:
    """A word over all rows: how often it stands there, its mean relevance and the sum."""

    text: str
    count: int
    mean: float
    total: float


@dataclass(frozen=True)
class Words:
    """The words that matter most, from those that add most to those that take away most; `rows` were counted."""

    words: Sequence[WordTotal]
    rows: int


@dataclass(frozen=True)
class MethodCurve:
    method: str
    mean: list[float]
    area: float


@dataclass(frozen=True)
class Curves:
    """Mean curves of one measure, a series a method; `axes` are what it has across and up."""

    name: str
    better: str
    fractions: list[float]
    series: list[MethodCurve]
    axes: tuple[str, str]


class Store(Protocol):
    """One result. What it does not have, it says with a `DataError`."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    def facts(self) -> list[tuple[str, str]]: ...

    def sheet(self) -> Sheet: ...

    def words(self) -> Words: ...

    def curves(self) -> list[Curves]: ...

    def explanation(self, row: int) -> Any: ...

    def page(self) -> str: ...


class Lacking:
    """What most results do not have."""

    id: str
    name: str

    def words(self) -> Words:
        raise DataError(f"{self.name} holds no words with their relevance.")

    def curves(self) -> list[Curves]:
        raise DataError(f"{self.name} holds no curves.")

    def explanation(self, row: int) -> Any:
        raise DataError(f"{self.name} holds no explanations, only numbers.")
