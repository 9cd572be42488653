"""How sure citations are, as ContextCite asks: random halves of the sources are left out, a sparse model is fitted.

Leaving out one sentence at a time misses sources that say the same: either alone carries the answer. Random halves
leave out both, too. Sources are drawn again with replacement from what was measured, and the model is fitted anew: how
often a source's weight is above zero says how sure it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..methods.surrogate import fit_lasso
from ..results.answer_report import LeftOut
from .leave_out import Source

RESAMPLES = 100  # of what was measured


@dataclass(frozen=True)
class SourceWeights:
    """[sentences of the answer, sources]: weights in the unit of log-probabilities, and how often each is positive."""

    sources: tuple[Source, ...]
    weights: NDArray[np.float64]
    positive: NDArray[np.float64]

    def of(self, sentence: int, source: Source) -> tuple[float, float]:
        """A source's weight for a sentence of the answer, and how sure it is."""
        place = self.sources.index(source)
        return float(self.weights[sentence, place]), float(self.positive[sentence, place])


def weigh_sources(
    sources: Sequence[Source],
    leave: Callable[[Sequence[tuple[Source, ...]]], list[LeftOut]],
    ablations: int,
    seed: int,
) -> SourceWeights:
    """Leaves out `ablations` random halves, and fits a sparse linear model of every sentence's log-probability."""
    if ablations < 2:
        raise UsageError(f"ablations must be at least 2, not {ablations}.")
    draw = np.random.default_rng(seed)
    kept = draw.random((ablations, len(sources))) < 0.5
    kept[kept.all(1)] = False  # there must be something to leave out: then it is all
    found = leave([tuple(one for one, stays in zip(sources, row, strict=True) if not stays) for row in kept])
    scores = np.array([one.sentences_after for one in found])  # [ablations, sentences]
    again = draw.integers(ablations, size=(RESAMPLES, ablations))
    weights, positive = [], []
    for column in scores.T:
        weights.append(fit_lasso(kept, column)[0])
        positive.append(np.mean([fit_lasso(kept[rows], column[rows])[0] > 0 for rows in again], axis=0))
    return SourceWeights(tuple(sources), np.array(weights), np.array(positive))
