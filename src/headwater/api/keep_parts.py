"""What a model says with some of its parts alone: all others are replaced, as in `patch`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ..engine.forward import Run
from ..engine.node_flows import FlowTable, UnitAddress
from ..engine.options import Request
from ..engine.session import Session
from ..errors import NotApplicable
from ..inputs.inside_demand import InsideDemand
from ..inputs.walking import walk_once
from ..methods.perturbation import fix_target, repeat_sample
from ..plurals import say_count
from ..results.circuit import CircuitFaithfulness
from ..rules.flow_gates import is_part
from ..rules.patching import PlaceKey, ValueSwap
from ..rules.tapped import NodeTap, SamplesUntold
from .patch import find_values, make_one_run, run_with_swaps

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of a circuit's nodes, at which it is tested
Parts = Collection[UnitAddress]


@dataclass(frozen=True)
class PartsKeeper:
    """A model, a text, and the values that each of its parts gets when it is replaced."""

    run: Run
    demand: InsideDemand
    whole: frozenset[str]  # kinds whose units are one part together
    numbers: list[int]  # of the places that are parts, among all that a pass meets
    places: list[NodeTap]
    keys: list[PlaceKey]
    values: dict[int, Tensor]
    score: float
    batch_size: int

    @classmethod
    def open(cls, ask: Request, demand: InsideDemand, whole: frozenset[str], with_: Any) -> PartsKeeper:
        with walk_once():
            session = Session.open(ask.model, ask.options)
            run = make_one_run(session, ask)
            scope, out = run_with_swaps(run, demand, {})
            run = replace(run, read=fix_target(run.read, out, run.batch))
            numbers = [n for n, one in enumerate(scope.places) if is_part(one.kind, one.layer, scope)]
            values = find_values(session, ask, demand, scope, with_, numbers)
        score = float(run.read(out, run.batch).score[0].detach())
        places, keys = [scope.places[number] for number in numbers], [scope.keys[number] for number in numbers]
        return cls(run, demand, whole, numbers, places, keys, values, score, ask.options.batch_size)

    @property
    def parts(self) -> list[UnitAddress]:
        """All parts, in the order in which the model computes them."""
        return [UnitAddress(p, u) for p in range(len(self.places)) for u in range(self.count_units(p))]

    def count_units(self, place: int) -> int:
        tap = self.places[place]
        return 1 if tap.units is None or tap.kind in self.whole else tap.kept[tap.units]

    def keep_only(self, kept: Sequence[Parts]) -> list[float]:
        """The score for each of these sets, when all parts that are not in it are replaced."""
        found: list[float] = []
        for first in range(0, len(kept), self.batch_size):
            found += self._ask(kept[first : first + self.batch_size])
        return found

    def without(self, removed: Sequence[Parts]) -> list[float]:
        """The score for each of these sets, when all parts that are in it are replaced."""
        every = {*self.parts}
        return self.keep_only([every - {*one} for one in removed])

    def _ask(self, kept: Sequence[Parts]) -> list[float]:
        swaps: dict[PlaceKey, list[ValueSwap]] = {}
        for row, parts in enumerate(kept):
            for key, swap in self._replace_others(row, frozenset(parts)):
                swaps.setdefault(key, []).append(swap)
        run = replace(self.run, batch=repeat_sample(self.run.batch, len(kept)))
        try:
            _, out = run_with_swaps(run, self.demand, swaps, keeps=False)
        except SamplesUntold:
            return [score for one in kept for score in self._ask([one])]
        return [float(score) for score in run.read(out, run.batch).score.detach()]

    def _replace_others(self, row: int, parts: frozenset[UnitAddress]) -> Iterator[tuple[PlaceKey, ValueSwap]]:
        for place, (number, key) in enumerate(zip(self.numbers, self.keys, strict=True)):
            count = self.count_units(place)
            others = [unit for unit in range(count) if UnitAddress(place, unit) not in parts]
            if others:
                units = None if len(others) == count else others
                yield key, ValueSwap(row, units, self.values[number])


def measure_circuit(
    ask: Request, demand: InsideDemand, whole: frozenset[str], table: FlowTable, with_: Any
) -> CircuitFaithfulness:
    """The score with the largest nodes alone, and without them, at several sizes up to that of the circuit."""
    keeper = PartsKeeper.open(ask, demand, whole, with_)
    if [(one.kind, one.module) for one in keeper.places] != [(one.kind, one.module) for one in table.places]:
        raise NotApplicable(
            "the parts that the circuit has are not those that can be replaced in this model, so it cannot be tested: "
            "leave out with_=, or ask for parts=['layers'] or modules by name."
        )
    order = sorted(table.chosen, key=lambda one: -abs(float(table.relevance[one.place][one.unit])))
    sizes = sorted({max(1, round(share * len(order))) for share in SHARES})
    sets = [order[:size] for size in sizes]
    kept, removed = keeper.keep_only([*sets, ()]), keeper.without(sets)
    mean = f"the mean of {say_count(len(with_), 'text')}" if isinstance(with_, list) else ""
    name = with_ if isinstance(with_, str) else mean
    return CircuitFaithfulness(
        tuple(sizes), tuple(kept[:-1]), tuple(removed), keeper.score, kept[-1], len(keeper.parts), name
    )
