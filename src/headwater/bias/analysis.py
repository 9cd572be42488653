"""From mentions to an audit: no model here, and nothing to explain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import DataError
from ..evaluation.ranking import Floats
from ..evaluation.statistics import PERMUTATIONS, RESAMPLES, MeanEstimate, correct_for_many
from ..plurals import say_count
from .effects import Effect, adjust, effect, mean_with_interval
from .finding import Finder
from .mentions import Collected, Mention
from .results import BiasAudit, GroupComparison, GroupSummary, Ranked, Skipped, Stratum

FEWEST = 20  # different entries a group needs before anything can be said of it
DOMINANT = 0.25  # of a group's mentions, by one entry
UNCLOSED = 0.01  # of the texts
SHOWN_WORDS = 30


@dataclass(frozen=True)
class Resampling:
    """How the statistics are made."""

    seed: int = 0
    permutations: int = PERMUTATIONS
    resamples: int = RESAMPLES


def analyse(
    collected: Collected,
    finder: Finder,
    target: str,
    method: str,
    provenance: Mapping[str, Any],
    settings: Resampling | None = None,
) -> BiasAudit:
    """What the mentions of a corpus say of their groups."""
    how, mentions = settings or Resampling(), collected.mentions
    if not mentions:
        texts = "the one text" if collected.texts == 1 else f"any of the {collected.texts:,} texts"
        raise DataError(f"no member of {', '.join(finder.groups)} ({finder.source}) stands in {texts}.")
    whole, *_ = make_strata({"all": mentions}, finder.groups, {"all": collected.texts}, how)
    parts = [part for part in dict.fromkeys(m.part for m in mentions) if part]
    by_part = {part: [m for m in mentions if m.part == part] for part in (parts if len(parts) > 1 else ())}
    return BiasAudit(
        target=target,
        method=method,
        rule=finder.rule,
        texts=collected.texts,
        typical=float(np.mean(collected.outside)) if collected.outside else float("nan"),
        whole=whole,
        parts=tuple(make_strata(by_part, finder.groups, collected.in_part, how)),
        names=rank_names(mentions),
        mentions=mentions,
        skipped=tuple(count_skipped(collected.skipped)),
        warnings=tuple(list_warnings(whole, finder.groups, mentions, collected, method)),
        provenance=provenance,
    )


def make_strata(
    mentions: Mapping[str, Sequence[Mention]], groups: Sequence[str], texts: Mapping[str, int], settings: Resampling
) -> list[Stratum]:
    """Groups and every pair of them, stratum by stratum; p-values are corrected for all pairs in all these strata."""
    grouped = {name: by_group(many, groups) for name, many in mentions.items()}
    pairs = {name: list(pairs_of(found, settings)) for name, found in grouped.items()}
    corrected = iter(correct_for_many([plain.p for found in pairs.values() for _, _, plain, _ in found]))
    return [
        Stratum(
            name,
            texts[name],
            tuple(summarise_group(group, many, settings) for group, many in found.items()),
            tuple(compare_groups(*pair, next(corrected), found) for pair in pairs[name]),
        )
        for name, found in grouped.items()
    ]


def by_group(mentions: Sequence[Mention], groups: Sequence[str]) -> dict[str, list[Mention]]:
    """Only groups that have mentions."""
    found = {group: [m for m in mentions if m.group == group] for group in groups}
    return {group: many for group, many in found.items() if many}


def pairs_of(found: Mapping[str, Sequence[Mention]], settings: Resampling) -> Iterator[tuple[str, str, Effect, Effect]]:
    """Of groups that have at least two entries: one entry has no spread to judge by."""
    varied = [group for group, many in found.items() if len({m.entry for m in many}) > 1]
    for first, second in combinations(varied, 2):
        yield first, second, *measure_effects(found[first], found[second], settings)


def compare_groups(
    first: str, second: str, plain: Effect, other: Effect, p: float, found: Mapping[str, Sequence[Mention]]
) -> GroupComparison:
    sizes = {group: len({m.entry for m in found[group]}) for group in (first, second)}
    said = write_verdict(first, second, plain, other, p, sizes)
    return GroupComparison(first, second, plain, other, p, min(sizes.values()) >= FEWEST, said)


def summarise_group(group: str, mentions: Sequence[Mention], settings: Resampling) -> GroupSummary:
    values = relevance_of(mentions)
    entries = [m.entry for m in mentions]
    several = len(set(entries)) > 1
    one = MeanEstimate(float(values.mean()), float("nan"), float("nan"))
    return GroupSummary(
        name=group,
        mentions=len(mentions),
        entries=len(set(entries)),
        names=len({m.name for m in mentions}),
        texts=len({(m.part, m.row) for m in mentions}),
        mean=mean_with_interval(values, entries, settings.seed, settings.resamples) if several else one,
        median=float(np.median(values)),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        positive=float((values > 0).mean()),
        words=float(np.mean([m.words for m in mentions])),
        score=float(np.mean([m.score for m in mentions])),
    )


def measure_effects(first: Sequence[Mention], second: Sequence[Mention], settings: Resampling) -> tuple[Effect, Effect]:
    """As the relevance is, and with the texts around the mentions and their length accounted for."""
    both = (first, second)
    values = [relevance_of(many) for many in both]
    known = [np.array([(m.rest, m.words) for m in many], dtype=np.float64) for many in both]
    entries = [[m.entry for m in many] for many in both]
    how = (settings.seed, settings.permutations, settings.resamples)
    plain, other = (effect((v[0], entries[0]), (v[1], entries[1]), *how) for v in (values, adjust(values, known)))
    return plain, other


def relevance_of(mentions: Sequence[Mention]) -> Floats:
    return np.array([m.relevance for m in mentions], dtype=np.float64)


def write_verdict(first: str, second: str, plain: Effect, other: Effect, p: float, sizes: Mapping[str, int]) -> str:
    """The comparison in words. It never says that there is no bias, only what these texts can show."""
    small = [name for name in (first, second) if sizes[name] < FEWEST]
    if small:
        *others, last = small
        has = [*(str(sizes[name]) for name in others), say_count(sizes[last], "entry", "different entries")]
        said = ", ".join(f"{name} has {count}" for name, count in zip(small, has, strict=True))
        return f"Too few to say anything: {said}; at least {FEWEST} are needed."
    size, d = plain.difference, plain.d
    if p > 0.05:
        return (
            f"No difference that chance would not explain (p = {p:.2g}). What these texts leave open: {size.low:+.2f} "
            f"to {size.high:+.2f} ({first} minus {second}), in standard deviations {d.low:+.2f} to {d.high:+.2f}."
        )
    more, less = (first, second) if size.value > 0 else (second, first)
    said = f"{more} gets {abs(size.value):.2g} more relevance than {less} (d = {abs(d.value):.2g})"
    said += f": more than chance explains (p = {p:.2g})."
    if other.p > 0.05:
        said += " With the texts around them accounted for, chance would explain what is left."
    return said


def rank_names(mentions: Iterable[Mention]) -> tuple[Ranked, ...]:
    """Names by their mean relevance, from the most positive on."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for m in mentions:
        values[m.name, m.group].append(m.relevance)
    found = [Ranked(n, g, len(v), float(np.mean(v)), min(v), max(v)) for (n, g), v in values.items()]
    return tuple(sorted(found, key=lambda r: (-r.mean, r.name)))


def count_skipped(met: Iterable[tuple[str, str]]) -> list[Skipped]:
    """By reason, the most frequent first."""
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for word, reason in met:
        words[reason][word] += 1
    found = [Skipped(r, sum(c.values()), tuple(c.most_common(SHOWN_WORDS))) for r, c in words.items()]
    return sorted(found, key=lambda s: -s.occurrences)


def list_warnings(
    whole: Stratum, groups: Sequence[str], mentions: Sequence[Mention], collected: Collected, method: str
) -> Iterable[str]:
    """What a reader must know before the numbers."""
    for group in groups:
        if group not in [g.name for g in whole.groups]:
            yield f"No member of {group} stands in these texts: nothing can be said of it."
    for found in whole.groups:
        if found.entries < FEWEST:
            yield (
                f"{found.name} has {say_count(found.entries, 'entry', 'different entries')} in "
                f"{say_count(found.mentions, 'mention')}. Below {FEWEST}, "
                "nothing can be said of a group: its numbers are those of a few words."
            )
        entry, count = Counter(m.entry for m in mentions if m.group == found.name).most_common(1)[0]
        if found.entries >= FEWEST and count > DOMINANT * found.mentions:
            yield f"{entry!r} makes up {count / found.mentions:.0%} of the mentions of {found.name}."
    if collected.unclosed > UNCLOSED * max(1, collected.explained):
        yield (
            f"With {method}, relevance does not add up to the score in {collected.unclosed} of {collected.explained} "
            "texts: its size has no unit, and only signs and order can be compared."
        )
