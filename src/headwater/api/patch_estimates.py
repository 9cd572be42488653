"""What patching a node would do, estimated for all nodes by few passes: its change of value times its gradient.

With plain gradients that is attribution patching (Nanda 2023). A node that is patched goes all the way to its other
value, and a gradient says what the first step does. So gradients are taken where nodes have gone a part of the way.
Not all nodes move in one pass, for in truth one moves alone: every fifth node of one kind, say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..engine.forward import NO_RULES, Demand, Run
from ..engine.inside_results import InsideBuilder
from ..engine.propagate import propagate_each
from ..inputs.inside_demand import InsideDemand
from ..rules import RuleSet
from ..rules.inside import watch_inside
from ..rules.node_changes import ChangeScope
from ..rules.scope import Scope
from ..rules.tapped import NodeTap

HEADS_PART = 0.375  # how far nodes have gone; chosen for heads and feed-forward outputs (docs/inside.md)
PART = 0.5
GRADIENTS = NO_RULES.rules


class MovedPasses(NamedTuple):
    """Every pass moves one node in `passes` by `part` of its change."""

    passes: int
    part: float

    def choose(self, place: NodeTap, turn: int) -> Tensor:
        """Which units of a place move in this pass: each moves in one of them, and layers begin with another."""
        units = 1 if place.units is None else place.kept[place.units]
        layer = 0 if place.layer is None else place.layer[1]
        return (torch.arange(units) + layer) % self.passes == turn

    def take(self, place: NodeTap, change: Tensor, turn: int) -> Tensor:
        """What is taken from the values of a place in this pass."""
        shape = [1] * change.dim()
        shape[0 if place.units is None else place.units] = -1
        return self.part * change * self.choose(place, turn).view(shape).to(change.device)


def plan_passes(places: Sequence[NodeTap], passes: int) -> dict[str, MovedPasses]:
    """So many passes for each kind of node there is."""
    return {
        kind: MovedPasses(passes, HEADS_PART if kind == "heads" else PART)
        for kind in dict.fromkeys(place.kind for place in places)
    }


@dataclass(frozen=True)
class PatchEstimator:
    """One input with the changes of all nodes to what would be put into them."""

    run: Run
    demand: InsideDemand
    places: list[NodeTap]
    changes: list[Tensor]

    def estimate(self, rules: RuleSet = GRADIENTS) -> list[Tensor]:
        """[units] of every place: by how much the score would fall."""
        return self.run_pass(rules)

    def estimate_moved(self, ways: Mapping[str, MovedPasses], rules: RuleSet = GRADIENTS) -> list[Tensor]:
        """The same, with gradients where nodes have gone a part of the way; `ways` says how for each kind of node."""
        found: dict[int, Tensor] = {}
        for kind, way in ways.items():
            own = {n: place for n, place in enumerate(self.places) if place.kind == kind}
            for turn in range(way.passes):
                units = self.run_pass(rules, {n: way.take(own[n], self.changes[n], turn) for n in own})
                for n, place in own.items():
                    found[n] = torch.where(way.choose(place, turn), units[n], found.get(n, torch.zeros(())))
        return [found[number] for number in range(len(self.places))]

    def run_pass(
        self,
        rules: RuleSet,
        moved: Mapping[int, Tensor] | None = None,
        noise: Callable[[Tensor], Tensor] | None = None,
    ) -> list[Tensor]:
        """One forward and one backward pass."""

        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            assert isinstance(scope, ChangeScope)
            scope.ask(self.demand)
            scope.changes, scope.moved = self.changes, moved or {}
            with watch_inside(self.run.model, scope):
                yield

        run = replace(self.run, scope=ChangeScope, watch=watch, noise=noise)
        (outcome,) = propagate_each(run, Demand(rules), [run.read], close=False)
        builder = InsideBuilder.of(self.demand, run.batch, outcome, "float32")
        return [group.units.double() for group in builder.make(0, ()).groups]
