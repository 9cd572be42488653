"""Where groups come from: the list of names by gender, a file, or phrases handed over."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, UnknownName, UsageError
from ..evaluation.sources import read_by_ending
from ..plurals import say_count
from .finding import Finder
from .names import gender_names
from .phrases import PhraseFinder

GENDER_NAMES = "gender-names"
ENTITIES = "entities"
SHIPPED = {ENTITIES: Path(__file__).parent / "lists" / "entities.json"}
COLUMNS = ("phrase", "group")


def read_groups(groups: Any, case: bool = False) -> Finder:
    """`groups` is "gender-names", "entities", a file (.json, .csv, .tsv), phrases by group, or a finder of your own."""
    if isinstance(groups, str) and groups == GENDER_NAMES:
        return gender_names()
    if isinstance(groups, str) and groups in SHIPPED:
        return PhraseFinder.of(groups_from_file(SHIPPED[groups]), groups, case)
    if isinstance(groups, Mapping):
        return PhraseFinder.of(dict(check_phrases(groups, "the mapping")), "the mapping", case)
    if isinstance(groups, (str, Path)):
        return PhraseFinder.of(groups_from_file(Path(groups)), str(groups), case)
    if hasattr(groups, "find") and hasattr(groups, "groups"):
        finder: Finder = groups
        return finder
    raise UsageError(f"groups must be {GENDER_NAMES!r}, a file, or phrases by group, not {type(groups).__name__}.")


def groups_from_file(path: Path) -> dict[str, list[str]]:
    readers = {
        ".json": from_json,
        ".csv": lambda p: from_rows(p, "excel"),
        ".tsv": lambda p: from_rows(p, "excel-tab"),
    }
    if not path.is_file() and not path.suffix:
        raise UnknownName("set of groups", str(path), (GENDER_NAMES, *SHIPPED))
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    return read_by_ending(path, readers)


def from_json(path: Path) -> dict[str, list[str]]:
    """{"group": ["phrase", …], …}."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: no JSON ({error.msg}).") from error
    if not isinstance(found, dict):
        raise DataError(f'{path} must hold one object, phrases by group: {{"group": ["phrase", …]}}.')
    return dict(check_phrases(found, str(path)))


def check_phrases(found: Mapping[Any, Any], source: str) -> Iterator[tuple[str, list[str]]]:
    """Groups whose phrases are strings with something in them."""
    for group, phrases in found.items():
        if isinstance(phrases, str) or not isinstance(phrases, (Sequence, set, frozenset)):
            raise DataError(f"the group {group!r} in {source} must be a list of phrases, not {phrases!r:.40}.")
        for number, phrase in enumerate(phrases):
            if not isinstance(phrase, str) or not any(map(str.isalnum, phrase)):
                raise DataError(f"the group {group!r} in {source}: phrase {number} is {phrase!r:.40}.")
        yield str(group), list(phrases)


def from_rows(path: Path, dialect: str) -> dict[str, list[str]]:
    """Columns `phrase` and `group` under a header line; other columns are not read."""
    members: dict[str, list[str]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, dialect)
        header = [name.strip() for name in next(rows, [])]
        for name in COLUMNS:
            if name not in header:
                raise DataError(f"{path} has no column {name!r} in its first line; needed are phrase and group.")
        for row in rows:
            if any(cell.strip() for cell in row):
                phrase, group = split_row(row, header, f"{path}, line {rows.line_num}")
                members.setdefault(group, []).append(phrase)
    return members


def split_row(row: Sequence[str], header: Sequence[str], place: str) -> tuple[str, str]:
    if len(row) != len(header):
        raise DataError(f"{place}: {say_count(len(row), 'column')} under a header of {len(header)}.")
    phrase, group = (row[header.index(name)].strip() for name in COLUMNS)
    if not any(map(str.isalnum, phrase)):
        raise DataError(f"{place}: the phrase is {phrase!r}.")
    if not group:
        raise DataError(f"{place}: the phrase {phrase!r} has no group.")
    return phrase, group
