"""What every result can be asked: its rows, and where it has them its words, its curves, its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, UnknownName, UsageError
from ...store.words import WordTotals

Kind = Literal["evaluation", "run", "bias"]
Cell = str | float | int | bool | None
MOST = 60  # values of a column that can be counted one by one


@dataclass(frozen=True)
class Condition:
    """Rows whose column is one of the values of `categories`, or a number from `low` up to `high`."""

    column: str
    value: str | None = None
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Query:
    """Which rows: those with `find` in a text (of the column `within`, or of any), to all conditions, in this order."""

    sort: str | None = None
    down: bool = False
    find: str = ""
    start: int = 0
    count: int = 50
    within: str | None = None
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class FoundRows:
    """Some rows of a sheet, and how many there are to these terms."""

    rows: list[list[Cell]]
    matched: int


@dataclass(frozen=True)
class Categories:
    """A column with few values: their names, and for every row which one it has."""

    names: tuple[str, ...]
    codes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sheet:
    """Named columns of one length: numbers, or texts."""

    columns: Mapping[str, NDArray[Any]]
    _categories: dict[str, Categories | None] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def is_text(self, name: str) -> bool:
        return bool(self.column(name).dtype == object)

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise UnknownName("column", name, self.columns)
        return self.columns[name]

    def find(self, query: Query) -> FoundRows:
        chosen = self.matching(query)
        if query.sort is not None:
            chosen = chosen[self._order(query.sort, chosen, query.down)]
        shown = chosen[query.start : query.start + query.count]
        return FoundRows([[json_cell(column[i]) for column in self.columns.values()] for i in shown], len(chosen))

    def matching(self, query: Query) -> NDArray[np.int64]:
        """The numbers of the rows that a query finds, in the sheet's order."""
        kept = np.ones(len(self), bool)
        for condition in query.where:
            kept &= self._to_condition(condition)
        chosen = np.flatnonzero(kept)
        if not query.find:
            return chosen
        wanted = query.find.lower()
        names = [query.within] if query.within else [name for name in self.columns if self.is_text(name)]
        columns = [self.column(name) for name in names]
        held = (any(wanted in str(column[i]).lower() for column in columns) for i in chosen)
        found: NDArray[np.int64] = chosen[np.fromiter(held, bool, len(chosen))]
        return found

    def _to_condition(self, condition: Condition) -> NDArray[np.bool_]:
        column = self.column(condition.column)
        if condition.value is not None:
            found = self.categories(condition.column)
            if found is None:
                return np.fromiter((str(value) == condition.value for value in column), bool, len(column))
            code = found.names.index(condition.value) if condition.value in found.names else -1
            same: NDArray[np.bool_] = found.codes == code
            return same
        if column.dtype == object:
            raise UsageError(f"the column {condition.column!r} holds texts: it has no range of numbers.")
        values: NDArray[np.float64] = column.astype(float)
        return (values >= condition.low) & (values <= condition.high)

    def categories(self, name: str) -> Categories | None:
        """The values of a column with at most `MOST` of them, in their order; None for other columns."""
        if name not in self._categories:
            self._categories[name] = categories_of(self.column(name))
        return self._categories[name]

    def _order(self, name: str, chosen: NDArray[np.int64], down: bool) -> NDArray[np.intp]:
        """What is no number comes last, whichever the direction."""
        values = self.column(name)[chosen]
        if self.is_text(name):
            order = np.argsort(values, kind="stable")
            return order[::-1] if down else order
        keys = values.astype(float)
        return np.argsort(np.nan_to_num(-keys if down else keys, nan=np.inf), kind="stable")


def categories_of(column: NDArray[Any]) -> Categories | None:
    if column.dtype.kind == "f" and not np.array_equal(column, np.floor(column), equal_nan=True):
        return None
    codes: dict[Any, int] = {}
    found = np.empty(len(column), np.int64)
    for i, value in enumerate(column.tolist()):
        key = None if value != value else value
        found[i] = codes.setdefault(key, len(codes))
        if len(codes) > MOST:
            return None
    values = sorted(codes, key=lambda value: (value is None, str(value) if isinstance(value, str) else value or 0))
    places = np.empty(len(values), np.int64)
    places[[codes[value] for value in values]] = np.arange(len(values))
    return Categories(tuple(map(category_name, values)), places[found] if len(found) else found)


def category_name(value: Any) -> str:
    """A value as it is shown; a number that stands for a class has no places."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def json_cell(value: Any) -> Cell:
    """As JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


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

    def words(self) -> tuple[WordTotals, ...]: ...

    def curves(self) -> list[Curves]: ...

    def explanation(self, row: int) -> Any: ...

    def colours(self, rows: Iterable[int]) -> dict[int, Any]: ...

    def page(self) -> str: ...


class DirectoryStore:
    """A result that lies in a directory, without what most results do not have."""

    def __init__(self, name: str, called: str, path: Path) -> None:
        self.id: str = name
        self.name: str = called
        self.path: Path = path

    def words(self) -> tuple[WordTotals, ...]:
        raise DataError(f"{self.name} holds no words with their relevance.")

    def curves(self) -> list[Curves]:
        raise DataError(f"{self.name} holds no curves.")

    def explanation(self, row: int) -> Any:
        raise DataError(f"{self.name} holds no explanations, only numbers.")

    def colours(self, rows: Iterable[int]) -> dict[int, Any]:
        raise DataError(f"{self.name} holds no explanations, only numbers.")
