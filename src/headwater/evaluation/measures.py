"""What is measured of a method's explanations: each `Measure` knows its title, axes, direction and aggregation.

A measure is computed in one of two ways:

- by perturbation: `kept` says which items each step's input still holds, `read` what is read off the model's answers.
  It gives one number per step. The steps become one number by the trapezoid rule over the protocol's fractions
  ("area"), or by their mean over the protocol's bins ("mean"). Both are linear, so the area under a mean curve is the
  mean of the areas, and an interval needs one number per sample.
- by a function of its own: `compute` gives one number per sample ("none": nothing is left to aggregate).

Other packages add measures by the entry point "headwater.measures", or by `register_measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from .. import plugins
from ..errors import UnknownName, UsageError
from ..results.explanation import Explanation
from . import stability
from .perturbation import Subjects
from .protocols import Protocol, counts
from .ranking import Counts, Flags, Floats, only_top, without_smallest, without_top

__all__ = ["Answer", "Measure", "list_measures", "register_measure"]

ALL, RANDOMISATION = "all", "randomisation"  # names that are asked for like a measure's

# Columns of what is saved that are no measure's: of every sample, and of every method's explanation of it.
COMMON = ("row", "label", "predicted", "items")
LEDGER = ("score", "inputs", "biases", "constants", "readout", "unaccounted")
BETTER = ("higher", "lower")
AGGREGATIONS = ("area", "mean", "none")
RESERVED = {ALL, RANDOMISATION, "method", *COMMON, *LEDGER}


@dataclass(frozen=True)
class Answer:
    """Logits [steps, classes] of one sample's perturbed inputs, those of the whole input, and the class asked of.

    Example:
        >>> import numpy as np
        >>> from headwater.evaluation.measures import Answer
        >>> from headwater.evaluation.protocols import ali2022
        >>> answer = Answer(np.zeros((3, 2)), np.array([0.0, 1.0]), label=1, protocol=ali2022)
        >>> len(answer.logits), answer.label
        (3, 1)
    """

    logits: Floats  # of the perturbed inputs, [steps, classes]
    whole: Floats  # of the whole input, [classes]
    label: int  # the class that is asked of
    protocol: Protocol  # what was removed, and how


@dataclass(frozen=True)
class Measure:
    """What is measured, and all that a table or a page needs to show it.

    `name` is what one asks for; `score` names its one number, `title` stands above it; both are the name unless given.
    `better`: whether a higher or a lower number is better. `axes`: what a curve has across and up.
    `of`: relevance and probability of the protocol's class, or of the predicted one.
    `kept(relevance, counts)`: flags [steps, items], true where an item is still in the input.
    `read(answer)`: one number per step. `compute(part, method, explanations, targets, seed)`: one number per sample.

    Example:
        >>> from headwater.evaluation.measures import list_measures
        >>> measure = list_measures()["deletion"]
        >>> measure.better, measure.aggregation
        ('lower', 'area')
    """

    name: str  # what one asks for
    summary: str  # one line for lists
    better: Literal["higher", "lower"]  # which direction is better
    score: str = ""  # the name of its one number; the name unless given
    title: str = ""  # what stands above it; the name unless given
    axes: tuple[str, str] | None = None  # what a curve has across and up
    aggregation: Literal["area", "mean", "none"] = "none"  # how a curve becomes one number
    of: Literal["protocol", "predicted"] = "protocol"  # relevance and probability of which class
    kept: Callable[[Floats, Counts], Flags] | None = field(
        default=None, repr=False
    )  # items still there, [steps, items]
    read: Callable[[Answer], Floats] | None = field(default=None, repr=False)  # one number per step, of an answer
    compute: Callable[[Subjects, str, Sequence[Explanation], Counts, int], Floats] | None = field(
        default=None, repr=False
    )  # one number per sample, in place of a curve

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", self.score or self.name)
        object.__setattr__(self, "title", self.title or self.score)
        for name in (self.name, self.score):
            if name in RESERVED or not name or name != name.strip().lower():
                raise UsageError(f"a measure cannot be called {name!r}: it is taken, or not in lower case.")
        if self.better not in BETTER:
            raise UnknownName("direction of a measure", self.better, BETTER)
        if self.aggregation not in AGGREGATIONS:
            raise UnknownName("aggregation of a measure", self.aggregation, AGGREGATIONS)
        needs = ("kept", "read") if self.by_steps else ("compute",)
        for name in (*needs, *(("axes",) if self.aggregation == "area" else ())):
            if getattr(self, name) is None:
                raise UsageError(f"the measure {self.name!r} with aggregation={self.aggregation!r} needs {name}=.")

    @property
    def by_steps(self) -> bool:
        """Whether it is read off perturbed inputs, a number per step."""
        return self.aggregation != "none"

    def steps(self, protocol: Protocol) -> tuple[Fraction, ...]:
        """The shares of items at which the `protocol` looks."""
        return protocol.fractions if self.aggregation == "area" else protocol.bins

    def inputs(self, relevance: Floats, protocol: Protocol) -> Flags:
        """Which items each step's input holds under this `protocol`, [steps, items], for one sample's `relevance`."""
        assert self.kept is not None
        return self.kept(relevance, counts(self.steps(protocol), len(relevance)))

    def answers(self, answer: Answer) -> Floats:
        """One number per step, of the `answer` to one sample's perturbed inputs."""
        assert self.read is not None
        return self.read(answer)

    def total(self, values: Floats, protocol: Protocol) -> Floats:
        """`values` [..., steps] -> one number each, by this `protocol`; what has no steps is that number already."""
        if self.aggregation == "none":
            return values
        if self.aggregation == "mean":
            return np.asarray(values.mean(-1), dtype=np.float64)
        x = np.array([float(f) for f in protocol.fractions])
        return np.asarray(((values[..., 1:] + values[..., :-1]) / 2 * np.diff(x)).sum(-1), dtype=np.float64)

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is."""
        return 1 if self.better == "higher" else -1


def probabilities(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True), dtype=np.float64)


def probability(answer: Answer) -> Floats:
    return probabilities(answer.logits)[:, answer.label]


def logit_error(answer: Answer) -> Floats:
    """How far the logits are from those of the whole input: squared, summed or averaged as the protocol says."""
    squares = (answer.whole - answer.logits) ** 2
    return np.asarray(squares.sum(-1) if answer.protocol.error == "sum" else squares.mean(-1), dtype=np.float64)


def drop(answer: Answer) -> Floats:
    """How much lower the probability is than for the whole input."""
    return np.asarray(probabilities(answer.whole)[answer.label] - probability(answer), dtype=np.float64)


ACTIVATION = Measure(
    name="activation",
    score="auac",
    title="AUAC",
    summary="from nothing, items put back by descending relevance: probability of the class; area in [0, 1]",
    better="higher",
    axes=("share of items put back", "probability of the class"),
    aggregation="area",
    kept=only_top,
    read=probability,
)
PRUNING = Measure(
    name="pruning",
    score="aumse",
    title="AU-MSE",
    summary="from the whole input, items replaced by ascending |relevance|: squared error of the logits; from 0 on",
    better="lower",
    axes=("share of items replaced", "squared error of the logits"),
    aggregation="area",
    kept=without_smallest,
    read=logit_error,
)
INSERTION = Measure(
    name="insertion",
    summary="as activation, for the predicted class; area in [0, 1]",
    better="higher",
    axes=("share of items put back", "probability of the predicted class"),
    aggregation="area",
    of="predicted",
    kept=only_top,
    read=probability,
)
DELETION = Measure(
    name="deletion",
    summary="from the whole input, items replaced by descending relevance: probability of the predicted class",
    better="lower",
    axes=("share of items replaced", "probability of the predicted class"),
    aggregation="area",
    of="predicted",
    kept=without_top,
    read=probability,
)
COMPREHENSIVENESS = Measure(
    name="comprehensiveness",
    summary="how much the predicted class loses without its top items (ERASER); mean over the bins, in [-1, 1]",
    better="higher",
    aggregation="mean",
    of="predicted",
    kept=without_top,
    read=drop,
)
SUFFICIENCY = Measure(
    name="sufficiency",
    summary="how much the predicted class loses with its top items alone (ERASER); mean over the bins, in [-1, 1]",
    better="lower",
    aggregation="mean",
    of="predicted",
    kept=only_top,
    read=drop,
)
INFIDELITY = Measure(
    name="infidelity",
    summary="squared error of relevance as a forecast of what random removals do, from 0 on; needs captum",
    better="lower",
    compute=stability.infidelity,
)
SENSITIVITY = Measure(
    name="sensitivity",
    summary="largest relative change of relevance under small noise, from 0 on; needs captum",
    better="lower",
    compute=stability.sensitivity,
)

PERTURBATIONS = (ACTIVATION, PRUNING, INSERTION, DELETION, COMPREHENSIVENESS, SUFFICIENCY)  # what "all" stands for
DEFAULT = ("activation", "pruning")
_MEASURES: dict[str, Measure] = {}


def register_measure(measure: Measure) -> Measure:
    """Makes a measure known by its name and by its score, which no other one may have.

    Args:
        measure: the measure.

    Returns:
        The same measure.

    Raises:
        UsageError: another one has the name or the score.

    Example:
        >>> from headwater.evaluation.measures import Measure, register_measure
        >>> def count_positive(part, method, explanations, targets, seed):
        ...     return [float((e.relevance > 0).sum()) for e in explanations]
        >>> mine = register_measure(Measure("positives", "tokens that add", better="higher", compute=count_positive))
        >>> mine.score
        'positives'
    """
    others = [m for m in _MEASURES.values() if m is not measure]
    for name in (measure.name, measure.score):
        if any(name in (other.name, other.score) for other in others):
            raise UsageError(f"there is a measure called {name!r} already.")
    _MEASURES[measure.name] = measure
    return measure


for _measure in (*PERTURBATIONS, INFIDELITY, SENSITIVITY):
    register_measure(_measure)


def list_measures() -> dict[str, Measure]:
    """Every measure by its name: ours, then those that other packages add. A name of ours stays ours.

    Returns:
        Measures by name.

    Example:
        >>> from headwater.evaluation.measures import list_measures
        >>> list(list_measures())[:2]
        ['activation', 'pruning']
    """
    for found in plugins.load_all(plugins.MEASURES).values():
        if isinstance(found, Measure) and found.name not in _MEASURES:
            register_measure(found)
    return dict(_MEASURES)


def resolve_measures(names: str | Measure | Iterable[str | Measure]) -> tuple[Measure, ...]:
    """The measures called so, by name or score, in the order in which they are known; a measure is its own.

    "all" stands for every measure by perturbation of ours. "randomisation" is asked for like a measure, but has no
    number per sample and is passed over here; see `scrambles`.
    """
    asked = as_list(names)
    known = {**list_measures(), **{m.name: m for m in asked if isinstance(m, Measure)}}
    wanted = {m.name if isinstance(m, Measure) else m.strip().lower() for m in asked}
    for name in sorted(wanted):
        if name not in (ALL, RANDOMISATION) and not is_measure(name, known):
            raise UnknownName("measure", name, (ALL, *known, RANDOMISATION))
    every = {m.name for m in PERTURBATIONS} if ALL in wanted else set()
    return tuple(m for m in known.values() if {m.name, m.score} & wanted or m.name in every)


def scrambles(names: str | Measure | Iterable[str | Measure]) -> bool:
    """Whether the check by scrambled weights is asked for."""
    return any(isinstance(n, str) and n.strip().lower() in (ALL, RANDOMISATION) for n in as_list(names))


def is_measure(name: str, known: Mapping[str, Measure] | None = None) -> bool:
    """Whether a measure is called so, or its score is."""
    found = list_measures() if known is None else known
    return name in found or any(measure.score == name for measure in found.values())


def as_list(names: str | Measure | Iterable[str | Measure]) -> list[str | Measure]:
    return [names] if isinstance(names, (str, Measure)) else list(names)
