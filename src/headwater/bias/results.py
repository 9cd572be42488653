"""The result of a bias audit: a value. Everything that is said of groups comes from its mentions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..errors import UnknownName, UsageError
from ..evaluation.statistics import MeanEstimate
from ..results.display import FILE, find_form
from .calibration import Calibration
from .effects import Effect
from .mentions import Mention


@dataclass(frozen=True)
class GroupSummary:
    """The relevance of one group's mentions. `entries` are its different phrases, `names` what stands in the texts.

    `positive`: the share of mentions that add to the score; `words`: words a mention has on average; `score`: the mean
    score of the texts they stand in.
    """

    name: str
    mentions: int
    entries: int
    names: int
    texts: int
    mean: MeanEstimate
    median: float
    deviation: float
    positive: float
    words: float
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "mean": self.mean.to_dict()}


@dataclass(frozen=True)
class GroupComparison:
    """How two groups differ: as it is (`effect`), and with the texts around them accounted for (`adjusted`).

    The adjustment takes out what the rest of the text's score and the number of words of a mention foretell.
    `corrected` is the permutation test's p for the number of comparisons that were made (Holm); `enough` says whether
    both groups are large enough to say anything, `verdict` what it comes to, in a sentence.
    """

    first: str
    second: str
    effect: Effect
    adjusted: Effect
    corrected: float
    enough: bool
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        both = {"effect": self.effect.to_dict(), "adjusted": self.adjusted.to_dict()}
        return {**vars(self), **both}


@dataclass(frozen=True)
class Stratum:
    """Groups and their comparisons, in all texts or in one part of them."""

    name: str
    texts: int
    groups: tuple[GroupSummary, ...]
    comparisons: tuple[GroupComparison, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "texts": self.texts,
            "groups": [group.to_dict() for group in self.groups],
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
        }


@dataclass(frozen=True)
class Swap:
    """How the score differs when members of one group stand where members of the other do, in the same `places`.

    `trials` texts were asked. The difference is of scores, not of relevance.
    """

    first: str
    second: str
    effect: Effect
    places: int
    trials: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "effect": self.effect.to_dict()}


@dataclass(frozen=True)
class Ranked:
    """A name with the relevance of all its mentions."""

    name: str
    group: str
    mentions: int
    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Skipped:
    """List entries that were met and not counted, for one reason; `words` are the most frequent with their counts."""

    reason: str
    occurrences: int
    words: tuple[tuple[str, int], ...]

    def to_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "occurrences": self.occurrences, "words": dict(self.words)}


@dataclass(frozen=True)
class BiasAudit:
    """Relevance of groups of words over a set of texts: `b["female"].mean`, `b.compare("female", "male").effect.d`.

    `whole` holds groups and comparisons over all texts, `parts` the same for each part of the data. `names` are ordered
    from what pushes most towards the score to what pushes most away from it. `typical`: mean |relevance| of a word
    outside the groups in the same texts, to judge sizes by. `swaps` says what happens to the score when members change
    places, `calibrations` what the test says of random labels, if that was asked. `provenance` holds what is needed to
    repeat it.
    """

    target: str  # the score: a class, or a difference of two
    method: str  # that gave the relevance
    rule: str  # how the relevance of a word's tokens became one number
    texts: int  # how many were explained
    typical: float  # mean |relevance| of a word outside the groups
    whole: Stratum  # groups and comparisons over all texts
    parts: tuple[Stratum, ...]  # the same for each part of the data
    names: tuple[Ranked, ...] = field(repr=False)  # members of the groups, the strongest push first
    mentions: tuple[Mention, ...] = field(repr=False)  # every member found in a text, with its relevance
    skipped: tuple[Skipped, ...] = field(repr=False)  # texts that were left out, and why
    warnings: tuple[str, ...]  # what a reader must know before believing it
    provenance: Mapping[str, Any] = field(repr=False)  # what is needed to repeat it
    swaps: tuple[Swap, ...] = ()  # the score with members changed for others
    calibrations: tuple[Calibration, ...] = ()  # what the test says of random labels

    @property
    def groups(self) -> tuple[GroupSummary, ...]:
        """The names of the groups."""
        return self.whole.groups

    @property
    def comparisons(self) -> tuple[GroupComparison, ...]:
        """Every pair of groups, compared."""
        return self.whole.comparisons

    def __getitem__(self, group: str) -> GroupSummary:
        for found in self.groups:
            if found.name == group:
                return found
        raise UnknownName("group with mentions", group, [g.name for g in self.groups])

    def compare(self, first: str, second: str) -> GroupComparison:
        """The comparison of two groups, as it was made, in which `second` may come before `first`."""
        pair = {self[first].name, self[second].name}
        for found in self.comparisons:
            if {found.first, found.second} == pair:
                return found
        raise UsageError(f"{first!r} and {second!r} are one group: there is nothing to compare.")

    def strongest(self, count: int, towards: bool) -> list[Mention]:
        """The `count` mentions with the largest relevance `towards` the score; with `towards=False`, with the most
        negative.
        """
        ordered = sorted(self.mentions, key=lambda m: -m.relevance if towards else m.relevance)
        return [m for m in ordered[:count] if (m.relevance > 0) == towards]

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; of the mentions the 20 strongest of each side."""
        return {
            "target": self.target,
            "method": self.method,
            "rule": self.rule,
            "texts": self.texts,
            "typical": self.typical,
            "warnings": list(self.warnings),
            "whole": self.whole.to_dict(),
            "parts": [part.to_dict() for part in self.parts],
            "swaps": [swap.to_dict() for swap in self.swaps],
            "calibrations": [one.to_dict() for one in self.calibrations],
            "names": [name.to_dict() for name in self.names],
            "towards": [vars(m) for m in self.strongest(20, True)],
            "away": [vars(m) for m in self.strongest(20, False)],
            "skipped": [one.to_dict() for one in self.skipped],
            "provenance": dict(self.provenance),
        }

    def save(self, path: str | Path) -> list[Path]:
        """Write a page (.html), results (.json), mentions (.csv) or a histogram (.svg) to `path`; the first three to a
        directory.
        """
        write = find_form(FILE, self)
        assert write is not None, "headwater.bias.saving was not loaded"
        return cast(list[Path], write(self, path))
