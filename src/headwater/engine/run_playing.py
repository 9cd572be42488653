"""A run that was written down, played: the same operations, without our Python and autograd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..inputs.places import Captured
from ..inputs.restoring import outside_inference
from ..rules import Books
from ..rules.difference import ReferenceValues
from ..rules.tapped import InsideRecord
from ..traces.join import fits, join_traces
from ..traces.play import Left, Program, compile_trace
from ..traces.record import Slot
from .forward import Read, Run, map_output, read_score
from .reference import Reference, read_reference
from .run_graphs import Player, RunGraphs
from .run_writing import Written, given_tensors, length_of, slots_of


@dataclass
class RunPlan:
    """What was written down of runs between two lengths, as a program."""

    written: Written
    shortest: int
    longest: int
    program: Program | None = None
    left: int = 0  # times in a row that numbers were not as written
    trusted: bool = False  # whether it was played beside a plain run, and said the same
    tried_now: bool = False  # whether a thread is playing it beside a plain run
    graphs: RunGraphs = field(default_factory=RunGraphs)

    @cached_property
    def wanted(self) -> list[list[Slot]]:
        """The slots that each of the two parts gives."""
        w = self.written
        first = [*slots_of(w.out), *w.leaves, *filter(None, w.ids), *(s for part in w.references or () for s in part)]
        return [first, [*filter(None, w.gradients), *w.amounts.values(), *w.sizes.values(), *w.noted.values()]]

    def takes(self, length: int) -> bool:
        return self.shortest <= length <= self.longest

    def compile(self) -> Program:
        """The program, made when it is first asked for."""
        if self.program is None:
            self.program = compile_trace(self.written.trace, self.wanted)
        return self.program

    @contextmanager
    def player(self, run: Run) -> Iterator[Player]:
        """Plays one run: by graphs on a card where this length came before and memory is there for it."""
        given, length = given_tensors(run.batch), length_of(run.batch)
        program = self.compile()
        with self.graphs.player(program, self.written.trace, self.wanted, given, length) as found:
            yield found

    def agrees(self, other: Written) -> bool:
        """Whether a run whose length it takes did what the plan does."""
        return other.shape == self.written.shape and fits(self.written.trace, other.trace, other.length)

    def extend(self, other: Written) -> RunPlan | None:
        """The plan with the length of another run that does the same; None if it does something else.

        Where its operations change, it is another plan: another thread may play this one meanwhile.
        """
        if self.takes(other.length):
            return self
        if other.shape != self.written.shape:
            return None
        shortest, longest = min(self.shortest, other.length), max(self.longest, other.length)
        if self.shortest == self.longest:
            joined = join_traces(self.written.trace, other.trace, (self.shortest, other.length))
            return None if joined is None else RunPlan(replace(self.written, trace=joined), shortest, longest)
        if not fits(self.written.trace, other.trace, other.length):
            return None
        self.shortest, self.longest = shortest, longest
        return self


@dataclass(frozen=True)
class Played:
    """What a played run gives, before its score was looked at further."""

    read: Read
    linear: Tensor
    inputs: list[Captured]
    gradients: list[Tensor]
    books: Books
    met: dict[str, int]
    coarsest: torch.dtype | None
    way: str
    reference: Reference | None = None
    inside: InsideRecord | None = None


@dataclass
class PlayedForwards:
    """What the first part of a played run gives: the score that was read, and what the second part is to be read by."""

    read: Read
    leaves: list[Tensor]
    ids: list[Tensor | None]
    reference: Reference | None


def play_run(plan: RunPlan, run: Run) -> Played | None:
    """The run by its plan; None where it must be computed plainly."""
    written = plan.written
    try:
        with plan.player(run) as player:
            first, seeds = play_forwards(written, run, player)
            first.read.reading.send()
            with outside_inference():
                tensors = iter(player.backwards(seeds))
            with outside_inference(), torch.enable_grad():
                linear = first.read.linear_part()  # while a card is at work
            gradients = [
                torch.zeros_like(leaf) if slot is None else player.own(next(tensors))
                for leaf, slot in zip(first.leaves, written.gradients, strict=True)
            ]
            booked = [next(tensors) for _ in (*written.amounts, *written.sizes)]
            noted = {index: player.own(next(tensors)) for index in written.noted}
            read, inputs, reference = own_first_part(player, written, first)
            numbers = iter(player.own_all(booked))
            amounts = {index: next(numbers) for index in written.amounts}
            sizes = {index: next(numbers) for index in written.sizes}
    except Left:
        plan.left += 1
        return None
    plan.left = 0
    books = replace(written.books, sites=list(written.books.sites), amounts=amounts, sizes=sizes)
    books.length = run.batch.length
    inside = None if written.inside is None else written.inside.with_amounts(noted)
    rest = (books, dict(written.met), written.coarsest, player.way, reference, inside)
    return Played(read, linear, inputs, gradients, *rest)


def play_forwards(written: Written, run: Run, player: Player) -> tuple[PlayedForwards, list[Tensor]]:
    """The forward pass, the score outside the plan, and the gradients with which the way back begins."""
    with outside_inference():
        tensors = iter(player.forwards())
    with outside_inference(), torch.enable_grad():
        out, ends = fill_output(written, tensors)
        leaves = [next(tensors) for _ in written.leaves]
        ids = list(own_ids(written, run, player, tensors))
        references = [[next(tensors) for _ in part] for part in written.references or ()]
        read = read_score(run, out)
        if [id(end) for end in read.ends] != [id(ends[slot.number]) for slot in written.ends]:
            raise Left
        seeds = read.gradients()
        reference = read_reference(read, ReferenceValues(*references) if references else None)
        return PlayedForwards(read, leaves, ids, reference), seeds


def own_ids(written: Written, run: Run, player: Player, tensors: Iterator[Tensor]) -> Iterator[Tensor | None]:
    """The ids by which each input was looked up: the batch's own tensor where they were just that."""
    given = dict(zip((slot.number for slot in written.trace.inputs[0]), given_tensors(run.batch), strict=True))
    for slot in written.ids:
        found = None if slot is None else next(tensors)
        own = None if slot is None else given.get(slot.number)
        yield found if found is None else player.own(found) if own is None else own


def own_first_part(
    player: Player, written: Written, first: PlayedForwards
) -> tuple[Read, list[Captured], Reference | None]:
    """Score, inputs and reference in memory that no later run writes into."""
    read, reference = first.read, first.reference
    read.reading.score = player.own(read.reading.score.detach())
    if reference is not None:
        reference = Reference([player.own(one) for one in reference.inputs], player.own(reference.score))
    inputs = [
        Captured(player.own(leaf), ids, beside)
        for leaf, ids, beside in zip(first.leaves, first.ids, written.beside, strict=True)
    ]
    return read, inputs, reference


def fill_output(written: Written, tensors: Iterator[Tensor]) -> tuple[Any, dict[int, Tensor]]:
    """The model's output with tensors in its slots, those that follow from the input marked as such."""
    ends: dict[int, Tensor] = {}

    def fill(value: Any) -> Any:
        if not isinstance(value, Slot):
            return value
        tensor = next(tensors)
        if value.number in written.follows:
            tensor = ends.setdefault(value.number, tensor.detach().requires_grad_(True))
        return tensor

    return map_output(written.out, fill), ends
