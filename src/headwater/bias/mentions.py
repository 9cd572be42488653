"""Relevance of group members: the tokens under each mention, summed.

Nothing here knows a model: what is needed of a text is where its tokens stand, what each brought to the score, and the
score. It may come from an explanation that was just made, or from one that was stored long ago.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InputError
from ..results.explanation import Explanation
from .finding import Finder, Hit

WORD = re.compile(r"\S*\w\S*")
CUT_OFF = "past the model's length"


@dataclass(frozen=True)
class Explained:
    """A text whose tokens have a relevance; `offsets` are character positions, equal ends for special tokens."""

    text: str
    offsets: Sequence[tuple[int, int]]
    relevance: Sequence[float]
    score: float
    row: int = 0
    part: str = ""
    prediction: str | None = None
    closed: bool = True

    @classmethod
    def of(cls, explanation: Explanation, row: int = 0, part: str = "") -> Explained:
        if explanation.offsets is None or not isinstance(explanation.text, str):
            raise InputError("finding words in a text needs character offsets, which only a fast tokenizer gives.")
        values = explanation.relevance.double().tolist()[: len(explanation.offsets)]
        offsets, prediction, closed = explanation.offsets, explanation.prediction, explanation.ledger.closed
        return cls(explanation.text, offsets, values, explanation.score, row, part, prediction, closed)

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens that stand between two character positions, at least in part."""
        return [i for i, (a, b) in enumerate(self.offsets) if a < end and b > start and b > a]

    def between(self, start: int, end: int) -> float:
        """Their relevance, summed."""
        return float(sum(self.relevance[i] for i in self.tokens(start, end)))


@dataclass(frozen=True)
class Mention:
    """A member of a group in a text, with what it brought to the text's score.

    `entry` is the group's phrase (a first name, say), `name` what stands in the text, `rest` what everything else
    brought: the score without it.
    """

    group: str
    entry: str
    name: str
    relevance: float
    score: float
    row: int
    start: int
    end: int
    text: str = field(repr=False)
    part: str = ""
    prediction: str | None = None

    @property
    def rest(self) -> float:
        return self.score - self.relevance

    @property
    def words(self) -> int:
        return len(self.name.split())


@dataclass(frozen=True)
class Collected:
    """Every mention of a corpus, and what was met and not counted. `outside`: |relevance| of the other words, each.

    `texts` were looked through, `explained` of them have a relevance, `unclosed` of these a ledger that does not close.
    """

    mentions: tuple[Mention, ...]
    skipped: tuple[tuple[str, str], ...]
    outside: tuple[float, ...]
    in_part: Mapping[str, int]
    explained: int
    unclosed: int

    @property
    def texts(self) -> int:
        return sum(self.in_part.values())

    def plus(self, skipped: Iterable[tuple[str, str]], parts: Iterable[str]) -> Collected:
        """The same with texts that hold no mention and were not explained: what was skipped there, and their parts."""
        counts = Counter(self.in_part) + Counter(parts)
        return replace(self, skipped=(*self.skipped, *skipped), in_part=counts)


def collect(explained: Iterable[Explained], finder: Finder) -> Collected:
    """All mentions of the groups in texts that were explained."""
    mentions: list[Mention] = []
    skipped: list[tuple[str, str]] = []
    outside: list[float] = []
    parts: Counter[str] = Counter()
    unclosed = 0
    for one in explained:
        found = finder.find(one.text)
        kept = [hit for hit in found.hits if one.tokens(hit.start, hit.end)]
        skipped += [*found.skipped, *((hit.entry, CUT_OFF) for hit in found.hits if hit not in kept)]
        mentions += [mention(one, hit) for hit in kept]
        outside += words_outside(one, kept) if kept else []
        parts[one.part] += 1
        unclosed += not one.closed
    return Collected(tuple(mentions), tuple(skipped), tuple(outside), parts, sum(parts.values()), unclosed)


def mention(one: Explained, hit: Hit) -> Mention:
    return Mention(
        group=hit.group,
        entry=hit.entry,
        name=" ".join(one.text[hit.start : hit.end].casefold().split()),
        relevance=one.between(hit.start, hit.end),
        score=one.score,
        row=one.row,
        start=hit.start,
        end=hit.end,
        text=one.text,
        part=one.part,
        prediction=one.prediction,
    )


def words_outside(one: Explained, hits: Sequence[Hit]) -> Iterator[float]:
    """|relevance| of every word that is part of no mention."""
    for word in WORD.finditer(one.text):
        start, end = word.span()
        if all(end <= hit.start or start >= hit.end for hit in hits) and one.tokens(start, end):
            yield abs(one.between(start, end))
