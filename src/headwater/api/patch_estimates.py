"""What patching each node would do, estimated for all of them by one pass: its change of value times its gradient.

That is attribution patching (Nanda 2023). A gradient says what the first step does, and patching goes all the way. So
an estimate is good where a node changes little. It is not to be trusted where it is a sum of large terms, even if they
cancel and the sum is small. `choose_unsure` finds the nodes that had better be patched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..engine.forward import NO_RULES, Demand, Run
from ..engine.inside_results import InsideBuilder, arrange
from ..engine.propagate import propagate_each
from ..inputs.batch import copy_caches
from ..inputs.inside_demand import InsideDemand
from ..inputs.places import capture_inputs
from ..results.inside import ROUTER
from ..rules import RuleSet
from ..rules.inside import watch_inside
from ..rules.node_changes import ChangeScope
from ..rules.scope import Scope
from ..rules.tapped import NodeTap

GRADIENTS = NO_RULES.rules


@dataclass(frozen=True)
class PatchEstimate:
    """The estimates of one place, [units] each."""

    falls: Tensor  # by how much the score would fall
    terms: Tensor  # the absolute values of all terms that `falls` is the sum of


@dataclass(frozen=True)
class PatchEstimator:
    """One input with the changes of all nodes to what would be put into them."""

    run: Run
    demand: InsideDemand
    places: list[NodeTap]
    changes: list[Tensor]

    def estimate(
        self, rules: RuleSet = GRADIENTS, noise: Callable[[Tensor], Tensor] | None = None
    ) -> list[PatchEstimate]:
        """One forward and one backward pass for all places; `noise` is added to the explained input."""
        scopes: list[ChangeScope] = []

        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            assert isinstance(scope, ChangeScope)
            scope.ask(self.demand)
            scope.changes = self.changes
            scopes.append(scope)
            with watch_inside(self.run.model, scope):
                yield

        run = replace(self.run, scope=ChangeScope, watch=watch, noise=noise)
        (outcome,) = propagate_each(run, Demand(rules), [run.read], close=False)
        groups = InsideBuilder.of(self.demand, run.batch, outcome, "float32").make(0, ()).groups
        groups = tuple(group for group in groups if group.kind != ROUTER)  # which is replaced nowhere
        terms = [sum_terms(scopes[-1].terms.get(number), place) for number, place in enumerate(self.places)]
        return [PatchEstimate(group.units.double(), one) for group, one in zip(groups, terms, strict=True)]

    def estimate_beside(self, other: Run) -> list[PatchEstimate]:
        """The same by two passes: terms are added to those halfway to another input, where gradients are others."""
        halfway = self.estimate(noise=partial(move_halfway, read_input(other)))
        return [replace(a, terms=a.terms + b.terms) for a, b in zip(self.estimate(), halfway, strict=True)]


def move_halfway(other: Tensor, leaf: Tensor) -> Tensor:
    """What is added to an input to be halfway to another one."""
    return (other - leaf) / 2


def read_input(run: Run) -> Tensor:
    """The explained input of a run: the embeddings of its words."""
    with torch.no_grad(), capture_inputs(run.batch.places) as found:
        run.model(*run.batch.args, **copy_caches(run.batch.kwargs))
    return found[0].leaf.detach()


def sum_terms(noted: Tensor | None, place: NodeTap) -> Tensor:
    """[units] of one place; zeros where no gradient came."""
    if noted is None:
        noted = torch.zeros(place.kept)
    return arrange(noted, place, 1)[0].double().sum(0)


def choose_unsure(kinds: Sequence[str], terms: Sequence[float], count: int) -> list[int]:
    """The numbers of `count` nodes, those with the largest terms first: as many of each kind, as long as it has some.

    Terms of one kind are not those of another: a feed-forward layer's output has more features than that of a head.
    """
    order = sorted(range(len(kinds)), key=lambda node: -terms[node])
    seen: Counter[str] = Counter()
    turns: dict[int, int] = {}
    for node in order:
        turns[node] = seen[kinds[node]]
        seen[kinds[node]] += 1
    return sorted(order, key=turns.__getitem__)[:count]
