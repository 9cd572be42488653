"""Several trainings of one model, measured on the same samples: means, and what samples and trainings leave open.

Two things make a number of a table uncertain: which samples were drawn, and how the training happened to end. Each has
an interval. A difference is believed where both leave out 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.evaluation.ranking import Floats
from headwater.evaluation.results import Evaluation
from headwater.evaluation.statistics import MeanEstimate, percentile_interval, rank_correlation, with_few_samples

from .published import ROWS, TABLES

NORMAL = 1.959964  # units that 95 % of a normal number lie within


@dataclass(frozen=True)
class Pooled:
    """A number that was measured on several trainings: the mean, and both intervals; one training has one interval."""

    value: float
    samples: MeanEstimate
    trainings: MeanEstimate | None

    @property
    def sure(self) -> bool:
        """Of a difference: whether both intervals leave out 0."""
        return self.trainings is not None and all(
            found.low > 0 or found.high < 0 for found in (self.samples, self.trainings)
        )


def pool(values: Sequence[float], resampled: Sequence[Floats]) -> Pooled:
    """From each training's value and its resampled means [resamples], which have drawn the same samples."""
    value = float(np.mean(values))
    low, high = percentile_interval(np.mean(resampled, axis=0))
    return Pooled(value, MeanEstimate(value, float(low), float(high)), over_trainings(values))


def over_trainings(values: Sequence[float]) -> MeanEstimate | None:
    """Student's interval for the mean of all trainings that might have been; None for a single one."""
    if len(values) < 2:
        return None
    value = float(np.mean(values))
    room = float(with_few_samples(NORMAL, len(values)) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return MeanEstimate(value, value - room, value + room)


def pooled_score(mains: Sequence[Evaluation], method: str, measure: str) -> Pooled:
    """How a method did, over all trainings."""
    return pool([m[method].estimates[measure].value for m in mains], [m.resampled[method][measure] for m in mains])


def relative(mains: Sequence[Evaluation], method: str, measure: str) -> Pooled:
    """A score as a share of a random order's, which can be compared across models as the score itself cannot."""
    values = [m[method].estimates[measure].value / m["random"].estimates[measure].value for m in mains]
    return pool(values, [m.resampled[method][measure] / m.resampled["random"][measure] for m in mains])


def pooled_difference(mains: Sequence[Evaluation], first: str, second: str, measure: str) -> Pooled:
    """`first` minus `second`, sample by sample."""
    values = [m[first].estimates[measure].value - m[second].estimates[measure].value for m in mains]
    return pool(values, [m.resampled[first][measure] - m.resampled[second][measure] for m in mains])


def best(mains: Sequence[Evaluation], measure: str, among: Sequence[str] | None = None) -> str:
    """The method with the best mean over all trainings."""
    sign = mains[0].measure(measure).sign
    chosen = [m for m in mains[0].methods if among is None or m in among]
    return max(chosen, key=lambda m: sign * pooled_score(mains, m, measure).value)


def same_order(mains: Sequence[Evaluation], dataset: str, measure: str) -> Pooled | None:
    """Spearman's rank correlation of the paper's rows here and there; None where the paper has too few of them."""
    paper = TABLES[measure]
    rows = [m for m in ROWS if m in mains[0].methods and dataset in paper[m]]
    if len(rows) < 3:
        return None
    theirs = np.array([paper[m][dataset] for m in rows])
    values = [rank_correlation(np.array([main[m].estimates[measure].value for m in rows]), theirs) for main in mains]
    together = rank_correlation(np.array([pooled_score(mains, m, measure).value for m in rows]), theirs)
    drawn = np.stack([np.mean([main.resampled[m][measure] for main in mains], axis=0) for m in rows], axis=1)
    low, high = percentile_interval(np.array([rank_correlation(row, theirs) for row in drawn]))
    return Pooled(together, MeanEstimate(together, float(low), float(high)), over_trainings(values))
