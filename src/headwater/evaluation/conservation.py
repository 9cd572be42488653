"""Does relevance add up: the score against the sum of the inputs' relevance, sample by sample.

The sum equals the score only where biases and constants contribute nothing. Therefore the error of the whole ledger is
reported, too. Methods whose relevance has no unit (attention maps) are measured in the same way; their sum is unrelated
to the score, and the numbers show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ranking import Floats
from .statistics import none_for_nan, percentile_interval, resample_means


@dataclass(frozen=True)
class Conservation:
    """`correlation` of score and summed relevance over samples, in [-1, 1], with a 95 % interval; 1 is best.

    `error`: mean |score - sum| over mean |score|, from 0 (best); a single score near 0 cannot outweigh the rest.
    `largest_unaccounted`: the worst sample's |unaccounted| relative to the absolute lines of its ledger.
    Where all scores or all sums are equal, `correlation` is not a number.
    """

    correlation: float
    low: float
    high: float
    error: float
    largest_unaccounted: float

    def to_dict(self) -> dict[str, float | None]:
        """None for what is not a number."""
        return {name: none_for_nan(number) for name, number in vars(self).items()}


def conservation(score: Floats, total: Floats, unaccounted: Floats, means: Floats | None = None) -> Conservation:
    """Of scores, sums of relevance and relative ledger errors, [samples] each.

    `means`: resampled means of `moments_of(score, total)`, drawn here where they are not given.
    """
    moments = moments_of(score, total)
    low, high = correlation_interval(correlate_moments(resample_means(moments, seed=0) if means is None else means))
    return Conservation(
        correlation=float(correlate_moments(moments.mean(0, keepdims=True))[0]),
        low=low,
        high=high,
        error=float(np.abs(score - total).mean() / max(float(np.abs(score).mean()), 1e-30)),
        largest_unaccounted=float(unaccounted.max()),
    )


def correlation_interval(found: Floats) -> tuple[float, float]:
    """The interval of resampled correlations, those left out that are no number: one sample drawn throughout."""
    finite = found[np.isfinite(found)]
    low, high = percentile_interval(finite) if len(finite) else (np.nan, np.nan)
    return float(low), float(high)


def moments_of(x: Floats, y: Floats) -> Floats:
    """What a correlation is made of, as columns whose means can be resampled; centred and scaled against cancelling."""
    x, y = (standardise(v) for v in (x, y))
    return np.stack([x, y, x * x, y * y, x * y], 1)


def standardise(values: Floats) -> Floats:
    centred = values - values.mean()
    spread = centred.std()
    return np.asarray(centred / spread if spread > 1e-12 * np.abs(values).max() else np.zeros_like(values))


def correlate_moments(means: Floats) -> Floats:
    """[rows, 5 means] -> [rows]"""
    x, y, xx, yy, xy = means.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((xy - x * y) / np.sqrt((xx - x * x) * (yy - y * y)), dtype=np.float64)
