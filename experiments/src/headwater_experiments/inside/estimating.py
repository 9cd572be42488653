"""What patching a node would do, estimated for all nodes by few passes: its change of value times its gradient.

With plain gradients that is attribution patching (Nanda 2023), with gradients along the way from the other input that
of integrated gradients (Hanna et al. 2024), with the rules of LRP it is RelP (Jafari et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from headwater.api.patch import make_one_run, run_with_swaps
from headwater.api.patch_estimates import PatchEstimator, read_input
from headwater.api.requests import make_request
from headwater.engine.session import Session
from headwater.inputs.inside_demand import InsideDemand
from headwater.rules import RuleSet

from .pairs import InputPair, PairTask

STEPS = 10  # between the two inputs, for integrated gradients


@dataclass(frozen=True)
class Estimator(PatchEstimator):
    """One pair of inputs with the changes of all nodes between them."""

    other_input: Tensor

    @classmethod
    def of(cls, task: PairTask, pair: InputPair, demand: InsideDemand) -> Estimator:
        options: dict[str, Any] = {"tokenizer": task.tokenizer, "target": pair.target, "output": "logit"}
        asks = [make_request(task.model, text, **options) for text in (pair.clean, pair.other)]
        session = Session.open(asks[0].model, asks[0].options)
        clean, other = (make_one_run(session, ask) for ask in asks)
        here, there = (run_with_swaps(run, demand, {})[0] for run in (clean, other))
        changes = [a - b for a, b in zip(here.found, there.found, strict=True)]
        return cls(clean, demand, here.places, changes, read_input(other))

    def estimate_falls(self, rules: RuleSet, noise: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
        """[units] of every place, by one pass forward and back."""
        return [one.falls for one in self.estimate(rules, noise)]

    def integrate(self, rules: RuleSet, steps: int = STEPS) -> list[Tensor]:
        """The estimate, averaged over inputs between the two."""
        total: list[Tensor] = []
        for step in range(steps):
            found = self.estimate_falls(rules, noise=partial(self._move_input, (step + 0.5) / steps))
            total = found if not total else [a + b for a, b in zip(total, found, strict=True)]
        return [one / steps for one in total]

    def _move_input(self, part: float, leaf: Tensor) -> Tensor:
        return (1 - part) * (self.other_input - leaf)
