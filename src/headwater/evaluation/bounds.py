"""An evaluation within a limit of memory: how many samples are explained at once, and how many perturbed inputs run.

The largest sample decides: pieces of its explanation by every method, and a few of its perturbed inputs, are really run
before the work begins, and what torch allocates is counted. Shorter ones then go together as far as their tokens add up
to no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api.estimate import MARGIN, Trial, in_words
from ..api.explain import where_it_is
from ..errors import UsageError
from ..memory.meter import peak_of
from ..memory.policy import PLENTY, Room
from ..methods import resolve

if TYPE_CHECKING:
    from .perturbation import Perturbed, Source, Subjects

FEW, MORE = 2, 4  # perturbed inputs that are run at once to see what one more takes


@dataclass(frozen=True)
class Bound:
    """One method's explanations: so many of the largest sample at once, `length` each, and how they are kept."""

    samples: int
    length: int
    room: Room


@dataclass(frozen=True)
class Bounds:
    """Without a limit all is as it was asked for; with one every method has its own."""

    room: Room = PLENTY
    methods: Mapping[str, Bound] = field(default_factory=dict)
    inputs: int | None = None  # perturbed ones of the largest sample at once

    def room_of(self, method: str) -> Room:
        """Only what is made of rules can be computed again; all other methods are left as they are."""
        if method in self.methods:
            return self.methods[method].room
        return self.room if resolve(method).group == "rules" else replace(self.room, recompute=None)

    def samples_of(self, method: str, asked: int) -> int:
        return min(asked, self.methods[method].samples) if method in self.methods else asked

    def length_of(self, method: str, asked: float) -> float:
        """Of all samples that go together."""
        bound = self.methods.get(method)
        return asked if bound is None else min(asked, bound.samples * bound.length)

    def within(self, budget: int) -> int:
        """Tokens of perturbed inputs in a batch."""
        length = max((bound.length for bound in self.methods.values()), default=0)
        return budget if self.inputs is None else min(budget, self.inputs * length)

    def groups(self, count: int, most: int | None) -> list[range]:
        """Numbers below `count`, so many at once."""
        step = count if most is None else min(count, most)
        return [range(start, min(start + step, count)) for start in range(0, count, step)]


def fitted(source: Source, methods: Sequence[str], limit: int, seed: int, others: int = 0) -> Bounds:
    """What keeps the limit, of which copies of the model beside this one take `others` times its weights."""
    part = source.part([source.largest()])
    trials = {name: Trial.of(part.asked([0] * part.tried, name, 0, seed)) for name in methods}
    (whole,) = part.perturbed(0, np.ones((1, len(part.items(0))), dtype=np.bool_))
    found: dict[str, Bound] = {}
    weights = 0
    for name, trial in trials.items():
        weights = trial.weights
        fits = trial.fitted(limit - others * weights, source.batch_size)
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


def share(limit: int, weights: int, workers: int) -> int:
    """What one of several processes may take: each has a copy of the model, beside the one that hands out the work."""
    return limit if workers <= 1 else (limit - weights) // workers


def weights_of(model: Any) -> int:
    return sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))
