"""What flows between the parts of a model: one backward pass per node, as many nodes at once as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import HeadwaterError
from ..inputs.batch import Batch
from ..rules.flow_gates import FlowScope, mask_units
from ..rules.tapped import NodeTap
from .at_once import ROWS, ROWS_ON_CARD, for_each, pull_batch
from .attribution import Attributed, attribute
from .forward import Read
from .propagate import outcome_of


class UnitAddress(NamedTuple):
    """One node: the number of its place, and its number there."""

    place: int
    unit: int


@dataclass(frozen=True)
class NodeFlow:
    """What flows from one node down to the nodes below it: [units] by place, per word, and to biases and constants."""

    units: dict[int, Tensor]
    words: Tensor
    sources: float


@dataclass(frozen=True)
class FlowTable:
    """What flows from the score, from each chosen node, and from all that is left out.

    `relevance` is [units] by place: what each of them has in all.
    """

    places: list[NodeTap]
    relevance: dict[int, Tensor]
    chosen: list[UnitAddress]
    score: NodeFlow
    nodes: list[NodeFlow]
    rest: NodeFlow | None  # None where nothing is left out


@dataclass(frozen=True)
class FlowTracer:
    """The graph of one run, after the score's own backward pass, and how many nodes one further pass may have."""

    batch: Batch
    scope: FlowScope
    read: Read
    at_once: int

    @classmethod
    def of(cls, batch: Batch, scope: FlowScope, read: Read, most: int) -> FlowTracer:
        rows = max(1, sum(one.leaf.shape[:-1].numel() for one in scope.entered_inputs))
        limit = ROWS if read.ends[0].device.type == "cpu" else ROWS_ON_CARD
        return cls(batch, scope, read, max(1, min(most, limit // rows)))

    def trace(self, count: int) -> FlowTable:
        """The flows of the `count` nodes with the largest relevance. The books are left as they were found."""
        scope, books = self.scope, self.scope.books
        relevance = {place: amount[0] for place, amount in scope.take_amounts(1).items()}
        chosen = choose_units(relevance, count)
        own = books.take()
        scope.stops = True
        try:
            (score,) = self._pull(self.read.ends, [one.unsqueeze(0) for one in self.read.gradients()])
            nodes = dict(self._pull_nodes(chosen))
            rest = self._pull_rest(chosen, relevance)
        finally:
            scope.stops, books.scores = False, None
            books.take()
            books.amounts, books.sizes = own.amounts, own.sizes
        return FlowTable(scope.places, relevance, chosen, score, [nodes[one] for one in chosen], rest)

    def _pull_nodes(self, chosen: Sequence[UnitAddress]) -> Iterator[tuple[UnitAddress, NodeFlow]]:
        """Nodes of one place lie side by side in one pass, which begins there."""
        for place in sorted({one.place for one in chosen}):
            own = [one for one in chosen if one.place == place]
            for first in range(0, len(own), self.at_once):
                some = own[first : first + self.at_once]
                seeds = torch.stack([self._seed(place, [one.unit]) for one in some])
                yield from zip(some, self._pull([self.scope.roots[place]], [seeds]), strict=True)

    def _pull_rest(self, chosen: Sequence[UnitAddress], relevance: dict[int, Tensor]) -> NodeFlow | None:
        """Everything that was not chosen, in one pass."""
        taken = {place: {one.unit for one in chosen if one.place == place} for place in relevance}
        left = {p: [u for u in range(len(r)) if u not in taken[p]] for p, r in relevance.items()}
        places = [place for place, units in left.items() if units]
        if not places:
            return None
        seeds = [self._seed(place, left[place]).unsqueeze(0) for place in places]
        return self._pull([self.scope.roots[place] for place in places], seeds)[0]

    def _seed(self, place: int, units: Sequence[int]) -> Tensor:
        tap, gradient = self.scope.places[place], self.scope.gradients[place]
        mask = torch.zeros(1 if tap.units is None else gradient.shape[tap.units], device=gradient.device)
        mask[list(units)] = 1
        return mask_units(gradient, tap, mask)

    def _pull(self, ends: Sequence[Any], seeds: Sequence[Tensor]) -> list[NodeFlow]:
        """Backward passes from `ends`, one flow for each row of the seeds; one by one where they cannot be batched."""
        count = len(seeds[0])
        if count == 1:
            return [self._pull_one(ends, [seed[0] for seed in seeds])]
        try:
            return self._pull_together(ends, seeds, count)
        except (RuntimeError, HeadwaterError):  # one by one, it is said what is wrong, if anything is
            self._forget()
            return [self._pull_one(ends, [seed[k] for seed in seeds]) for k in range(count)]

    def _pull_one(self, ends: Sequence[Any], seeds: Sequence[Tensor]) -> NodeFlow:
        self._forget()
        leaves = [one.leaf for one in self.scope.entered_inputs]
        with torch.autocast(leaves[0].device.type, enabled=False):
            found = torch.autograd.grad(ends, leaves, list(seeds), retain_graph=True, allow_unused=True)
        gradients = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]
        return self._make_flow(self.scope.take_amounts(1), gradients, self._sum_sources(1), 0)

    def _pull_together(self, ends: Sequence[Any], seeds: Sequence[Tensor], count: int) -> list[NodeFlow]:
        self._forget()
        leaves = [one.leaf for one in self.scope.entered_inputs]
        self.scope.books.scores = count
        opened = pull_batch(leaves, ends, seeds)
        gradients = [for_each(one, leaf, count) for one, leaf in zip(opened, leaves, strict=True)]
        sources, amounts = self._sum_sources(count), self.scope.take_amounts(count)
        self.scope.books.scores = None
        return [self._make_flow(amounts, [g[k] for g in gradients], sources, k) for k in range(count)]

    def _forget(self) -> None:
        """What an earlier pass, or one that broke off, has booked."""
        self.scope.books.take()
        self.scope.books.scores = None
        self.scope.amounts = {}

    def _sum_sources(self, count: int) -> Tensor:
        """[scores]: what biases and constants got in the last pass."""
        amounts = [one.detach().double().cpu().reshape(count) for one in self.scope.books.amounts.values()]
        return torch.stack(amounts).sum(0) if amounts else torch.zeros(count, dtype=torch.float64)

    def _make_flow(self, amounts: dict[int, Tensor], gradients: list[Tensor], sources: Tensor, row: int) -> NodeFlow:
        units = {place: amount[row].cpu() for place, amount in amounts.items()}
        nothing = torch.zeros(1, dtype=torch.float64)
        inputs = self.scope.entered_inputs
        outcome = outcome_of(self.read, nothing, inputs, gradients, self.scope.books, self.scope)
        (found,) = attribute(self.batch, outcome)
        return NodeFlow(units, words_of_flow(found), float(sources[row]) + rest_of_flow(found))


def words_of_flow(found: Attributed) -> Tensor:
    """[words]; of an input without tokens, one number."""
    relevance = found.relevance.detach().double().cpu()
    return relevance if found.tokens and relevance.dim() == 1 else relevance.sum().reshape(1)


def rest_of_flow(found: Attributed) -> float:
    """What of the inputs belongs to no word of the text."""
    return sum(found.constants.values()) + sum(found.untold.values())


def choose_units(relevance: dict[int, Tensor], count: int) -> list[UnitAddress]:
    """The units with the largest relevance, whatever its sign, in the order in which the model computes."""
    all_units = [
        (float(amount), UnitAddress(p, u)) for p, row in relevance.items() for u, amount in enumerate(row.abs())
    ]
    largest = sorted(all_units, key=lambda one: (-one[0], one[1]))[:count]
    return sorted(unit for _, unit in largest)
