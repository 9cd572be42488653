"""Means over samples with 95 % bootstrap intervals, and differences between methods on the same samples.

All methods are resampled alike: resample b takes the same samples for each, so a difference between two methods is
free of the spread that they share (hard and easy texts).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .tasks import Floats

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
