"""Perturbed inputs -> the model's answers, each input run once however often it is asked for.

Nothing here knows what an item is: a token now, a node of a graph or a patch of an image elsewhere. Whoever has such
items gives them as `Subjects`.

Many steps give the same input: the whole one and the empty one are common to all methods, neighbouring steps of a
short text coincide, methods agree on their top items. So the inputs of all methods of a few samples go into one
`InputPool`, which keeps each once, sorts them by cost, and runs batches that are bounded by cost, not by number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import nn

from ..engine.options import Request
from ..inputs.batch import group_by_length
from ..results.explanation import Explanation
from .bounds import Bounds
from .ranking import Counts, Flags, Floats


@dataclass(frozen=True)
class Perturbed:
    """One input to be run. Two of equal `key` are the same input; `cost` is its length, or what stands for it."""

    key: Hashable
    cost: int
    value: Any = field(compare=False, repr=False)


class Subjects(Protocol):
    """Some samples of one kind, all in memory: what is explained, and what can be taken out of it."""

    tried: int  # samples in a request whose memory is estimated, so that what one more takes is seen

    def __len__(self) -> int: ...

    @property
    def source(self) -> SampleSource: ...

    @property
    def mixes(self) -> bool:
        """Whether inputs of different cost can share a batch."""
        ...

    def items(self, sample: int) -> Counts:
        """Which entries of a relevance take part in the ranking."""
        ...

    def explain(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        """One explanation per sample, for the class `target`."""
        ...

    def request(self, samples: Sequence[int], method: str, target: int | None, seed: int) -> Request:
        """The same in one batch, as a request that is still to be answered."""
        ...

    def perturb(self, sample: int, kept: Flags) -> list[Perturbed]:
        """An input for every row of `kept` [rows, items]: the sample with those items alone."""
        ...

    def logits(self, inputs: Sequence[Perturbed]) -> Floats:
        """The model's answers [inputs, classes], from one batch."""
        ...


class SampleSource(Protocol):
    """All samples of an evaluation, loaded in parts so that memory does not grow with their number."""

    batch_size: int
    bounds: Bounds

    @property
    def model(self) -> nn.Module: ...

    def __len__(self) -> int: ...

    def part(self, samples: Sequence[int]) -> Subjects:
        """These samples, loaded."""
        ...

    def largest(self) -> int:
        """The sample that takes the most memory."""
        ...

    def describe(self) -> dict[str, Any]:
        """What was decided about the samples and must stand beside the numbers: which token replaces, and the like."""
        ...


class InputPool:
    """The inputs of some samples, each run once; `logits[places]` are the answers to what `add` was given."""

    def __init__(self, subjects: Subjects, budget: int) -> None:
        self.subjects = subjects
        self.budget = budget
        self.asked: int = 0
        self._places: dict[Hashable, int] = {}
        self._waiting: list[Perturbed] = []
        self._answers: list[Floats] = []  # [some inputs, classes] each, in the order of their places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, sample: int, kept: Flags) -> Counts:
        """Asks for inputs that hold these items, [rows, items], and says where their answers will stand."""
        self.asked += len(kept)
        return np.array([self._place(p) for p in self.subjects.perturb(sample, kept)], dtype=np.intp)

    def _place(self, perturbed: Perturbed) -> int:
        place = self._places.get(perturbed.key)
        if place is None:
            place = self._places[perturbed.key] = len(self._places)
            self._waiting.append(perturbed)
        return place

    def run(self, tick: Callable[[float], None] = lambda share: None) -> None:
        """Runs what waits, in batches of like cost; `tick` hears the share of the work that each batch was.

        The largest batch goes first, and answers are copied into one array: so each batch finds the memory free that
        the one before it used. In another order, or with small arrays left between, the C library's heap goes on
        growing with every new shape.
        """
        waiting, self._waiting = self._waiting, []
        costs = [perturbed.cost for perturbed in waiting]
        groups = group_by_length(costs, budget=self.budget, mixes=self.subjects.mixes)
        groups.sort(key=lambda group: -len(group) * costs[group[0]])
        found: Floats | None = None
        for group in groups:
            rows = self.subjects.logits([waiting[i] for i in group])
            found = np.empty((len(waiting), rows.shape[1])) if found is None else found
            found[group] = rows
            tick(len(group) / len(waiting))
        self._answers += [] if found is None else [found]

    @property
    def logits(self) -> Floats:
        return np.concatenate(self._answers)
