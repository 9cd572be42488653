"""What is asked of a ranking of items: which of them an input still holds, and what is read off the model's answer.

Every task takes a relevance, one number an item, and gives a number a step. Steps become one number by the trapezoid
rule over the fractions (a curve), or by their mean (bins). Both are linear, so the area under a mean curve is the mean
of the areas, and intervals need one number a sample.

Ties: items of equal relevance are taken in the order in which they stand, in every task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UnknownName
from .protocols import Protocol, counts

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.intp]


@dataclass(frozen=True)
class Answer:
    """Logits [steps, classes] of one sample's perturbed inputs, those of the whole input, and the class asked of."""

    logits: Floats
    whole: Floats
    label: int
    protocol: Protocol


@dataclass(frozen=True)
class Task:
    """A measure by perturbation. `score` names its one number, `better` its direction.

    `of`: relevance and probability of the protocol's class, or of the predicted one.
    `kept(relevance, counts)`: flags [steps, items], true where an item is still in the input.
    """

    name: str
    score: str
    summary: str
    better: Literal["higher", "lower"]
    of: Literal["protocol", "predicted"]
    grid: Literal["fractions", "bins"]
    kept: Callable[[Floats, Counts], Flags]
    read: Callable[[Answer], Floats]

    def steps(self, protocol: Protocol) -> tuple[Fraction, ...]:
        return protocol.fractions if self.grid == "fractions" else protocol.bins

    def inputs(self, relevance: Floats, protocol: Protocol) -> Flags:
        """Which items each step's input holds, [steps, items]."""
        return self.kept(relevance, counts(self.steps(protocol), len(relevance)))

    def total(self, steps: Floats, protocol: Protocol) -> Floats:
        """[..., steps] -> one number each."""
        if self.grid == "bins":
            return np.asarray(steps.mean(-1), dtype=np.float64)
        x = np.array([float(f) for f in protocol.fractions])
        return np.asarray(((steps[..., 1:] + steps[..., :-1]) / 2 * np.diff(x)).sum(-1), dtype=np.float64)


def places(keys: Floats) -> Counts:
    """The place of every item when they are sorted by `keys`, smallest first; equal ones as they stand."""
    order = np.argsort(keys, kind="stable")
    found = np.empty(len(keys), dtype=np.intp)
    found[order] = np.arange(len(keys))
    return found


def only_top(relevance: Floats, count: Counts) -> Flags:
    """Only the items of largest signed relevance."""
    return places(-relevance)[None] < count[:, None]


def without_top(relevance: Floats, count: Counts) -> Flags:
    """All but the items of largest signed relevance."""
    return ~only_top(relevance, count)


def without_smallest(relevance: Floats, count: Counts) -> Flags:
    """All but the items of smallest absolute relevance."""
    return places(np.abs(relevance))[None] >= count[:, None]


def probabilities(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True), dtype=np.float64)


def probability(answer: Answer) -> Floats:
    return probabilities(answer.logits)[:, answer.label]


def squared_error(answer: Answer) -> Floats:
    squares = (answer.whole - answer.logits) ** 2
    return np.asarray(squares.sum(-1) if answer.protocol.error == "sum" else squares.mean(-1), dtype=np.float64)


def drop(answer: Answer) -> Floats:
    """How much lower the probability is than for the whole input."""
    return np.asarray(probabilities(answer.whole)[answer.label] - probability(answer), dtype=np.float64)


ACTIVATION = Task(
    "activation",
    "auac",
    "from nothing, items put back by descending relevance: probability of the class; area in [0, 1]",
    "higher",
    "protocol",
    "fractions",
    only_top,
    probability,
)
PRUNING = Task(
    "pruning",
    "aumse",
    "from the whole input, items replaced by ascending |relevance|: squared error of the logits; area from 0 on",
    "lower",
    "protocol",
    "fractions",
    without_smallest,
    squared_error,
)
INSERTION = Task(
    "insertion",
    "insertion",
    "as activation, for the predicted class; area in [0, 1]",
    "higher",
    "predicted",
    "fractions",
    only_top,
    probability,
)
DELETION = Task(
    "deletion",
    "deletion",
    "from the whole input, items replaced by descending relevance: probability of the predicted class; area in [0, 1]",
    "lower",
    "predicted",
    "fractions",
    without_top,
    probability,
)
COMPREHENSIVENESS = Task(
    "comprehensiveness",
    "comprehensiveness",
    "how much the predicted class loses without its top items (ERASER); mean over the bins, in [-1, 1]",
    "higher",
    "predicted",
    "bins",
    without_top,
    drop,
)
SUFFICIENCY = Task(
    "sufficiency",
    "sufficiency",
    "how much the predicted class loses with its top items alone (ERASER); mean over the bins, in [-1, 1]",
    "lower",
    "predicted",
    "bins",
    only_top,
    drop,
)

TASKS = {t.name: t for t in (ACTIVATION, PRUNING, INSERTION, DELETION, COMPREHENSIVENESS, SUFFICIENCY)}
DEFAULT = ("activation", "pruning")


def resolve(names: str | Iterable[str]) -> tuple[Task, ...]:
    """The tasks called so, in the order of the table above; "all" is every one."""
    asked = [names] if isinstance(names, str) else list(names)
    wanted = set(TASKS) if "all" in asked else {name.strip().lower() for name in asked}
    by_score = {t.score: t.name for t in TASKS.values()}
    for name in wanted:
        if name not in TASKS and name not in by_score:
            raise UnknownName("measure", name, ("all", *TASKS))
    return tuple(t for t in TASKS.values() if t.name in wanted or t.score in wanted)
