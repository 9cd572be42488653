"""Chains of operations of a trace that compute each number alone (a product, a sum, a cast), as one operation.

On a card each operation is a pass over memory. A chain is one pass: what lies between its operations is never stored.
Each result is rounded as it was, but for the last digit of functions such as SiLU. A chain may go through means along
the last axis, as norms have them; these are added up in another order. It may begin with the halves of rows changed,
as rotary positions have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..inputs.restoring import undone
from .play import SAME
from .record import Operation, Slot, Struct, Trace, slot_of, slots_in

if TYPE_CHECKING:
    from torch._ops import _OpNamespace

aten: _OpNamespace = torch.ops.aten
CAST = aten._to_copy.default
MEAN, SILU, RSQRT = aten.mean.dim, aten.silu.default, aten.rsqrt.default
ALONE = frozenset({aten.neg.default, aten.abs.default, SILU, RSQRT, CAST})  # of one tensor
POINTWISE = frozenset({aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, *ALONE})
WIDE = torch.float32
LAST = 2**63 - 1  # where a slice ends that goes to the end
CASTS = (torch.float32, torch.bfloat16, torch.float16)
STEPS, INPUTS = 24, 10  # of a chain, at the most


@dataclass(frozen=True)
class ChainCheck:
    """Whether what computes a chain gave what torch's operations give, and how it is left to them."""

    agrees: Tensor
    leave: Callable[[], None]


CHECKS: ContextVar[list[ChainCheck] | None] = ContextVar("checks", default=None)


@contextmanager
def check_chains() -> Iterator[list[ChainCheck]]:
    """Inside, what computes chains gives what torch's operations give; the list says whether its own numbers agree."""
    with undone(partial(CHECKS.set, CHECKS.get())):
        checks: list[ChainCheck] = []
        CHECKS.set(checks)
        yield checks


def leave_wrong(checks: Sequence[ChainCheck]) -> None:
    """Leave to torch's operations what does not agree with them."""
    agree = torch.stack([one.agrees for one in checks]).tolist() if checks else []
    for one, right in zip(checks, agree, strict=True):
        if not right:
            one.leave()


@dataclass(frozen=True)
class ChainStep:
    """One operation of a chain. An argument `From(k)` is the chain's input k, or the result of step k - inputs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    dtype: torch.dtype | None = None  # of a cast
    device: torch.device | None = None


@dataclass(frozen=True)
class From:
    """The place of a tensor: the inputs of the chain come first, the results of its steps after them."""

    place: int


@dataclass(frozen=True)
class Chain:
    """Steps that follow from one another. `gives` are the places of the tensors that are needed outside."""

    inputs: int
    steps: tuple[ChainStep, ...]
    gives: tuple[int, ...]

    @property
    def rows(self) -> list[int]:
        """The places of what is taken row by row: averaged, or with its halves changed."""
        return [step.args[0].place for step in self.steps if step.function in (MEAN, turn_halves)]

    def run(self, *tensors: Tensor) -> list[Tensor]:
        """All tensors, step by step: the inputs first."""
        found = list(tensors)
        for step in self.steps:
            args = [found[one.place] if isinstance(one, From) else one for one in step.args]
            options = {} if step.dtype is None else {"dtype": step.dtype, "device": step.device}
            found.append(step.function(*args, **options))
        return found

    def on_meta(self) -> Chain:
        """The same where tensors have no numbers."""
        return replace(self, steps=tuple(replace(step, device=None) for step in self.steps))


def turn_halves(x: Tensor, axis: int, half: int) -> Tensor:
    """What rotary positions are made with: what lies behind `half` comes first, with the other sign."""
    return torch.cat([-x.narrow(axis, half, x.shape[axis] - half), x.narrow(axis, 0, half)], -1)


Make = Callable[[Chain], Callable[..., Any]]


def join_pointwise(trace: Trace, wanted: Sequence[Sequence[Slot]], make: Make) -> tuple[Trace, list[list[Slot]]]:
    """The same trace with its chains as one operation each, which `make` makes; and the wanted slots in it."""
    simple, slots = simplify_trace(trace, wanted)
    joiner = _Joiner(simple, make, max((slot.number for slot in _all_slots(simple)), default=0) + 1)
    return joiner.join({slot.number for part in slots for slot in part}), slots


def simplify_trace(trace: Trace, wanted: Sequence[Sequence[Slot]]) -> tuple[Trace, list[list[Slot]]]:
    """The trace without second names of tensors and without what nobody needs, its questions too."""
    other: dict[int, Slot] = {}  # names, and what they stand for
    begins: list[int] = []
    operations: list[Operation] = []
    makers: dict[int, Operation] = {}  # of slots that nobody has written into since
    for place, operation in enumerate(trace.operations):
        begins += [len(operations)] * trace.begins.count(place)
        if operation.function in SAME and not operation.writes:
            (given, *_), (result,) = slots_in(operation.args), operation.results
            if result is not None and given is not result:
                other[result.number] = other.get(given.number, given)
            continue
        renamed = operation._replace(
            args=replace_slots(operation.args, other), kwargs=replace_slots(operation.kwargs, other)
        )
        renamed = find_turned(renamed, makers)
        makers |= {slot.number: renamed for slot in renamed.results if slot is not None}
        if operation.writes:
            makers.clear()
        operations.append(renamed)
    begins += [len(operations)] * (len(trace.begins) - len(begins))
    slots = [[replace_slots(slot, other) for slot in part] for part in wanted]
    inputs = [replace_slots(part, other) for part in trace.inputs]
    needed, live = {slot.number for part in slots for slot in part}, [False] * len(operations)
    for place in reversed(range(len(operations))):
        made = (slot.number for slot in operations[place].results if slot is not None)
        if operations[place].writes or not needed.isdisjoint(made):
            live[place] = True
            needed |= {slot.number for slot in _find_slots(operations[place])}
    begins = [sum(live[:begin]) for begin in begins]
    kept = [operation for operation, lives in zip(operations, live, strict=True) if lives]
    return replace(trace, operations=kept, begins=begins, inputs=inputs), slots


def find_turned(operation: Operation, makers: Mapping[int, Operation]) -> Operation:
    """The same, or `turn_halves` where it puts the halves of a tensor together so."""
    parts, *along = operation.args if operation.function is aten.cat.default else ((),)
    if len(parts) != 2 or along != [-1] or operation.kwargs or not all(isinstance(one, Slot) for one in parts):
        return operation
    negated, first = (makers.get(slot.number) for slot in parts)
    if negated is None or first is None or negated.function is not aten.neg.default:
        return operation
    last = makers.get(negated.args[0].number)
    if last is None or {last.function, first.function} != {aten.slice.Tensor} or last.kwargs or first.kwargs:
        return operation
    x, axis, half, *end = last.args
    if end != [LAST] or first.args != (x, axis, 0, half) or type(half) is not int or not 0 < half < LAST:
        return operation
    return operation._replace(function=turn_halves, args=(x, axis, half))


def replace_slots(values: Any, other: Mapping[int, Slot]) -> Any:
    """The same with other slots in place of some."""
    if isinstance(values, Slot):
        return other.get(values.number, values)
    if isinstance(values, (list, tuple)):
        return type(values)([replace_slots(one, other) for one in values])
    if isinstance(values, dict):
        return {key: replace_slots(one, other) for key, one in values.items()}
    return Struct(values.kind, replace_slots(values.values, other)) if isinstance(values, Struct) else values


def _all_slots(trace: Trace) -> Iterator[Slot]:
    for part in trace.inputs:
        yield from part
    for operation in trace.operations:
        yield from slots_in((operation.args, operation.kwargs))
        yield from (slot for slot in operation.results if slot is not None)


@dataclass(eq=False)
class _Group:
    """Operations that are to be one; `made` are the slots of their results."""

    operations: list[Operation] = field(default_factory=list)
    made: set[int] = field(default_factory=set)

    @property
    def inputs(self) -> list[int]:
        """The slots that come from outside, each once."""
        used = [slot.number for operation in self.operations for slot in slots_in(operation.args)]
        return list(dict.fromkeys(number for number in used if number not in self.made))

    def take(self, other: _Group) -> None:
        self.operations += other.operations
        self.made |= other.made

    def drop_unneeded(self, needed: set[int]) -> list[Operation]:
        """The operations that something outside needs, or another one of them."""
        kept: list[Operation] = []
        wanted = set(needed)
        for operation in reversed(self.operations):
            if any(slot is not None and slot.number in wanted for slot in operation.results):
                kept.insert(0, operation)
                wanted |= {slot.number for slot in slots_in(operation.args)}
        return kept


@dataclass
class _Joiner:
    trace: Trace
    make: Make
    fresh: int  # the first number that no slot has
    made: list[_Group | Operation] = field(default_factory=list)
    open: dict[int, _Group] = field(default_factory=dict)  # by the slots that they make
    casts: dict[int, Operation] = field(default_factory=dict)  # to a wider type, by the slot that they make
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)  # by how the chain is written: 2 is no 2.0

    def join(self, wanted: set[int]) -> Trace:
        bounds = [*self.trace.begins, len(self.trace.operations)]
        begins = []
        for start, end in pairwise(bounds):
            begins.append(len(self.made))
            for operation in self.trace.operations[start:end]:
                self._see(operation)
            self._close(set(self.open.values()))
            self.casts.clear()
        needed = wanted | {number for one in self.made for number in find_inputs(one)}
        operations: list[Operation] = []
        places = {}
        for place, one in enumerate(self.made):
            places[place] = len(operations)
            operations += self._operations_of(one, needed)
        places[len(self.made)] = len(operations)
        return replace(self.trace, operations=operations, begins=[places[begin] for begin in begins])

    def _see(self, operation: Operation) -> None:
        if operation.function is turn_halves:  # it takes numbers from other places
            self._close({self.open[slot.number] for slot in _find_slots(operation) if slot.number in self.open})
        if can_join(operation):
            self._add(self._with_own_casts(operation))
            return
        if operation.writes:  # whoever reads what is written into has read it
            self._close(set(self.open.values()))
            self.casts.clear()
        self._close({self.open[slot.number] for slot in _find_slots(operation) if slot.number in self.open})
        self.made.append(operation)

    def _with_own_casts(self, operation: Operation) -> list[Operation]:
        """The operation, and before it casts of its own: to cast a number again costs less than to read it.

        Not where it takes numbers from other places: they must lie in memory.
        """
        own, renamed = [], {}
        if operation.function is turn_halves:
            return [operation]
        for slot in dict.fromkeys(slots_in(operation.args)):
            cast = self.casts.get(slot.number)
            if cast is not None and slot.number not in self.open:
                renamed[slot.number] = slot_of(self.fresh)
                own.append(cast._replace(results=(slot_of(self.fresh),)))
                self.fresh += 1
        if not own:
            return [operation]
        return [*own, operation._replace(args=replace_slots(operation.args, renamed))]

    def _add(self, operations: list[Operation]) -> None:
        group = _Group(list(operations), {number_of(one) for one in operations})
        parents = {self.open[number] for number in group.inputs if number in self.open}
        joined = _Group()
        for parent in sorted(parents, key=lambda one: self._order(one)):
            joined.take(parent)
        joined.take(group)
        if len(joined.operations) > STEPS or len(joined.inputs) > INPUTS:
            self._close(parents)
            joined = group
        for number in joined.made:
            self.open[number] = joined
        for one in operations:
            if one.function is CAST and one.kwargs["dtype"] is WIDE:
                self.casts[number_of(one)] = one

    def _order(self, group: _Group) -> int:
        return next(place for place, one in enumerate(self.open.values()) if one is group)

    def _close(self, groups: set[_Group]) -> None:
        for group in sorted(groups, key=self._order):
            self.made.append(group)
            for number in group.made:
                self.open.pop(number, None)

    def _operations_of(self, one: _Group | Operation, needed: set[int]) -> list[Operation]:
        if isinstance(one, Operation):
            return [one]
        kept = one.drop_unneeded(needed)
        if len(kept) < 2:
            return kept
        chain, inputs, results = chain_of(_Group(kept, {number_of(each) for each in kept}), needed)
        kernel = self.kernels.get(repr(chain))
        if kernel is None:
            kernel = self.kernels[repr(chain)] = self.make(chain)
        return [Operation(kernel, inputs, {}, results, len(results) == 1)]


def find_inputs(one: _Group | Operation) -> list[int]:
    return one.inputs if isinstance(one, _Group) else [slot.number for slot in _find_slots(one)]


def _find_slots(operation: Operation) -> list[Slot]:
    return slots_in((operation.args, operation.kwargs))


def number_of(operation: Operation) -> int:
    (slot,) = operation.results
    assert slot is not None
    return slot.number


def can_join(operation: Operation) -> bool:
    """Whether it gives each number of one tensor from the numbers at the same place, and rounds it once.

    Or from a row: its mean, which stands in its place, or its halves.
    """
    if operation.function is turn_halves:
        return True
    if operation.function is MEAN:
        return operation.args[1:] in (((-1,), True), ([-1], True)) and not operation.kwargs
    if operation.function not in POINTWISE or operation.writes:
        return False
    if operation.function is CAST:
        options = dict(operation.kwargs)
        dtype, layout, _ = options.pop("dtype", None), options.pop("layout", None), options.pop("device", None)
        return dtype in CASTS and layout in (None, torch.strided) and not options
    plain = all(isinstance(one, Slot) or (type(one) in (int, float) and isfinite(one)) for one in operation.args)
    return plain and not operation.kwargs and len(operation.args) <= 2


def chain_of(group: _Group, needed: set[int]) -> tuple[Chain, tuple[Slot, ...], tuple[Slot, ...]]:
    """The group as a chain, and the slots of what it takes and gives."""
    inputs = group.inputs
    places = {number: place for place, number in enumerate(inputs)}
    steps = []
    for operation in group.operations:
        args = tuple(From(places[one.number]) if isinstance(one, Slot) else one for one in operation.args)
        args = args if operation.function is not MEAN else (args[0], (-1,), True)
        steps.append(ChainStep(operation.function, args, operation.kwargs.get("dtype"), operation.kwargs.get("device")))
        places[number_of(operation)] = len(places)
    results = [number for number in places if number in group.made and number in needed]
    chain = Chain(len(inputs), tuple(steps), tuple(places[number] for number in results))
    return chain, tuple(map(slot_of, inputs)), tuple(map(slot_of, results))
