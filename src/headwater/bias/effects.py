"""Whether groups differ: means, a standardised difference, bootstrap intervals and a permutation test.

Thirty mentions of one name are not thirty independent observations. A group is a list of entries (names, phrases), and
an entry belongs to a group with all its mentions. Therefore the bootstrap draws entries, and the permutation test gives
entries new groups; the mentions of an entry always stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.ranking import Floats
from ..evaluation.statistics import PERMUTATIONS, RESAMPLES, MeanEstimate, permutation_p, resample_means, with_interval

Sums = Floats  # count, sum and sum of squares: [entries, 3]

POWER = 1.959964 + 0.841621  # how many standard errors an effect must have to be found, at 5 %, four times in five


@dataclass(frozen=True)
class Effect:
    """`first` minus `second`, in units of the score. `d`: in standard deviations of a mention (Cohen's d).

    `p`: the share of random labellings with a difference at least as large, in either direction. `detectable`: the
    smallest difference that such data would show four times in five; a smaller one is likely to go unseen.
    """

    difference: MeanEstimate
    d: MeanEstimate
    p: float
    detectable: float

    def to_dict(self) -> dict[str, object]:
        both = {"difference": self.difference.to_dict(), "d": self.d.to_dict()}
        return {**both, "p": self.p, "detectable": self.detectable}


def entry_sums(values: Floats, entries: Sequence[str]) -> Sums:
    """Count, sum and sum of squares of the values of each entry: [entries, 3]."""
    _, places = np.unique(np.array(entries), return_inverse=True)
    moments = np.stack([np.ones_like(values), values, values**2], axis=1)
    sums = np.zeros((int(places.max()) + 1, 3))
    np.add.at(sums, places, moments)
    return sums


def resample_sums(sums: Sums, seed: int, resamples: int) -> Sums:
    """Totals over entries drawn with replacement: [resamples, 3]."""
    return resample_means(sums, seed, resamples) * len(sums)


def find_means(totals: Sums) -> Floats:
    return np.asarray(totals[..., 1] / totals[..., 0])


def sum_squares(totals: Sums) -> Floats:
    """The sum of squared deviations from the mean; rounding must not make it negative."""
    return np.asarray(np.maximum(totals[..., 2] - totals[..., 1] ** 2 / totals[..., 0], 0.0))


def cohens_d(first: Sums, second: Sums) -> Floats:
    """Cohen's d: the difference of the means over the pooled standard deviation; 0 where nothing varies."""
    freedom = np.maximum(first[..., 0] + second[..., 0] - 2, 1)
    spread = np.sqrt((sum_squares(first) + sum_squares(second)) / freedom)
    difference = find_means(first) - find_means(second)
    return np.divide(difference, spread, out=np.zeros_like(difference), where=spread > 0)


def mean_with_interval(values: Floats, entries: Sequence[str], seed: int, resamples: int = RESAMPLES) -> MeanEstimate:
    """The mean over mentions, its interval over entries."""
    sums = entry_sums(values, entries)
    return with_interval(float(values.mean()), find_means(resample_sums(sums, seed, resamples)))


def effect(
    first: tuple[Floats, Sequence[str]],
    second: tuple[Floats, Sequence[str]],
    seed: int,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
) -> Effect:
    """How two groups differ; each is given by its values and the entry of each value."""
    one, other = entry_sums(*first), entry_sums(*second)
    again = resample_sums(one, seed, resamples), resample_sums(other, seed + 1, resamples)
    differences = find_means(again[0]) - find_means(again[1])
    found = float(find_means(one.sum(0)) - find_means(other.sum(0)))
    d = float(cohens_d(one.sum(0, keepdims=True), other.sum(0, keepdims=True))[0])
    return Effect(
        difference=with_interval(found, differences),
        d=with_interval(d, cohens_d(*again)),
        p=permutation_p(one, other, find_means, seed, permutations),
        detectable=POWER * float(differences.std()),
    )


def adjust(values: Sequence[Floats], known: Sequence[Floats]) -> list[Floats]:
    """Values [mentions] minus what a linear fit predicts from `known` [mentions, columns], for each group.

    A name in a positive review gets relevance from its context, and a full name has more words than a first name. If
    one group is praised more often, or named in full more often, that alone would make the groups differ. One line is
    fitted for all groups, to deviations from each group's own mean, so that the difference of the groups remains.
    """
    within = np.concatenate([k - k.mean(0) for k in known])
    slopes, *_ = np.linalg.lstsq(within, np.concatenate([v - v.mean() for v in values]), rcond=None)
    middle = np.concatenate(list(known)).mean(0)
    return [v - (k - middle) @ slopes for v, k in zip(values, known, strict=True)]
