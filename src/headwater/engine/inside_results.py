"""From what a run noted inside the model to the value `e.inside`: nodes by position, and the ledger of every cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import NotApplicable
from ..inputs.batch import Batch, map_leaves
from ..inputs.inside_demand import InsideDemand
from ..results.inside import CutLedger, Inside, NodeGroup
from ..rules.tapped import EDGE, InsideRecord, NodeTap
from .outcome import Outcome

_FOUND_BY = {
    "heads": "a softmax mixes values",
    "neurons": "a linear layer follows an activation or a gate",
    "experts": "a feed-forward layer multiplies by one of several matrices of a parameter (as mixtures do that are "
    "loaded with experts_implementation='eager', or after model.set_experts_implementation('eager'))",
    "layers": "modules are listed one after another",
}


@dataclass
class InsideBuilder:
    """Makes `e.inside` of every sample of one run."""

    batch: Batch
    outcome: Outcome
    record: InsideRecord
    dtype: str

    @classmethod
    def of(cls, demand: InsideDemand, batch: Batch, outcome: Outcome, dtype: str) -> InsideBuilder:
        record = outcome.inside
        if record is None:
            raise NotApplicable("this method passes no relevance through the model's parts. Take one of its rules.")
        check_found(record, demand)
        return cls(batch, outcome, record, dtype)

    def make(self, index: int, tokens: tuple[str, ...]) -> Inside:
        calls: Counter[Any] = Counter()
        groups = []
        for number, tap in enumerate(self.record.taps):
            if tap.kind != EDGE:
                groups.append(self.make_group(index, number, tap, calls[tap.kind, tap.module], len(tokens)))
                calls[tap.kind, tap.module] += 1
        return Inside(tuple(groups), tokens)

    def make_group(self, index: int, number: int, tap: NodeTap, call: int, count: int) -> NodeGroup:
        rows = self.arranged[number][index]
        real = self.real_positions(index, len(rows))
        kept = rows if real is None else rows[real]
        stack, layer = tap.layer or ("", None)
        return NodeGroup(
            tap.kind,
            tap.module,
            kept.clone(),
            layer,
            stack,
            call,
            by_token=len(kept) == count,
            padding=0.0 if real is None else float(rows[~real].double().sum()),
            ledger=self.make_ledger(index, number, tap),
            expert=tap.expert,
        )

    @cached_property
    def arranged(self) -> dict[int, Tensor]:
        """What was noted at every node, [samples, positions, units]. Where no gradient came there is nothing."""
        taps = self.record.taps
        found = {i: arrange(amount, taps[i], self.record.samples) for i, amount in self.record.amounts.items()}
        nodes = {i for i, tap in enumerate(taps) if tap.kind != EDGE}
        empty = {i: torch.zeros(taps[i].kept).to(torch.float32) for i in nodes - {*found}}
        return {i: one for i, one in found.items() if i in nodes} | {
            i: arrange(one, taps[i], self.record.samples) for i, one in empty.items()
        }

    def real_positions(self, index: int, length: int) -> Tensor | None:
        """Which positions are tokens of the sample, where padding is among them."""
        real = self.batch.real
        if real is None or length != real.shape[1] or bool(real[index].all()):
            return None
        return real[index].cpu()

    def make_ledger(self, index: int, number: int, tap: NodeTap) -> CutLedger | None:
        if tap.first < 0:
            return None
        nodes = self.arranged[number][index].double()
        edges, sources = self.edges[tap.first, index], self.sources[tap.first, index]
        readout = float(self.outcome.readout[index])
        sizes = [float(nodes.abs().sum()), float(self.edge_sizes[tap.first, index]), abs(float(sources)), abs(readout)]
        return CutLedger(
            f"{tap.module}: {tap.kind}" if tap.module else tap.kind,
            float(self.outcome.score[index]),
            float(nodes.sum()),
            float(edges),
            float(sources),
            readout,
            self.dtype,
            sum(sizes),
        )

    @cached_property
    def edges(self) -> Tensor:
        return self._sum_edges(lambda amount: amount)

    @cached_property
    def edge_sizes(self) -> Tensor:
        return self._sum_edges(Tensor.abs)

    def _sum_edges(self, of: Any) -> Tensor:
        """[cuts, samples]: what goes around each cut's nodes."""
        found = torch.zeros(len(self.record.cuts), self.record.samples, dtype=torch.float64)
        for number, tap in enumerate(self.record.taps):
            if tap.kind == EDGE and number in self.record.amounts:
                found[tap.first : tap.last] += of(self.record.amounts[number].cpu())
        return found

    @cached_property
    def sources(self) -> Tensor:
        """[cuts, samples]: biases and constants that enter after each cut."""
        amounts = self.outcome.books.amounts
        found = torch.zeros(len(self.outcome.books.sites) + 1, self.record.samples, dtype=torch.float64)
        for site, amount in amounts.items():
            found[site] = amount.cpu()
        after = found.flip(0).cumsum(0).flip(0)
        return after[torch.tensor(self.record.cuts, dtype=torch.long)]


def arrange(amount: Tensor, tap: NodeTap, samples: int) -> Tensor:
    """[samples, positions, units] of what was noted at a node."""
    amount = amount.detach().cpu()
    amount = amount.unsqueeze(-1) if tap.units is None else amount.movedim(tap.units, -1)
    if samples == 1:
        return amount.reshape(1, -1, amount.shape[-1])
    assert tap.samples is not None
    axis = tap.samples - (tap.units is not None and tap.units < tap.samples)
    return amount.movedim(axis, 0).reshape(samples, -1, amount.shape[-1])


def check_found(record: InsideRecord, demand: InsideDemand) -> None:
    """Every kind that was asked for is there; else what was found in its place is said."""
    if record.untold:
        raise NotApplicable(
            f"the heads of {record.untold[0]!r} cannot be told: its attention mixes values in a shape that does not "
            "say which axis the heads are. Ask for layers or for modules by name."
        )
    known = {tap.kind for tap in record.taps}
    for kind in sorted(demand.kinds - known):
        where = _FOUND_BY.get(kind, _FOUND_BY["heads"])
        raise NotApplicable(
            f"the model has no {kind} that can be told: there is no place where {where} on the way from the explained "
            "input to the score. Ask for layers or for modules by name."
        )


def split_batch(batch: Batch) -> list[Batch]:
    """Every sample as a batch of its own."""

    def take(index: int) -> Batch:
        if batch.alone is not None:
            return batch.alone(index)
        parts: dict[int, Any] = {}

        def cut(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != batch.samples:
                return value
            return parts.setdefault(id(value), value[index : index + 1])

        args, kwargs = map_leaves((batch.args, batch.kwargs), cut)
        return replace(
            batch,
            samples=1,
            items=[batch.items[index]],
            args=args,
            kwargs=kwargs,
            ids=cut(batch.ids),
            real=cut(batch.real),
            tensor=cut(batch.tensor),
        )

    return [take(index) for index in range(batch.samples)]
