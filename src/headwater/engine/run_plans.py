"""A run that was written down and is played from then on: the same operations, without our Python and autograd.

The first explanations of a model are computed plainly and written down (`traces`). Two of different lengths make one
plan for all lengths between them; a length outside is computed plainly, compared operation by operation, and then
belongs to it. A plan is left where a number that Python looked at is another than it was, and is thrown away where
anything of the model has changed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs.batch import Batch, list_leaves, map_leaves
from ..inputs.places import Captured
from ..inputs.restoring import outside_inference
from ..rules import Books, Scope
from ..rules.handlers import rules_there_are
from ..traces.join import fits, join_traces
from ..traces.play import Left, Program, compile_trace
from ..traces.record import Slot, Trace, TraceRecorder
from .forward import Demand, Read, Run, asks_links, map_output, read_score, tables_of, watch_nothing
from .model_state import ModelState, weights_of
from .run_graphs import Player, RunGraphs

SWITCH = "HEADWATER_PLANS"
KEPT = 8  # plans of a model
PATIENCE = 4  # runs of one kind that gave no plan, or left it, after which no more is tried
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
    books: Books
    met: dict[str, int]
    coarsest: torch.dtype | None

    @property
    def shape(self) -> Any:
        """All but the trace itself: equal for two runs that can be played as one."""
        sites = [(site.name, site.sort, site.axis) for site in self.books.sites]
        found = (self.follows, self.ends, self.leaves, self.ids, self.beside, self.gradients, self.amounts, self.sizes)
        return (*found, sites, self.met, self.coarsest, str(self.out))


@dataclass
class RunPlan:
    """What was written down of runs between two lengths, as a program."""

    written: Written
    shortest: int
    longest: int
    program: Program | None = None
    left: int = 0  # times in a row that numbers were not as written
    trusted: bool = False  # whether it was played beside a plain run, and said the same
    graphs: RunGraphs = field(default_factory=RunGraphs)

    @property
    def wanted(self) -> list[list[Slot]]:
        """The slots that each of the two parts gives."""
        w = self.written
        first = [*slots_of(w.out), *w.leaves, *filter(None, w.ids)]
        return [first, [*filter(None, w.gradients), *w.amounts.values(), *w.sizes.values()]]

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

    def extend(self, other: Written) -> bool:
        """Take in the length of another run that does the same."""
        if self.takes(other.length):
            return True
        if other.shape != self.written.shape:
            return False
        if self.shortest < self.longest:
            if not fits(self.written.trace, other.trace, other.length):
                return False
        else:
            joined = join_traces(self.written.trace, other.trace, (self.shortest, other.length))
            if joined is None:
                return False
            self.written, self.program, self.graphs = replace(self.written, trace=joined), None, RunGraphs()
            self.trusted = False
        self.shortest, self.longest = min(self.shortest, other.length), max(self.longest, other.length)
        return True


Confirm = Callable[[RunPlan], bool | None]  # None: it cannot be told with this input


@dataclass
class KindOfRun:
    """Runs that differ in their numbers and their length alone, and the plans for them."""

    plans: list[RunPlan] = field(default_factory=list)
    failed: int = 0
    plays: int = 0
    why: str | None = None  # the last reason for computing plainly

    def find(self, length: int) -> RunPlan | None:
        return next((plan for plan in self.plans if plan.takes(length)), None)

    @property
    def given_up(self) -> bool:
        return self.failed >= PATIENCE

    def play(self, run: Run, confirm: Confirm) -> Played | None:
        """The run by a plan; None where it must be computed plainly. `confirm` tries a plan that nobody played yet."""
        plan = self.find(length_of(run.batch))
        if plan is None:
            return None
        if not plan.trusted:
            found = confirm(plan)
            plan.trusted = bool(found)
            if found is None:
                plan.left += 1
                self._drop_if_left(plan)
            elif not found:
                self._drop(plan, "played, it does not say what it says otherwise")
                self.failed = PATIENCE
            if not found:
                return None
        played = play_run(plan, run)
        if played is not None:
            self.failed, self.plays = 0, self.plays + 1
        else:
            self._drop_if_left(plan)
        return played

    def _drop_if_left(self, plan: RunPlan) -> None:
        if plan.left >= PATIENCE:
            self._drop(plan, "numbers that Python looks at change from run to run")
            self.failed += 1

    def _drop(self, plan: RunPlan, why: str) -> None:
        self.plans, self.why = [one for one in self.plans if one is not plan], why

    def learn(self, written: Written) -> None:
        """A run that was computed plainly becomes part of a plan, or the beginning of one."""
        if written.trace.refused is not None:
            self.failed, self.why = self.failed + 1, written.trace.refused
            return
        # computed plainly for a closer look, and not because a number was another: the plan must do the same
        self.plans = [
            plan for plan in self.plans if not plan.takes(written.length) or plan.left or plan.agrees(written)
        ]
        if not any(plan.extend(written) for plan in self.plans):
            if self.plans:
                self.failed += 1
            self.plans = [*self.plans[-KEPT + 1 :], RunPlan(written, written.length, written.length)]


@dataclass
class PlansOfModel:
    """All plans of one model as it is: they go when anything of it changes."""

    state: ModelState
    kinds: dict[Any, KindOfRun] = field(default_factory=dict)
    changes: int = 0  # of the model, since a plan was last of use

    @property
    def was_of_use(self) -> bool:
        return any(kind.plays for kind in self.kinds.values())


PLANS: weakref.WeakKeyDictionary[nn.Module, PlansOfModel] = weakref.WeakKeyDictionary()


def forget_plans(model: nn.Module) -> None:
    """Let go of all plans of a model, and of the memory that their graphs hold."""
    PLANS.pop(model, None)


def plans_are_on() -> bool:
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "no", "false")


def can_be_planned(run: Run, demand: Demand) -> bool:
    """Whether nothing watches the run, and all that it is given can be seen."""
    usual = run.scope is Scope and run.inspect is None and run.noise is None and run.watch is watch_nothing
    watched = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() > 0  # by somebody's modes
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    known = all(tensor.device.type in ("cpu", "cuda") for tensor in given_tensors(run.batch))
    leaves = list_leaves((run.batch.args, run.batch.kwargs))
    free = usual and not watched and not hooked and all(isinstance(one, (Tensor, *PLAIN)) for one in leaves)
    return run.planned and free and demand.backward and known and plans_are_on()


def find_kind(run: Run, demand: Demand) -> KindOfRun | None:
    """The kind of this run; a new one where there was none, or the model has changed. None if it always changes."""
    found = PLANS.get(run.model)
    if found is None or (found.changes < PATIENCE and not found.state.holds(run.model)):
        changes = 0 if found is None or found.was_of_use else found.changes + 1
        found = PLANS[run.model] = PlansOfModel(ModelState.of(run.model), changes=changes)
    if found.changes >= PATIENCE:
        return None
    key = key_of_run(run, demand)
    if key not in found.kinds and len(found.kinds) >= KEPT:
        found.kinds.pop(next(iter(found.kinds)))
    return found.kinds.setdefault(key, KindOfRun())


def key_of_run(run: Run, demand: Demand) -> Any:
    """What must be equal of two runs, their length and their numbers aside."""
    batch, length = run.batch, length_of(run.batch)
    given = given_tensors(batch)
    first = {id(t): i for i, t in reversed(list(enumerate(given)))}
    shapes = tuple(
        (tuple(-1 if axis and size == length else size for axis, size in enumerate(t.shape)), t.dtype, t.device)
        for t in given
    )
    side = batch.beside.module if batch.beside is not None and asks_links(run, demand) else None
    modules = tuple(id(module) for module in (*batch.places, *tables_of(run), side))  # whose outputs are explained
    told = repr(map_leaves((batch.args, sorted(batch.kwargs.items())), lambda t: "?" if isinstance(t, Tensor) else t))
    aliases = tuple(first[id(t)] for t in given)
    return (demand, shapes, aliases, batch.samples, modules, told, batch.before, surroundings())


def surroundings() -> Any:
    """The switches of torch that change which operations run."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0,
        rules_there_are(),
    )


def length_of(batch: Batch) -> int:
    known = batch.ids if batch.ids is not None else batch.real
    return 0 if known is None else known.shape[1]


def given_tensors(batch: Batch) -> list[Tensor]:
    """Every tensor that a batch brings, in a fixed order."""
    values = [batch.args, *(batch.kwargs[name] for name in sorted(batch.kwargs)), batch.ids, batch.real, batch.tensor]
    return [value for value in list_leaves(values) if isinstance(value, Tensor)]


@dataclass
class RunWriter:
    """Writes a plain run down while it is computed, for the plans of its kind."""

    kind: KindOfRun
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
            books=Books(books.samples, books.length, list(books.sites)),
            met=dict(scope.met),
            coarsest=scope.coarsest,
        )
        weights = {id(weight) for weight in weights_of(run.model)}
        if any(id(t) not in weights and t.numel() > 1 for t in recorder.trace.constants.values()):
            recorder.refuse("a tensor comes from outside torch's operations")
        self.kind.learn(made)


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


def play_run(plan: RunPlan, run: Run) -> Played | None:
    """The run by its plan; None where it must be computed plainly."""
    written = plan.written
    try:
        with plan.player(run) as player:
            with outside_inference():
                found = player.forwards()
            tensors = iter(found)
            with outside_inference(), torch.enable_grad():
                out, ends = fill_output(written, tensors)
                leaves = [next(tensors) for _ in written.leaves]
                ids = [None if slot is None else next(tensors) for slot in written.ids]
                read = read_score(run, out)
                if [id(end) for end in read.ends] != [id(ends[slot.number]) for slot in written.ends]:
                    raise Left
                seeds = read.gradients()
                linear = read.linear_part()
            with outside_inference():
                tensors = iter(player.backwards(seeds))
            gradients = [
                torch.zeros_like(leaf) if slot is None else player.own(next(tensors))
                for leaf, slot in zip(leaves, written.gradients, strict=True)
            ]
            amounts = {index: player.own(next(tensors)) for index in written.amounts}
            sizes = {index: player.own(next(tensors)) for index in written.sizes}
            read.reading = replace(read.reading, score=player.own(read.reading.score.detach()))
            inputs = [
                Captured(player.own(leaf), own if own is None else player.own(own), beside)
                for leaf, own, beside in zip(leaves, ids, written.beside, strict=True)
            ]
    except Left:
        plan.left += 1
        return None
    plan.left = 0
    books = replace(written.books, sites=list(written.books.sites), amounts=amounts, sizes=sizes)
    books.length = run.batch.length
    return Played(read, linear, inputs, gradients, books, dict(written.met), written.coarsest, player.way)


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


def slots_of(out: Any) -> list[Slot]:
    found: list[Slot] = []

    def note(value: Any) -> Any:
        if isinstance(value, Slot):
            found.append(value)
        return value

    map_output(out, note)
    return found
