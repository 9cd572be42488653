"""Means over samples with 95 % bootstrap intervals, and differences between methods on the same samples.

All methods are resampled alike: resample b takes the same samples for each, so a difference between two methods is
free of the spread that they share (hard and easy texts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ranking import Floats

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2**18  # numbers drawn at once: some megabytes, however many samples there are


@dataclass(frozen=True)
class Estimate:
    """A mean over samples, and the interval that 95 % of its bootstrap resamples lie in."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean over samples at every fraction, with its pointwise interval, and the area under it."""

    fractions: tuple[float, ...]
    mean: Floats
    low: Floats
    high: Floats
    area: float

    def to_dict(self) -> dict[str, object]:
        columns = {name: getattr(self, name).tolist() for name in ("mean", "low", "high")}
        return {"fractions": list(self.fractions), **columns, "area": self.area}


@dataclass(frozen=True)
class Difference:
    """`first` minus `second` in one measure, sample by sample.

    `share`: of the resamples, those in which `first` is better; a tie counts half. Near 1 it really is, near 0
    `second` is, around one half nobody knows. `p` is the two-sided reading of it: at most .05 where the 95 % interval
    leaves out 0.
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
        """The better method, where the interval leaves out 0."""
        if self.low <= 0 <= self.high:
            return None
        return self.first if self.share > 0.5 else self.second

    def to_dict(self) -> dict[str, object]:
        return {**vars(self), "better": self.better}


def resampled(values: Floats, seed: int, resamples: int = RESAMPLES) -> Floats:
    """Means of the columns of `values` [samples, columns] over bootstrap resamples: [resamples, columns]."""
    return np.concatenate([weights @ values for weights in resampling(len(values), seed, resamples)])


def resampling(samples: int, seed: int, resamples: int = RESAMPLES) -> Iterator[Floats]:
    """How often each sample is drawn, over the number of samples: blocks [some resamples, samples]."""
    random = np.random.default_rng(seed)
    block = max(1, BLOCK // samples)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = random.integers(samples, size=(size, samples)) + np.arange(size)[:, None] * samples
        counts = np.bincount(drawn.ravel(), minlength=size * samples).reshape(size, samples)
        yield counts / samples


def bounds(means: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Percentile interval along the first axis."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def estimate(value: float, means: Floats) -> Estimate:
    """A mean with the interval of its resampled means."""
    low, high = bounds(means)
    return Estimate(value, float(low), float(high))


def difference(
    measure: str, first: tuple[str, Floats, Floats], second: tuple[str, Floats, Floats], higher: bool
) -> Difference:
    """Of two methods: name, values [samples] and resampled means [resamples], both on the same samples and resamples.

    `higher` says which direction is better.
    """
    value = float((first[1] - second[1]).mean())
    means = first[2] - second[2]
    low, high = bounds(means)
    better = means if higher else -means
    share = float(np.mean(better > 0) + np.mean(better == 0) / 2)
    p = 2 * (min(int((means <= 0).sum()), int((means >= 0).sum())) + 1) / (len(means) + 1)
    return Difference(measure, first[0], second[0], value, float(low), float(high), share, min(1.0, p))


def to_the_best(
    measure: str, found: Mapping[str, tuple[float, Floats]], higher: bool, samples: int, level: float = LEVEL
) -> dict[str, Difference]:
    """Each method minus the best one; `found` has the mean of each over `samples`, and its resampled means [resamples].

    The best was picked after looking, so that the plain interval to it is too narrow: of twelve equal methods, one
    lies far below whichever came out best. Intervals and `p` here hold for all pairs at once. In every resample the
    pair is sought that moved furthest from what was observed, in units of its own spread; a difference counts when it
    is larger than that is in all but a twentieth of the resamples (after Tukey's range). The units are estimates, too:
    with few samples more is asked, as Student's t does.
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
    reach = with_few_samples(float(np.quantile(furthest, level)), samples)
    compared = {}
    for i, name in enumerate(names):
        apart, unit = float(values[i] - values[best]), float(spread[i, best])
        means = moved[i] + values[i] - moved[best] - values[best]
        better = means if higher else -means
        share = float(np.mean(better > 0) + np.mean(better == 0) / 2)
        size = abs(apart) / unit if unit > 0 else 0.0
        p = (int((with_few_samples(furthest, samples) >= size).sum()) + 1) / (len(furthest) + 1)
        room = reach * unit
        compared[name] = Difference(measure, name, names[best], apart, apart - room, apart + room, share, p)
    return compared


def with_few_samples(size: Any, samples: int) -> Any:
    """How many units Student's t must reach to be as rare as `size` units of a normal number (Wallace 1959)."""
    free = max(1, samples - 1)
    scaled = size * (8 * free + 3) / (8 * free + 1)
    return np.sqrt(free * np.expm1(scaled**2 / free))
