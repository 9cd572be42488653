"""Writing a run down while it is computed plainly: its operations, and where its results lie among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..inputs.batch import Batch, list_leaves
from ..inputs.places import Captured
from ..rules import Books, Scope
from ..rules.tapped import InsideRecord
from ..traces.record import Slot, Trace, TraceRecorder
from .forward import Read, Run, map_output
from .model_state import weights_of

PLAIN = (int, float, str, bool, type(None))


@dataclass
class Written:
    """A run as it was written down: where its results lie in the trace, and what of it no number changes."""

    trace: Trace
    length: int
    out: Any  # the model's output, with slots in place of tensors
    follows: frozenset[int]  # slots of the output that depend on the input
    ends: tuple[Slot, ...]  # what the score reads
    leaves: tuple[Slot, ...]
    ids: tuple[Slot | None, ...]
    beside: tuple[bool, ...]
    gradients: tuple[Slot | None, ...]
    amounts: dict[int, Slot]
    sizes: dict[int, Slot]
    references: tuple[tuple[Slot, ...], tuple[Slot, ...]] | None  # of inputs and outputs, see `ReferenceValues`
    books: Books
    met: dict[str, int]
    coarsest: torch.dtype | None
    inside: InsideRecord | None  # what was noted inside the model, and where it lies
    noted: dict[int, Slot]

    @property
    def shape(self) -> Any:
        """All but the trace itself: equal for two runs that can be played as one."""
        sites = [(site.name, site.sort, site.axis) for site in self.books.sites]
        found = (self.follows, self.ends, self.leaves, self.ids, self.beside, self.gradients, self.amounts, self.sizes)
        taps = None if self.inside is None else self.inside.describe_taps()
        return (*found, self.references, sites, self.met, self.coarsest, str(self.out), self.noted, taps)


def length_of(batch: Batch) -> int:
    known = batch.ids if batch.ids is not None else batch.real
    return 0 if known is None else known.shape[1]


def given_tensors(batch: Batch) -> list[Tensor]:
    """Every tensor that a batch brings, in a fixed order."""
    values = [batch.args, *(batch.kwargs[name] for name in sorted(batch.kwargs)), batch.ids, batch.real, batch.tensor]
    return [value for value in list_leaves(values) if isinstance(value, Tensor)]


@dataclass
class RunWriter:
    """Writes a plain run down while it is computed. `learn` is told when all of it is there."""

    learn: Callable[[Written], None]
    recorder: TraceRecorder = field(default_factory=TraceRecorder)
    gradients: Sequence[Tensor | None] = ()

    @contextmanager
    def forwards(self, run: Run) -> Iterator[None]:
        with self.recorder.part(given_tensors(run.batch)):
            yield

    @contextmanager
    def backwards(self, seeds: Sequence[Tensor]) -> Iterator[None]:
        with self.recorder.part(seeds):
            yield

    def finish(self, run: Run, out: Any, read: Read, inputs: list[Captured], scope: Scope) -> None:
        """Hand on what was written down, once all results are there."""
        recorder, books = self.recorder, scope.books
        if books.needs_probe:
            recorder.refuse("shapes do not tell the samples apart, so that further passes are needed")
        if scope.cuts.unclear():
            recorder.refuse("numbers of the input leave torch")
        follows: set[int] = set()

        def place(value: Any) -> Any:
            if not isinstance(value, Tensor):
                if not isinstance(value, PLAIN):
                    recorder.refuse(f"the output holds a {type(value).__name__}")
                return value
            slot = recorder.find(value)
            if slot is not None and value.requires_grad:
                follows.add(slot.number)
            return slot

        def optional(value: Tensor | None) -> Slot | None:
            return None if value is None else recorder.find(value)

        made = Written(
            trace=recorder.trace,
            length=length_of(run.batch),
            out=map_output(out, place),
            follows=frozenset(follows),
            ends=tuple(slot for slot in map(recorder.find, read.ends) if slot is not None),
            leaves=tuple(slot for slot in (recorder.find(one.leaf) for one in inputs) if slot is not None),
            ids=tuple(optional(one.ids) for one in inputs),
            beside=tuple(one.beside for one in inputs),
            gradients=tuple(optional(gradient) for gradient in self.gradients),
            amounts={index: slot for index, t in books.amounts.items() if (slot := recorder.find(t)) is not None},
            sizes={index: slot for index, t in books.sizes.items() if (slot := recorder.find(t)) is not None},
            references=self._place_references(scope, read),
            books=Books(books.samples, books.length, list(books.sites)),
            met=dict(scope.met),
            coarsest=scope.coarsest,
            inside=None if scope.inside is None else scope.inside.with_amounts({}),
            noted=self._place_noted(scope),
        )
        weights = {id(weight) for weight in weights_of(run.model)}
        if any(id(t) not in weights and t.numel() > 1 for t in recorder.trace.constants.values()):
            recorder.refuse("a tensor comes from outside torch's operations")
        self.learn(made)

    def _place_noted(self, scope: Scope) -> dict[int, Slot]:
        """Where the relevance lies that was noted inside the model."""
        if scope.inside is None:
            return {}
        found = {index: self.recorder.find(amount) for index, amount in scope.inside.amounts.items()}
        if len(found) < len(scope.inside.taps):
            self.recorder.refuse("no gradient reaches some of the model's parts")
        return {index: slot for index, slot in found.items() if slot is not None}

    def _place_references(self, scope: Scope, read: Read) -> tuple[tuple[Slot, ...], tuple[Slot, ...]] | None:
        values = scope.reference_values(read.ends)
        if values is None:
            return None
        found = [[self.recorder.find(tensor) for tensor in part] for part in (values.inputs, values.ends)]
        inputs, ends = (tuple(slot for slot in part if slot is not None) for part in found)
        return inputs, ends


def slots_of(out: Any) -> list[Slot]:
    found: list[Slot] = []

    def note(value: Any) -> Any:
        if isinstance(value, Slot):
            found.append(value)
        return value

    map_output(out, note)
    return found
