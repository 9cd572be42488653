"""Members of groups in a text: what a finder gives, whatever it looks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Hit:
    """A member of a group at a place in a text. `entry` is what the list has, `text[start:end]` what stands there."""

    group: str
    entry: str
    start: int
    end: int


@dataclass(frozen=True)
class Occurrences:
    """What stands in one text: hits in their order, and list entries that were met and not counted, with the reason."""

    hits: tuple[Hit, ...]
    skipped: tuple[tuple[str, str], ...] = ()


class Finder(Protocol):
    """Finds the members of some groups. `source` says where the groups come from, `rule` in words how they are found.

    Write your own to audit what no list of phrases can hold; `find` must depend on nothing but the text.
    """

    @property
    def groups(self) -> tuple[str, ...]: ...

    @property
    def source(self) -> str: ...

    @property
    def rule(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    def find(self, text: str) -> Occurrences: ...
