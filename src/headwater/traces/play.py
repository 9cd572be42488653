"""A trace as Python code: one line an operation, and each tensor let go after its last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .join import Size
from .record import READ, SIZED_FUNCTIONS, Operation, Slot, Struct, Trace, slots_in, told_by

if TYPE_CHECKING:
    from torch._ops import _OpNamespace

aten: _OpNamespace = torch.ops.aten
FEW = 64  # operations that questions may need
SAME = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default})  # give what they are given
VIEWS = frozenset(
    {aten.t.default, aten.transpose.int, aten.view.default, aten.unsqueeze.default, aten.squeeze.dim}
    | {aten.permute.default, aten.expand.default, aten.slice.Tensor, aten.select.int, aten._unsafe_view.default}
)


class Left(Exception):
    """A number is not what it was when the trace was written: this run must be computed plainly."""


Part = Callable[..., tuple[Any, ...]]


@dataclass
class Program:
    """A trace that can be played. Each part takes its inputs, what earlier parts left, and the length."""

    parts: list[Part]
    constants: list[Any]
    source: str


def compile_trace(trace: Trace, wanted: Sequence[Sequence[Slot]]) -> Program:
    """`wanted` are the slots that each part is to give, in order; it also gives what later parts need."""
    writer = _Writer(trace, [list(slots) for slots in wanted])
    space = _run(writer)
    return Program([space[f"part_{i}"] for i in range(len(trace.begins))], writer.table, writer.source)


@dataclass
class SplitProgram:
    """A program whose questions about numbers come first: `ask` takes the inputs of the first part, the rest asks none.

    So the parts can be captured as graphs.
    """

    ask: Part
    parts: list[Part]


Change = Callable[[Trace, Sequence[Sequence[Slot]]], tuple[Trace, list[list[Slot]]]]


def keep_trace(trace: Trace, wanted: Sequence[Sequence[Slot]]) -> tuple[Trace, list[list[Slot]]]:
    return trace, [list(slots) for slots in wanted]


def split_trace(trace: Trace, wanted: Sequence[Sequence[Slot]], change: Change = keep_trace) -> SplitProgram | None:
    """The same with all questions in front; None where a question comes late, or needs more than a few operations.

    `change` is made to the trace without its questions.
    """
    second = trace.begins[1]
    for number, operation in enumerate(trace.operations):
        if operation.reads is not None and (operation.function not in READ or number >= second):
            return None
    asking = _Writer(trace, [[] for _ in wanted], asks=True, works=False)
    used = [trace.operations[number] for number, live in enumerate(asking.live) if live]
    if len(used) > FEW or any(operation.writes for operation in used):
        return None
    working = _Writer(*change(trace, wanted), asks=False)
    return SplitProgram(_run(asking)["part_0"], [_run(working)[f"part_{i}"] for i in range(len(trace.begins))])


def _run(writer: _Writer) -> dict[str, Any]:
    space: dict[str, Any] = {"K": writer.table, "Left": Left}
    writer.source = writer.write()
    exec(compile(writer.source, "<trace>", "exec"), space)
    return space


class _Writer:
    """Writes a trace as code. `asks`: with its questions about numbers; `works`: with what they are not needed for."""

    def __init__(self, trace: Trace, wanted: list[list[Slot]], *, asks: bool = True, works: bool = True) -> None:
        self.trace, self.wanted, self.asks, self.works = trace, wanted, asks, works
        self.source = ""
        self.table: list[Any] = []
        self.places: dict[int, int] = {}  # id of what lies in the table -> where
        self.alias: dict[int, int] = {}  # slot -> the slot whose tensor it is
        self.names: dict[int, str] = {number: self._kept(t) for number, t in trace.constants.items()}
        self._find_aliases()
        self.live = self._find_live()

    def write(self) -> str:
        bounds = [*self.trace.begins, len(self.trace.operations)]
        ranges = [range(bounds[i], bounds[i + 1]) for i in range(len(bounds) - 1)]
        later: list[set[int]] = []  # slots that parts after each one need
        after: set[int] = set()
        for i in reversed(range(len(ranges))):
            later.insert(0, set(after))
            for number in ranges[i]:
                if self.live[number]:
                    after |= set(self._find_uses(self.trace.operations[number]))
            after |= {self._real(slot.number) for slot in self.wanted[i]}
        text = []
        carried: list[int] = []
        before: set[int] = set()
        for i, numbers in enumerate(ranges):
            inputs = [self._real(slot.number) for slot in self.trace.inputs[i]]
            made = (
                before
                | set(inputs)
                | {
                    self._real(slot.number)
                    for number in numbers
                    if self.live[number]
                    for slot in self.trace.operations[number].results
                    if slot is not None
                }
            )
            leaves = sorted(slot for slot in later[i] if slot in made and slot not in self.names)
            text += self._part(i, numbers, inputs, carried, leaves)
            carried, before = leaves, set(leaves)
        return "\n".join(text)

    def _part(self, i: int, numbers: range, inputs: list[int], carried: list[int], leaves: list[int]) -> list[str]:
        def tuple_of(values: Iterable[str]) -> str:
            return "(" + "".join(f"{value}, " for value in values) + ")"

        lines = [f"def part_{i}(inputs, carried, n):"]
        lines += [f"    v{slot} = inputs[{place}]" for place, slot in enumerate(inputs)]
        if carried:
            lines.append(f"    {tuple_of(f'v{slot}' for slot in carried)} = carried")
            lines.append("    carried.clear()")
        gives = [self._real(slot.number) for slot in self.wanted[i]]
        stays = {*gives, *leaves}
        last: dict[int, int] = {}
        for number in numbers:
            if self.live[number]:
                operation = self.trace.operations[number]
                made = [self._real(slot.number) for slot in operation.results if slot is not None]
                for slot in (*self._find_uses(operation), *made):
                    last[slot] = number
        ends: dict[int, list[int]] = {}
        for slot, number in last.items():
            if slot not in stays and slot not in self.names:
                ends.setdefault(number, []).append(slot)
        for number in numbers:
            if self.live[number]:
                lines += [f"    {line}" for line in self._lines(self.trace.operations[number])]
                if number in ends:
                    lines.append("    del " + ", ".join(f"v{slot}" for slot in sorted(ends[number])))
        given = tuple_of(self._name(slot) for slot in gives)
        lines.append(f"    return {given}, {tuple_of(self._name(slot) for slot in leaves)}")
        return lines

    def _lines(self, operation: Operation) -> Iterator[str]:
        told = [self._text(value) for value in operation.args]
        told += [f"{key}={self._text(value)}" for key, value in operation.kwargs.items()]
        call = f"{self._kept(operation.function)}({', '.join(told)})"
        if not any(operation.results):
            yield f"if {call} != {self._text(operation.reads)}: raise Left"
            return
        if operation.single:
            (slot,) = operation.results
            assert slot is not None
            yield f"{self._name(self._real(slot.number))} = {call}"
        else:
            targets = "".join(
                "_, " if slot is None else f"{self._name(self._real(slot.number))}, " for slot in operation.results
            )
            yield f"({targets}) = {call}"
        if operation.reads is not None:
            names = [None if slot is None else self._name(self._real(slot.number)) for slot in operation.results]
            found = names[0] if operation.single else f"({', '.join(map(str, names))}, )"
            yield f"if {self._kept(told_by)}({found}) != {self._text(operation.reads)}: raise Left"

    def _text(self, value: Any) -> str:
        if isinstance(value, Slot):
            return self._name(self._real(value.number))
        if isinstance(value, Size):
            return f"({value})"
        if value is None or type(value) in (int, bool):
            return repr(value)
        if isinstance(value, list):
            return "[" + ", ".join(self._text(one) for one in value) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self._text(one) + ", " for one in value) + ")"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._text(one)}" for key, one in value.items()) + "}"
        if isinstance(value, Struct):
            return f"{self._kept(value.fill)}({self._text(value.values)})"
        return self._kept(value)

    def _kept(self, value: Any) -> str:
        place = self.places.get(id(value))
        if place is None:
            place = self.places[id(value)] = len(self.table)
            self.table.append(value)
        return f"K[{place}]"

    def _name(self, number: int) -> str:
        return self.names.get(number) or f"v{number}"

    def _real(self, number: int) -> int:
        while number in self.alias:
            number = self.alias[number]
        return number

    def _find_uses(self, operation: Operation) -> Iterator[int]:
        yield from (self._real(slot.number) for slot in slots_in((operation.args, operation.kwargs)))

    def _find_aliases(self) -> None:
        """Slots that are another tensor under a new name; and views of weights, which are made once."""
        for operation in self.trace.operations:
            (result, *more) = operation.results
            if result is None or more or operation.writes:
                continue
            if operation.function in SAME:
                given = slots_in(operation.args)[0]
                if given is not result:  # what is fresh already is given back as it is
                    self.alias[result.number] = given.number
            elif operation.function in VIEWS and self._is_of_weights(operation):
                args = [self._value(value) for value in operation.args]
                self.names[result.number] = self._kept(operation.function(*args))

    def _is_of_weights(self, operation: Operation) -> bool:
        def is_fixed(value: Any) -> bool:
            if isinstance(value, (list, tuple)):
                return all(is_fixed(one) for one in value)
            return not isinstance(value, Size)

        slots = slots_in(operation.args)
        return (
            not operation.kwargs
            and is_fixed(operation.args)
            and len(slots) == 1
            and self._real(slots[0].number) in self.names
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, Slot):
            name = self.names[self._real(value.number)]
            return self.table[int(name[2:-1])]
        return value

    def _find_live(self) -> list[bool]:
        """Which operations are needed: for what is wanted, for a question about numbers, or because they write."""
        needed = {self._real(slot.number) for slots in self.wanted for slot in slots}
        live = [False] * len(self.trace.operations)
        for number in reversed(range(len(live))):
            operation = self.trace.operations[number]
            made = [slot.number for slot in operation.results if slot is not None]
            if not operation.writes and (
                operation.function in SAME or any(slot in self.alias or slot in self.names for slot in made)
            ):
                continue
            looks = operation.reads is not None or (self.works and operation.function in SIZED_FUNCTIONS)
            writes = operation.writes and (self.works or any(slot in needed for slot in self._find_uses(operation)))
            if (self.asks and looks) or writes or any(self._real(slot) in needed for slot in made):
                live[number] = True
                needed |= set(self._find_uses(operation))
        return live


def play(part: Part, inputs: Sequence[Tensor], carried: list[Any], length: int) -> tuple[Any, ...]:
    """One part of a program, without gradients. What is `carried` leaves the list, to be let go piece by piece."""
    with torch.no_grad():
        return part(inputs, carried, length)


def play_again(part: Part, inputs: Sequence[Tensor], carried: Sequence[Any], length: int) -> tuple[Any, ...]:
    """The same, where what is carried stays."""
    return play(part, inputs, list(carried), length)
