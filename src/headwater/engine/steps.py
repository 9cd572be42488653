"""What is to be run for a request, batch by batch, whichever the method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..inputs.batch import Batch
from ..inputs.targets import Reader
from ..results.explanation import Explanation


@dataclass(frozen=True)
class Step:
    """One batch to be run, and what reads its scores."""

    batch: Batch
    read: Reader


@dataclass(frozen=True)
class Plan:
    """The steps to run for a request. `gather` turns the explanations of all steps into those of the answer."""

    steps: list[Step]
    gather: Callable[[Sequence[list[Explanation]]], list[Explanation]]
    single: bool = False  # whether the answer is one explanation, not a list

    @classmethod
    def chain(cls, plans: Sequence[Plan]) -> Plan:
        """Several plans as one: their steps one after another."""
        ends = [sum(len(plan.steps) for plan in plans[: i + 1]) for i in range(len(plans))]

        def gather(found: Sequence[list[Explanation]]) -> list[Explanation]:
            parts = [plan.gather(found[end - len(plan.steps) : end]) for plan, end in zip(plans, ends, strict=True)]
            return [e for part in parts for e in part]

        return cls([step for plan in plans for step in plan.steps], gather)
