"""The statistics of evaluations and audits: bootstrap intervals, paired differences, permutation tests, ranks.

All methods are resampled alike: resample b takes the same samples for each. So a difference between two methods is free
of the spread that they share (hard and easy texts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .ranking import Floats

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2**18  # numbers drawn at once: some megabytes, however many samples there are
PERMUTATIONS, PERMUTED = 10_000, 2**21  # random labellings of a test, and numbers drawn at once for them


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over samples, and the interval that 95 % of its bootstrap resamples lie in."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """None for what is not known, as the interval over one sample."""
        return {name: none_for_nan(number) for name, number in vars(self).items()}


@dataclass(frozen=True)
class Difference:
    """`first` minus `second` in one measure, sample by sample.

    `share`: the share of resamples in which `first` is better; a tie counts half. Near 1, `first` is better; near 0,
    `second` is; around one half, the data do not tell. `p` is the two-sided p-value: at most .05 where the 95 %
    interval does not contain 0. Over one sample nothing but `value` is known: the others are not a number.
    """

    measure: str
    first: str
    second: str
    value: float
    low: float
    high: float
    share: float
    p: float

    @property
    def better(self) -> str | None:
        """The better method, where the interval is known and leaves out 0."""
        if not (self.low > 0 or self.high < 0):
            return None
        return self.first if self.share > 0.5 else self.second

    def to_dict(self) -> dict[str, object]:
        """None for what is not known."""
        return {**{name: none_for_nan(value) for name, value in vars(self).items()}, "better": self.better}


def none_for_nan(value: Any) -> Any:
    """JSON has no word for what is not a number."""
    return None if isinstance(value, float) and math.isnan(value) else value


def resample_means(values: Floats, seed: int, resamples: int = RESAMPLES) -> Floats:
    """Means of the columns of `values` [samples, columns] over bootstrap resamples: [resamples, columns].

    Not a number where there is one sample: every resample would be that sample, and its interval would be of no width.
    """
    if len(values) == 1:
        return np.full((resamples, *values.shape[1:]), np.nan)
    return np.concatenate([weights @ values for weights in draw_weights(len(values), seed, resamples)])


def draw_weights(samples: int, seed: int, resamples: int = RESAMPLES) -> Iterator[Floats]:
    """How often each sample is drawn, over the number of samples: blocks [some resamples, samples]."""
    random = np.random.default_rng(seed)
    block = max(1, BLOCK // samples)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = random.integers(samples, size=(size, samples)) + np.arange(size)[:, None] * samples
        counts = np.bincount(drawn.ravel(), minlength=size * samples).reshape(size, samples)
        yield counts / samples


def percentile_interval(means: Floats) -> tuple[Floats, Floats]:
    """Percentile interval along the first axis."""
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def with_interval(value: float, means: Floats) -> MeanEstimate:
    """A mean with the interval of its resampled means."""
    low, high = percentile_interval(means)
    return MeanEstimate(value, float(low), float(high))


def compare_pairs(
    measure: str, first: tuple[str, Floats, Floats], second: tuple[str, Floats, Floats], higher: bool
) -> Difference:
    """Of two methods: name, values [samples] and resampled means [resamples], both on the same samples and resamples.

    `higher` says which direction is better.
    """
    value = float((first[1] - second[1]).mean())
    means = first[2] - second[2]
    low, high = percentile_interval(means)
    share = share_ahead(means, higher)
    p = min(1.0, 2 * (min(int((means <= 0).sum()), int((means >= 0).sum())) + 1) / (len(means) + 1))
    p = math.nan if math.isnan(share) else p
    return Difference(measure, first[0], second[0], value, float(low), float(high), share, p)


def share_ahead(means: Floats, higher: bool) -> float:
    """In which share of the resamples the first is the better one; a tie counts half."""
    if np.isnan(means).any():
        return math.nan
    better = means if higher else -means
    return float(np.mean(better > 0) + np.mean(better == 0) / 2)


def differences_to_best(
    measure: str, found: Mapping[str, tuple[float, Floats]], higher: bool, samples: int
) -> dict[str, Difference]:
    """Each method minus the best one; `found` has the mean of each over `samples`, and its resampled means [resamples].

    The best method is known only after looking at the numbers. A plain interval to it is therefore too narrow: of
    twelve equal methods, one lies far below whichever came out best. Intervals and `p` here hold for all pairs at once
    (after Tukey's range). Each resample is searched for the pair that moved furthest from the observed difference,
    measured in standard deviations of that pair. A difference counts when it exceeds this furthest move in 95 % of the
    resamples. The standard deviations are estimates themselves, so few samples need a larger difference (Student's t).
    """
    names = list(found)
    values = np.array([found[name][0] for name in names])
    moved = np.stack([found[name][1] for name in names]) - values[:, None]
    best = int(np.argmax(values if higher else -values))
    spread = np.array([[np.std(a - b) for b in moved] for a in moved])
    furthest = np.zeros(moved.shape[1])
    for i in range(len(names)):
        for j in range(i):
            if spread[i, j] > 0:
                furthest = np.maximum(furthest, np.abs(moved[i] - moved[j]) / spread[i, j])
    reach = with_few_samples(float(np.quantile(furthest, LEVEL)), samples)
    compared = {}
    for i, name in enumerate(names):
        apart, unit = float(values[i] - values[best]), float(spread[i, best])
        means = moved[i] + values[i] - moved[best] - values[best]
        share = share_ahead(means, higher)
        still = math.inf if apart else 0.0  # the same difference in every sample
        size = abs(apart) / unit if unit > 0 else still
        p = (int((with_few_samples(furthest, samples) >= size).sum()) + 1) / (len(furthest) + 1)
        p = math.nan if math.isnan(share) else p
        room = float(reach) * unit
        compared[name] = Difference(measure, name, names[best], apart, apart - room, apart + room, share, p)
    return compared


def with_few_samples(size: Any, samples: int) -> Any:
    """How many units Student's t must reach to be as rare as `size` units of a normal number (Wallace 1959)."""
    free = max(1, samples - 1)
    scaled = size * (8 * free + 3) / (8 * free + 1)
    return np.sqrt(free * np.expm1(scaled**2 / free))


def permutation_p(
    first: Floats, second: Floats, mean: Callable[[Floats], Floats], seed: int, permutations: int = PERMUTATIONS
) -> float:
    """Two-sided: how often rows that get their group by chance differ at least as much as the real groups do.

    `first` and `second` are rows [entries, columns]; `mean` makes of summed rows what is compared. The real labelling
    counts as one of them, so p is never 0.
    """
    both, size = np.concatenate([first, second]), len(first)
    found = abs(float(mean(first.sum(0)) - mean(second.sum(0))))
    random = np.random.default_rng(seed)
    block, reached = max(1, PERMUTED // len(both)), 0
    for start in range(0, permutations, block):
        count = min(block, permutations - start)
        chosen = np.argsort(random.random((count, len(both))), axis=1)[:, :size]
        drawn = both[chosen].sum(1)
        differences = np.abs(mean(drawn) - mean(both.sum(0) - drawn))
        reached += int((differences >= found * (1 - 1e-12)).sum())
    return (reached + 1) / (permutations + 1)


def correct_for_many(ps: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected for their number (Holm 1979), in the order given."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = largest
    return corrected


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing their mean rank."""
    x, y = mean_ranks(a), mean_ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size > 0 else float("nan")


def mean_ranks(values: Floats) -> Floats:
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[group], dtype=np.float64)


def area_under(values: Floats, fractions: Sequence[Fraction | float]) -> float:
    """The area under a curve over its fractions, by the trapezoid rule."""
    return float(np.trapezoid(values, [float(f) for f in fractions]))
