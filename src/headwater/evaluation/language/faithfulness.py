"""What was measured of methods on a language model: means with intervals, paired differences, and which one to use."""

from __future__ import annotations

import statistics as middle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..ranking import Floats
from ..statistics import (
    Difference,
    MeanEstimate,
    compare_pairs,
    differences_to_best,
    resample_means,
    with_interval,
)
from .asking import LATER, SCORE_MARK
from .protocols import LanguageProtocol, ProtocolColumn

PEER = "attnlrp"
REFERENCES = (PEER, LATER)
CHANCE = "random"
NO_EXPLANATIONS = (CHANCE, LATER)  # in the table to be beaten, never recommended
AFFORDABLE = 10.0  # forward passes: a method that takes more is named beside the one to use, not in its place
FEW = 20  # prompts of a set: with fewer, an interval says little
DEFINED_BY = {"rho": "leave-one-out"}  # a column that measures agreement with a method ranks the others


@dataclass(frozen=True)
class FaithfulnessRow:
    """One method on one prompt. `seconds`: of the explanation; `forward_seconds`: of a plain forward pass beside it."""

    protocol: str
    data: str
    digest: str
    prompt: str
    method: str
    tokens: int
    values: dict[str, float]
    seconds: float
    forward_seconds: float


@dataclass(frozen=True)
class TableColumn:
    """One column of the table: values [prompts] by method, the same prompts for each."""

    protocol: str
    data: str
    column: ProtocolColumn
    values: Mapping[str, Floats]

    @property
    def title(self) -> str:
        return f"{self.data} {self.column.name}"

    @property
    def prompts(self) -> int:
        return len(next(iter(self.values.values())))

    @cached_property
    def means(self) -> dict[str, Floats]:
        """Resampled means [resamples] by method; all are resampled alike."""
        found = resample_means(np.stack(list(self.values.values()), 1), seed=0)
        return {method: found[:, i] for i, method in enumerate(self.values)}

    def estimate(self, method: str) -> MeanEstimate:
        return with_interval(float(self.values[method].mean()), self.means[method])

    def difference(self, first: str, second: str) -> Difference:
        """The first minus the second, prompt by prompt."""
        one, two = ((name, self.values[name], self.means[name]) for name in (first, second))
        return compare_pairs(self.title, one, two, self.column.better == "higher")

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The first, and those whose difference to it has an interval that holds zero; see `differences_to_best`.

        A method that defines the column is not ranked in it.
        """
        own = DEFINED_BY.get(self.column.name.rpartition(" ")[2])
        ranked = {
            name: (float(v.mean()), self.means[name]) for name, v in self.values.items() if base_name(name) != own
        }
        if not ranked:
            return ()
        apart = differences_to_best(self.title, ranked, self.column.better == "higher", self.prompts)
        return tuple(name for name, one in apart.items() if one.better is None)


@dataclass(frozen=True)
class Verdict:
    """Of one method: in how many columns it leads, and how it stands to the methods it must beat."""

    method: str
    columns: int
    leads: int
    above: Mapping[str, int]
    below: Mapping[str, int]
    cost: float | None


@dataclass(frozen=True)
class Faithfulness:
    """All rows, and what was made of them. `about`: the model, the half and the seed. `refused`: who gave no row."""

    rows: tuple[FaithfulnessRow, ...]
    protocols: tuple[LanguageProtocol, ...]
    about: Mapping[str, Any]
    made_with: Mapping[str, Any]
    refused: tuple[str, ...] = ()

    @cached_property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.method for row in self.rows))

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        return tuple(self.make_columns())

    def make_columns(self) -> Iterator[TableColumn]:
        """Of every set the columns of its protocol, with the methods that have a row for each prompt."""
        for rule in self.protocols:
            here = [row for row in self.rows if row.protocol == str(rule)]
            for data in dict.fromkeys(row.data for row in here):
                at = {(row.prompt, row.method): row for row in here if row.data == data}
                prompts = list(dict.fromkeys(prompt for prompt, _ in at))
                methods = [m for m in self.methods if all((prompt, m) in at for prompt in prompts)]
                for column in rule.columns:
                    values = {m: np.array([at[p, m].values[column.name] for p in prompts]) for m in methods}
                    if values:
                        yield TableColumn(str(rule), data, column, values)

    def cost(self, method: str) -> float | None:
        """In forward passes: the median over prompts of the explanation's time over that of a forward pass."""
        ratios = [
            row.seconds / row.forward_seconds for row in self.rows if row.method == method and row.forward_seconds
        ]
        return middle.median(ratios) if ratios else None

    def verdict(self, method: str) -> Verdict:
        stands = {o: self.stand(method, o) for o in REFERENCES if o != method and o in self.methods}
        return Verdict(
            method,
            len(self.columns),
            sum(method in column.leaders for column in self.columns),
            {other: above for other, (above, _) in stands.items()},
            {other: below for other, (_, below) in stands.items()},
            self.cost(method),
        )

    def stand(self, method: str, other: str) -> tuple[int, int]:
        """In how many columns a method is above another one, and in how many below: intervals away from zero."""
        both = [column for column in self.columns if method in column.values and other in column.values]
        better = [column.difference(method, other).better for column in both]
        return better.count(method), better.count(other)

    @property
    def recommended(self) -> str | None:
        """The best explanation, unless an order by chance is above it more often than below."""
        if self.best is None or self.stand(self.best, CHANCE)[1] > self.stand(self.best, CHANCE)[0]:
            return None
        return self.best

    @cached_property
    def best(self) -> str | None:
        """Of the explanations that take at most ten forward passes, the one that leads in most columns.

        Where several do: the one that is above the references most often, net of below; then the best mean place.
        """
        verdicts = [self.verdict(m) for m in self.methods if m not in NO_EXPLANATIONS]
        cheap = [v for v in verdicts if v.cost is not None and v.cost <= AFFORDABLE] or verdicts
        return max(cheap, key=self.order).method if cheap else None

    def order(self, verdict: Verdict) -> tuple[float, ...]:
        net = sum(verdict.above.values()) - sum(verdict.below.values())
        return verdict.leads, net, -self.mean_place(verdict.method)

    def mean_place(self, method: str) -> float:
        """1 where it is first in every column."""
        places = []
        for column in self.columns:
            if method in column.values:
                mine = column.column.sign * column.values[method].mean()
                places.append(1 + sum(column.column.sign * v.mean() > mine for v in column.values.values()))
        return float(np.mean(places)) if places else float("inf")

    @property
    def sentence(self) -> str:
        """Which method to use for this model, and how sure that is."""
        if self.best is None:
            return "No explanation was measured, so none can be recommended."
        chosen = self.verdict(self.best)
        if self.recommended is None:
            higher, lower = self.stand(self.best, CHANCE)
            return (
                f"None can be recommended: {self.best} is the best of these explanations, and it is below {CHANCE} in "
                f"{lower} of {chosen.columns} columns, above in {higher or 'none'} ({self.count_prompts()})."
            )
        parts = [f"first or level with the first in {chosen.leads} of {chosen.columns} columns"]
        for other in chosen.above:
            away = " with the interval away from zero" if len(parts) == 1 else ""
            above, below = chosen.above[other] or "none", chosen.below[other] or "none"
            parts.append(f"above {other} in {above}{away}, below in {below}")
        dearer = [self.verdict(m) for m in self.methods if m not in NO_EXPLANATIONS]
        dearer = [v for v in dearer if v.leads > chosen.leads and (v.cost or 0) > AFFORDABLE]
        if dearer:
            best = max(dearer, key=self.order)
            parts.append(f"{best.method} leads in {best.leads} at {best.cost:.0f} forward passes")
        price = "" if chosen.cost is None else f" ({chosen.cost:.1f} forward passes)"
        return f"Use {chosen.method}{price}: {'; '.join(parts)} ({self.count_prompts()})."

    def count_prompts(self) -> str:
        counts = sorted({column.prompts for column in self.columns})
        said = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        few = ", too few to be sure" if counts[0] < FEW else ""
        return f"{said} prompt{'' if said == '1' else 's'} per set{few}"

    def faithfulness(self, method: str) -> float | None:
        """The mean over sets of what disruption and recovery give, in both ways to take a word out."""
        totals = [
            c.values[method].mean() for c in self.columns if c.column.name.endswith(" total") and method in c.values
        ]
        wanted = [c for c in self.columns if c.column.name.endswith(" total")]
        return float(np.mean(totals)) if totals and len(totals) == len(wanted) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "about": dict(self.about),
            "made_with": dict(self.made_with),
            "protocols": [rule.to_dict() for rule in self.protocols],
            "columns": [column_dict(column) for column in self.columns],
            "methods": {m: {**asdict(self.verdict(m)), "faithfulness": self.faithfulness(m)} for m in self.methods},
            "refused": list(self.refused),
            "recommended": self.recommended,
            "sentence": self.sentence,
        }


def base_name(method: str) -> str:
    """Without what is in brackets, and without the score: leave-one-out of leave-one-out(zero)@logprob."""
    return method.partition(SCORE_MARK)[0].partition("(")[0]


def column_dict(column: TableColumn) -> dict[str, Any]:
    return {
        "protocol": column.protocol,
        "data": column.data,
        "name": column.column.name,
        "better": column.column.better,
        "prompts": column.prompts,
        "leaders": list(column.leaders),
        "methods": {
            method: {
                **column.estimate(method).to_dict(),
                "minus": {o: column.difference(method, o).to_dict() for o in present(column, method)},
            }
            for method in column.values
        },
    }


def present(column: TableColumn, method: str) -> Sequence[str]:
    """What this method is set beside: the references; all others where none of those was measured."""
    others = [other for other in column.values if other != method]
    return [other for other in REFERENCES if other in others] or others
