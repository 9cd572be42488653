"""Phrases of given groups in a text: whole words, the longest match first, whatever their case."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import DataError
from .finding import Hit, Occurrences

PIECE = re.compile(r"\w+(?:['’](?!s\b)\w+)*|[^\w\s]")
SHARED = "in more than one group"


@dataclass(frozen=True)
class Member:
    """A phrase, cut in pieces to be compared. Without a group it stands in several, and tells nothing of any."""

    phrase: str
    pieces: tuple[str, ...]
    group: str | None


@dataclass(frozen=True)
class PhraseFinder:
    """Looks phrases up by their first word, so that thousands of them cost no more than a few."""

    groups: tuple[str, ...]
    source: str
    sha256: str
    case: bool
    members: tuple[Member, ...]
    table: Mapping[str, Sequence[Member]]

    @classmethod
    def of(cls, phrases: Mapping[str, Sequence[str]], source: str, case: bool = False) -> PhraseFinder:
        """Phrases by group. `case`: whether capitals must agree."""
        if not phrases:
            raise DataError(f"{source} has no groups.")
        members = tuple(members_of(phrases, case))
        for group, many in phrases.items():
            if not many:
                raise DataError(f"the group {group!r} in {source} has no phrases.")
            if all(member.group != group for member in members):
                raise DataError(f"every phrase of the group {group!r} in {source} stands in another group, too.")
        table: dict[str, list[Member]] = defaultdict(list)
        for member in sorted(members, key=lambda m: -len(m.pieces)):
            table[member.pieces[0]].append(member)
        return cls(tuple(phrases), source, hash_phrases(phrases, case), case, members, table)

    @property
    def rule(self) -> str:
        shared = [member.phrase for member in self.members if member.group is None]
        said = f"{len(self.members) - len(shared)} phrases, found as whole words, the longest first, "
        said += f"{'with' if self.case else 'without'} regard to capitals."
        if shared:
            said += f" Set aside because they stand in more than one group: {len(shared)} ({list_some(shared)})."
        return said

    def find(self, text: str) -> Occurrences:
        matches = list(PIECE.finditer(text))
        pieces = [fold_case(match.group(), self.case) for match in matches]
        hits: list[Hit] = []
        skipped: list[tuple[str, str]] = []
        place = 0
        while place < len(pieces):
            met = self.longest(pieces, place)
            if met is None:
                place += 1
                continue
            end = place + len(met.pieces)
            if met.group is None:
                skipped.append((met.phrase, SHARED))
            else:
                hits.append(Hit(met.group, met.phrase, matches[place].start(), matches[end - 1].end()))
            place = end
        return Occurrences(tuple(hits), tuple(skipped))

    def longest(self, pieces: Sequence[str], place: int) -> Member | None:
        for member in self.table.get(pieces[place], ()):
            if tuple(pieces[place : place + len(member.pieces)]) == member.pieces:
                return member
        return None


def members_of(phrases: Mapping[str, Sequence[str]], case: bool) -> list[Member]:
    """Every phrase once; where several groups have it, without a group."""
    found: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for group, many in phrases.items():
        for phrase in many:
            found[cut(phrase, case)].setdefault(group, " ".join(phrase.split()))
    return [
        Member(next(iter(shown.values())), pieces, next(iter(shown)) if len(shown) == 1 else None)
        for pieces, shown in found.items()
    ]


def cut(phrase: str, case: bool) -> tuple[str, ...]:
    return tuple(fold_case(piece, case) for piece in PIECE.findall(phrase))


def fold_case(piece: str, case: bool) -> str:
    return piece if case else piece.casefold()


def hash_phrases(phrases: Mapping[str, Sequence[str]], case: bool) -> str:
    """Of groups and phrases, whatever their order."""
    content = {group: sorted({" ".join(cut(phrase, case)) for phrase in many}) for group, many in phrases.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def list_some(words: Sequence[str], most: int = 5) -> str:
    """The first few, and that there are more; the most frequent first where a word stands several times."""
    ordered = [word for word, _ in Counter(words).most_common()]
    return ", ".join(ordered[:most]) + (", …" if len(ordered) > most else "")
