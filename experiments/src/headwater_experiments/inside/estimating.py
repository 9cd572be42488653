"""What patching a node would do, estimated for all nodes by few passes: its change of value times its gradient.

With plain gradients that is attribution patching (Nanda 2023), with gradients along the way from the other input that
of integrated gradients (Hanna et al. 2024), with the rules of LRP it is RelP (Jafari et al. 2025).

A node that is patched goes all the way to its other value, and a gradient says what the first step does. So gradients
are also taken where nodes have gone a part of the way (`estimate_moved`). Not all nodes move in one pass, for in truth
one moves alone: every fifth node of one kind, say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwater.api.patch import make_one_run, run_with_swaps
from headwater.api.requests import make_request
from headwater.engine.forward import Demand, Run
from headwater.engine.inside_results import InsideBuilder
from headwater.engine.propagate import propagate_each
from headwater.engine.session import Session
from headwater.inputs.inside_demand import InsideDemand
from headwater.rules import RuleSet
from headwater.rules.by_passing import Axes, give_attributes
from headwater.rules.inside import InsideScope, watch_inside
from headwater.rules.saved import forget_maker
from headwater.rules.scope import Scope
from headwater.rules.tapped import NodeTap, Sum

from .pairs import InputPair, PairTask

STEPS = 10  # between the two inputs, for integrated gradients


class FixedChange:
    """A node's change of value, in the place of its value."""

    def __init__(self, change: Tensor) -> None:
        self.change = change

    @property
    def here(self) -> bool:
        return True

    def tensor(self) -> Tensor:
        return self.change

    def copy_before_write(self, written: Tensor) -> None:
        """Nobody else has it."""


@dataclass(eq=False)
class ChangeScope(InsideScope):
    """Notes change times gradient at every node."""

    changes: Sequence[Tensor] = field(default_factory=list)
    moved: Mapping[int, Tensor] = field(default_factory=dict)  # what is taken from the values of a place
    noted: int = 0

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        tap = NodeTap(kind, module, how, *axes, -1, -1, layer=self.layer_of(module))
        taken = self.moved.get(self.noted)
        if taken is not None:
            tensor = give_attributes(tensor - taken, tensor)
            forget_maker(tensor)
        self.record.watch(tensor, tap, FixedChange(self.changes[self.noted]), self.books)
        self.noted += 1
        return tensor


class MovedPasses(NamedTuple):
    """Every pass moves one node in `passes` by `part` of its change."""

    passes: int
    part: float

    def choose(self, place: NodeTap, turn: int) -> Tensor:
        """Which units of a place move in this pass: each moves in one of them, and layers begin with another."""
        assert place.layer is not None
        units = 1 if place.units is None else place.kept[place.units]
        return (torch.arange(units) + place.layer[1]) % self.passes == turn

    def take(self, place: NodeTap, change: Tensor, turn: int) -> Tensor:
        """What is taken from the values of a place in this pass."""
        shape = [1] * change.dim()
        shape[0 if place.units is None else place.units] = -1
        return self.part * change * self.choose(place, turn).view(shape)


@dataclass(frozen=True)
class Estimator:
    """One pair of inputs with the changes of all nodes between them."""

    run: Run
    demand: InsideDemand
    places: list[NodeTap]
    changes: list[Tensor]
    other_input: Tensor

    @classmethod
    def of(cls, task: PairTask, pair: InputPair, demand: InsideDemand) -> Estimator:
        options: dict[str, Any] = {"tokenizer": task.tokenizer, "target": pair.target, "output": "logit"}
        asks = [make_request(task.model, text, **options) for text in (pair.clean, pair.other)]
        session = Session.open(asks[0].model, asks[0].options)
        clean, other = (make_one_run(session, ask) for ask in asks)
        here, there = (run_with_swaps(run, demand, {})[0] for run in (clean, other))
        changes = [a - b for a, b in zip(here.found, there.found, strict=True)]
        return cls(clean, demand, here.places, changes, input_of(other))

    def estimate(self, rules: RuleSet) -> list[Tensor]:
        """[units] of every node: by how much the score would fall if it had its value of the other input."""
        return self._pass(rules, None)

    def integrate(self, rules: RuleSet, steps: int = STEPS) -> list[Tensor]:
        """The same, averaged over inputs between the two."""
        total: list[Tensor] = []
        for step in range(steps):
            part = (step + 0.5) / steps
            found = self._pass(rules, part)
            total = found if not total else [a + b for a, b in zip(total, found, strict=True)]
        return [one / steps for one in total]

    def estimate_moved(self, rules: RuleSet, ways: Mapping[str, MovedPasses]) -> list[Tensor]:
        """The same, with gradients where nodes have gone a part of the way; `ways` says how for each kind of node."""
        found: dict[int, Tensor] = {}
        for kind, way in ways.items():
            own = {n: place for n, place in enumerate(self.places) if place.kind == kind}
            for turn in range(way.passes):
                units = self._pass(rules, None, {n: way.take(own[n], self.changes[n], turn) for n in own})
                for n, place in own.items():
                    found[n] = torch.where(way.choose(place, turn), units[n], found.get(n, torch.zeros(())))
        return [found[number] for number in range(len(self.places))]

    def _pass(self, rules: RuleSet, part: float | None, moved: Mapping[int, Tensor] | None = None) -> list[Tensor]:
        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            assert isinstance(scope, ChangeScope)
            scope.ask(self.demand)
            scope.changes, scope.moved = self.changes, moved or {}
            with watch_inside(self.run.model, scope):
                yield

        noise = None if part is None else lambda leaf: (1 - part) * (self.other_input - leaf)
        run = replace(self.run, scope=ChangeScope, watch=watch, noise=noise)
        (outcome,) = propagate_each(run, Demand(rules), [run.read], close=False)
        builder = InsideBuilder.of(self.demand, run.batch, outcome, "float32")
        return [group.units.double() for group in builder.make(0, ()).groups]


def input_of(run: Run) -> Tensor:
    """The explained input of a run: the embeddings of its words."""
    from headwater.inputs.places import capture_inputs

    with torch.no_grad(), capture_inputs(run.batch.places) as found:
        run.model(*run.batch.args, **run.batch.kwargs)
    return found[0].leaf.detach()
