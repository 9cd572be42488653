"""The result of an evaluation: a value. Means, intervals and differences come from the numbers of every sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import methods
from ..errors import UnknownName, UsageError
from ..results.display import Shown
from .conservation import Conservation, conservation, moments_of
from .cost import Cost
from .measures import Measure, is_measure
from .protocols import Protocol
from .ranking import Floats
from .statistics import (
    Difference,
    MeanEstimate,
    compare_pairs,
    differences_to_best,
    none_for_nan,
    percentile_interval,
    resample_means,
    with_interval,
)

Column = NDArray[Any]
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Samples:
    """Numbers of every sample: `common` columns [samples], and each method's columns [samples] or [samples, steps]."""

    common: Mapping[str, Column]
    values: Mapping[str, Mapping[str, Column]]

    def __len__(self) -> int:
        return len(self.common["row"])

    @classmethod
    def join(cls, parts: Sequence[Samples]) -> Samples:
        first = parts[0]
        common = {name: np.concatenate([p.common[name] for p in parts]) for name in first.common}
        values = {
            method: {name: np.concatenate([p.values[method][name] for p in parts]) for name in columns}
            for method, columns in first.values.items()
        }
        return cls(common, values)


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """The mean over samples at every fraction, with its pointwise interval, and the area under it."""

    fractions: tuple[float, ...]
    mean: Floats
    low: Floats
    high: Floats
    area: float

    def to_dict(self) -> dict[str, object]:
        columns = {name: [*map(none_for_nan, getattr(self, name).tolist())] for name in ("mean", "low", "high")}
        return {"fractions": list(self.fractions), **columns, "area": self.area}


@dataclass(frozen=True, eq=False)
class Scores:
    """How one method did. Scores are means over samples; `interval` gives the 95 % bootstrap interval of each.

    `curves` holds the mean curves by name, `estimates` every score with its interval. `runtime` is the cost of an
    explanation as a ratio to the forward pass, `randomisation` the rank correlation with explanations of the same
    model with scrambled weights (near 0 is right).
    """

    method: str
    curves: Mapping[str, MeanCurve]
    estimates: Mapping[str, MeanEstimate]
    conservation: Conservation
    runtime: Cost | None = None
    randomisation: MeanEstimate | None = None

    @property
    def auac(self) -> float:
        """Area under the activation curve, in [0, 1]; higher is better."""
        return self.estimate("auac").value

    @property
    def aumse(self) -> float:
        """Area under the pruning curve, from 0 on, in squared logits; lower is better."""
        return self.estimate("aumse").value

    @property
    def activation(self) -> MeanCurve:
        return self.curve("activation")

    @property
    def pruning(self) -> MeanCurve:
        return self.curve("pruning")

    @property
    def insertion(self) -> float:
        """Area under the insertion curve of the predicted class, in [0, 1]; higher is better."""
        return self.estimate("insertion").value

    @property
    def deletion(self) -> float:
        """Area under the deletion curve of the predicted class, in [0, 1]; lower is better."""
        return self.estimate("deletion").value

    @property
    def comprehensiveness(self) -> float:
        """What the predicted class loses without its top items, in [-1, 1]; higher is better."""
        return self.estimate("comprehensiveness").value

    @property
    def sufficiency(self) -> float:
        """What the predicted class loses with its top items alone, in [-1, 1]; lower is better."""
        return self.estimate("sufficiency").value

    @property
    def infidelity(self) -> float:
        """Squared error of relevance as a forecast of what random removals do, from 0 on; lower is better."""
        return self.estimate("infidelity").value

    @property
    def sensitivity(self) -> float:
        """Largest relative change of relevance under small noise, from 0 on; lower is better."""
        return self.estimate("sensitivity").value

    def interval(self, score: str = "auac") -> tuple[float, float]:
        """The 95 % bootstrap interval of a score, over samples."""
        found = self.estimate(score)
        return found.low, found.high

    def estimate(self, score: str) -> MeanEstimate:
        return found_in(self.estimates, score, "score")

    def curve(self, name: str) -> MeanCurve:
        return found_in(self.curves, name, "curve")

    def to_dict(self) -> dict[str, Any]:
        return {
            "scores": {name: e.to_dict() for name, e in self.estimates.items()},
            "curves": {name: c.to_dict() for name, c in self.curves.items()},
            "conservation": self.conservation.to_dict(),
            "runtime": vars(self.runtime) if self.runtime is not None else None,
            "randomisation": self.randomisation.to_dict() if self.randomisation is not None else None,
        }


def found_in(table: Mapping[str, Found], name: str, kind: str) -> Found:
    if name in table:
        return table[name]
    if is_measure(name):
        raise UsageError(f"{name!r} was not measured; ask for it: evaluate(..., measures=[{name!r}, …]).")
    raise UnknownName(kind, name, table)


@dataclass(frozen=True, eq=False)
class Evaluation(Shown):
    """How faithful methods are, measured on the same samples: `r["lrp"].auac`, `r.compare("lrp", "gi")`.

    `provenance` holds what is needed to repeat it; `samples` the numbers of every sample.
    """

    protocol: Protocol  # what was removed, by what, in which steps
    chosen: tuple[Measure, ...]  # what was measured
    scores: Mapping[str, Scores]  # by method: its measures, with intervals
    samples: Samples = field(repr=False)  # the numbers of every sample
    provenance: Mapping[str, Any] = field(repr=False)  # what is needed to repeat it
    resampled: Mapping[str, Mapping[str, Floats]] = field(repr=False)  # by method and measure: resampled means

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, in the order in which they were asked for."""
        return tuple(self.scores)

    def __getitem__(self, method: str) -> Scores:
        return self.scores[self._name(method)]

    def __iter__(self) -> Iterator[Scores]:
        return iter(self.scores.values())

    def __len__(self) -> int:
        return len(self.samples)

    def _name(self, method: str) -> str:
        if method in self.scores:
            return method
        try:
            name = methods.resolve_method(method).name
        except UnknownName:
            name = method
        if name not in self.scores:
            raise UnknownName("method in this evaluation", method, self.scores)
        return name

    @property
    def measures(self) -> tuple[str, ...]:
        """The scores that every method has."""
        return tuple(measure.score for measure in self.chosen)

    @property
    def curves(self) -> tuple[Measure, ...]:
        """The measures that are curves."""
        return tuple(measure for measure in self.chosen if measure.aggregation == "area")

    def measure(self, score: str) -> Measure:
        """What `score` is: its title, its direction, how it is made of the numbers of a sample."""
        return found_in({measure.score: measure for measure in self.chosen}, score, "score")

    @property
    def accuracy(self) -> float | None:
        """The share of samples whose class was predicted; None without labels."""
        label = self.samples.common["label"]
        return float((label == self.samples.common["predicted"]).mean()) if (label >= 0).all() else None

    def compare(self, first: str, second: str, measure: str = "auac") -> Difference:
        """Is `first` really better than `second`? The mean paired difference, its interval, and how sure it is.

        `measure` names the score.
        """
        higher, both = self.measure(measure).better == "higher", []
        for name in map(self._name, (first, second)):
            both.append((name, self.totals(name, measure), self.resampled[name][measure]))
        return compare_pairs(measure, both[0], both[1], higher)

    def to_the_best(self, measure: str = "auac") -> dict[str, Difference]:
        """Each method minus the one with the best mean of `measure`. It was picked after looking: intervals and p allow
        for it.

        They hold for all pairs of methods at once, and are wider than those of `compare`.
        """
        higher = self.measure(measure).better == "higher"
        found = {m: (self.scores[m].estimates[measure].value, self.resampled[m][measure]) for m in self.methods}
        return differences_to_best(measure, found, higher, len(self))

    def totals(self, method: str, score: str) -> Floats:
        """The `score` of one `method`, one number per sample."""
        measure = self.measure(score)
        return measure.total(self.samples.values[self._name(method)][measure.name], self.protocol)

    def differences(self) -> list[Difference]:
        """Every pair of methods in every measure."""
        return [self.compare(a, b, measure) for measure in self.measures for a, b in combinations(self.methods, 2)]

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; without the numbers of every sample."""
        return {
            "protocol": self.protocol.to_dict(),
            "measures": list(self.measures),
            "samples": len(self),
            "accuracy": self.accuracy,
            "methods": {name: scores.to_dict() for name, scores in self.scores.items()},
            "differences": [d.to_dict() for d in self.differences()],
            "provenance": dict(self.provenance),
        }


def summarise(
    samples: Samples,
    measures: tuple[Measure, ...],
    protocol: Protocol,
    provenance: Mapping[str, Any],
    runtimes: Mapping[str, Cost] | None = None,
    randomised: Mapping[str, MeanEstimate] | None = None,
) -> Evaluation:
    """Means, intervals and curves of all methods, from one set of resamples."""
    seed = int(provenance["seed"])
    columns = {method: stack_columns(values, measures, protocol) for method, values in samples.values.items()}
    means = resample_by_name(columns, seed)
    scores = {
        method: Scores(
            method,
            curves={m.name: curve_of(m, method, columns, means, protocol) for m in measures if m.aggregation == "area"},
            estimates={
                m.score: with_interval(float(columns[method][m.score].mean()), means[method][m.score][:, 0])
                for m in measures
            },
            conservation=conservation(
                values["score"], values["inputs"], values["unaccounted"], means[method]["moments"]
            ),
            runtime=(runtimes or {}).get(method),
            randomisation=(randomised or {}).get(method),
        )
        for method, values in samples.values.items()
    }
    kept = {method: {m.score: found[m.score][:, 0] for m in measures} for method, found in means.items()}
    return Evaluation(protocol, measures, scores, samples, provenance, kept)


def stack_columns(values: Mapping[str, Column], measures: tuple[Measure, ...], protocol: Protocol) -> dict[str, Floats]:
    """What is to be averaged, each as [samples, columns]: totals, steps of curves, moments of conservation."""
    found: dict[str, Floats] = {m.score: m.total(values[m.name], protocol)[:, None] for m in measures}
    found.update({f"{m.name} steps": values[m.name] for m in measures if m.by_steps})
    return {**found, "moments": moments_of(values["score"], values["inputs"])}


def resample_by_name(columns: Mapping[str, Mapping[str, Floats]], seed: int) -> dict[str, dict[str, Floats]]:
    """All methods and columns resampled at once, so that all share the same resamples."""
    blocks = [(method, name, block) for method, found in columns.items() for name, block in found.items()]
    means = resample_means(np.concatenate([block for *_, block in blocks], axis=1), seed)
    split: dict[str, dict[str, Floats]] = {method: {} for method in columns}
    start = 0
    for method, name, block in blocks:
        split[method][name] = means[:, start : start + block.shape[1]]
        start += block.shape[1]
    return split


def curve_of(
    measure: Measure,
    method: str,
    columns: Mapping[str, Mapping[str, Floats]],
    means: Mapping[str, Mapping[str, Floats]],
    protocol: Protocol,
) -> MeanCurve:
    steps = columns[method][f"{measure.name} steps"]
    low, high = percentile_interval(means[method][f"{measure.name} steps"])
    area = float(columns[method][measure.score].mean())
    return MeanCurve(tuple(float(f) for f in protocol.fractions), steps.mean(0), low, high, area)
