"""What keeps an evaluation within a limit of memory, found by running its largest sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.model import where_it_is
from ..errors import UsageError
from ..memory.estimate import MARGIN, MemoryTrial, in_words
from ..memory.meter import peak_of
from .bounds import Bound, Bounds
from .perturbation import Perturbed, SampleSource, Subjects

FEW, MORE = 2, 4  # perturbed inputs that are run at once to see what one more takes


def fit_bounds(source: SampleSource, methods: Sequence[str], limit: int, seed: int, others: int = 0) -> Bounds:
    """Batch sizes and memory policies that stay within `limit` bytes.

    `others`: how many more copies of the model are in memory; their weights are subtracted from the limit first.
    """
    part = source.part([source.largest()])
    trials = {name: MemoryTrial.of(part.request([0] * part.tried, name, 0, seed)) for name in methods}
    (whole,) = part.perturb(0, np.ones((1, len(part.items(0))), dtype=np.bool_))
    found: dict[str, Bound] = {}
    weights = 0
    for name, trial in trials.items():
        weights = trial.weights
        fits = trial.fit(limit - others * weights, source.batch_size)
        found[name] = Bound(fits.samples, whole.cost, fits.room)
    return Bounds(methods=found, inputs=most_inputs(part, whole, limit, (1 + others) * weights))


def most_inputs(part: Subjects, whole: Perturbed, limit: int, weights: int) -> int:
    """How many perturbed inputs of the largest sample fit at once."""
    device = where_it_is(part.source.model)[0]
    part.logits([whole])  # kernels are chosen, caches filled
    few, more = (peak_of(lambda n=n: part.logits([whole] * n), device) for n in (FEW, MORE))  # type: ignore[misc]
    each = (more - few) / (MORE - FEW)
    free = limit * (1 - MARGIN) - weights - (few - FEW * each)
    if free < each:
        needed = in_words((limit - free + each) / (1 - MARGIN))
        raise UsageError(f"the memory limit of {in_words(limit)} is too little: one input alone needs about {needed}.")
    return int(free / max(each, 1))
