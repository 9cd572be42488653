"""Writing a run down: every operation of torch below autograd, forwards and backwards, in its order."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..inputs.restoring import DispatchMode, without_dispatch_modes

if TYPE_CHECKING:
    from torch._ops import _OpNamespace

aten: _OpNamespace = torch.ops.aten

# What these tell Python depends on the numbers in their arguments.
READ = frozenset({aten._local_scalar_dense.default, aten.equal.default})
# And so do the sizes of what these make.
SIZED = frozenset(
    {aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.unique_dim.default}
    | {aten.unique_consecutive.default, aten.bincount.default, aten.repeat_interleave.Tensor}
)
PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout})


@dataclass(frozen=True, eq=False, slots=True)
class Slot:
    """The place of a tensor in a trace, by number. There is one object for each number."""

    number: int

    def __reduce__(self) -> Any:
        return slot_of, (self.number,)


@cache
def slot_of(number: int) -> Slot:
    return Slot(number)


@dataclass(frozen=True)
class Struct:
    """A dataclass among the arguments, with slots in place of its tensors."""

    kind: type
    values: tuple[Any, ...]

    def fill(self, values: Sequence[Any]) -> Any:
        return self.kind(*values)


def slots_in(values: Any) -> list[Slot]:
    """Every slot among arguments, in order."""
    if isinstance(values, Slot):
        return [values]
    if isinstance(values, (list, tuple)):
        return [slot for value in values for slot in slots_in(value)]
    if isinstance(values, dict):
        return [slot for value in values.values() for slot in slots_in(value)]
    return slots_in(values.values) if isinstance(values, Struct) else []


class Operation(NamedTuple):
    """One call. `results` are the slots of what it gives, None for what is no tensor.

    `reads` is what it told Python about numbers: a result that is no tensor, or the sizes of those that are. A played
    run must be told the same.
    """

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    results: tuple[Slot | None, ...]
    single: bool
    reads: Any = None
    writes: bool = False


@dataclass
class Trace:
    """Operations in their order, in parts. `constants` are tensors from outside, by the number of their slot."""

    operations: list[Operation] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)  # the first operation of each part
    inputs: list[list[Slot]] = field(default_factory=list)  # of each part
    constants: dict[int, Tensor] = field(default_factory=dict)
    refused: str | None = None  # why it cannot be played


class SeenTensor(NamedTuple):
    """A tensor that was seen: its slot, where its numbers lie, and itself."""

    slot: Slot
    mark: Any
    own: weakref.ref[Tensor]


class TraceRecorder(DispatchMode):
    """`with recorder.part(inputs): …` writes down what happens inside. Several parts may follow one another.

    A tensor is known by a weak reference, and none is kept alive: autograd adds up in place where nobody else holds
    a gradient, and the run is to be what it is without being watched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trace: Trace = Trace()
        self.made: dict[int, SeenTensor] = {}  # by address in C++, which another tensor may have later
        self.given: list[Tensor] = []  # from outside, and kept
        self.memory: set[int | None] = set()  # storages of these
        self.count: int = 0

    @contextmanager
    def part(self, inputs: Sequence[Tensor]) -> Iterator[None]:
        self.trace.begins.append(len(self.trace.operations))
        self.trace.inputs.append([self._give(tensor) for tensor in inputs])
        with self:
            yield

    def refuse(self, why: str) -> None:
        self.trace.refused = self.trace.refused or why

    def find(self, tensor: Tensor) -> Slot | None:
        """The slot of a tensor that a part made or was given; None, and the trace is of no use, if there is none."""
        slot = self._known(tensor)
        if slot is None:
            self.refuse("a result was not made by operations of torch")
        return slot

    def _known(self, tensor: Tensor) -> Slot | None:
        found = self.made.get(tensor._cdata)
        return found.slot if found is not None and found.own() is tensor and found.mark == mark_of(tensor) else None

    def _give(self, tensor: Tensor) -> Slot:
        known = self._known(tensor)
        if known is None:
            self.given.append(tensor)
            self.made[tensor._cdata] = SeenTensor(slot_of(self.count), self._mark(tensor), weakref.ref(tensor))
            self.memory.add(storage_of(tensor))
            known = slot_of(self.count)
            self.count += 1
        return known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten.add.Tensor and adds_gradients_up(args, kwargs):
            func = aten.add_.Tensor
        result = func(*args, **kwargs)
        self.note(func, args, kwargs, result)
        return result

    def note(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        """Write one call down."""
        writes, chancy = traits(func)
        if writes and self._outside(args, kwargs):
            self.refuse(f"{func} writes into a tensor that lasts")
        if chancy and is_random(func, args, kwargs):
            self.refuse(f"{func} draws random numbers")
        kept, named = self._slots(args), self._slots(kwargs) if kwargs else {}
        single = not isinstance(result, (tuple, list))
        every = (result,) if single else tuple(result)
        reads = None
        if func in READ:
            reads = result
        elif func in SIZED or func in SIZED_FUNCTIONS:
            reads = told_by(result)
        results = tuple([self._made(one) if isinstance(one, Tensor) else None for one in every])
        self.trace.operations.append(Operation(func, kept, named, results, single, reads, writes))

    def _made(self, tensor: Tensor) -> Slot:
        known = slot_of(self.count)
        self.count += 1
        self.made[tensor._cdata] = SeenTensor(known, self._mark(tensor), weakref.ref(tensor))
        return known

    def _mark(self, tensor: Tensor) -> Any:
        mark = mark_of(tensor)
        if mark is None:
            self.refuse("a tensor is not one block of numbers")
        return mark

    def _outside(self, args: Any, kwargs: Any) -> bool:
        """Whether the tensor that is written into, which is the first, lies in memory that came from outside."""
        target = kwargs.get("out", next((one for one in args if isinstance(one, Tensor)), None))
        return isinstance(target, Tensor) and storage_of(target) in self.memory

    def _slots(self, values: Any) -> Any:
        """The same with slots in place of tensors. A tensor that nobody made here is a constant."""
        if isinstance(values, Tensor):
            known = self._known(values)
            if known is None:
                known = self._give(values)
                self.trace.constants[known.number] = values
            return known
        if type(values) in PLAIN or not values:
            return values
        if isinstance(values, (list, tuple)):
            made = [self._slots(value) for value in values]
            return made if isinstance(values, list) else tuple(made)
        if isinstance(values, dict):
            return {key: self._slots(value) for key, value in values.items()}
        if is_dataclass(values) and not isinstance(values, type):
            return Struct(type(values), tuple(self._slots(getattr(values, one.name)) for one in fields(values)))
        return values


SIZED_FUNCTIONS: set[Any] = set()  # of ours


@cache
def traits(func: Any) -> tuple[bool, bool]:
    """Whether an operation writes into one of its arguments, and whether it may draw random numbers."""
    schema = getattr(func, "_schema", None)  # functions of ours have none
    return (
        schema is not None and bool(schema.is_mutable),
        torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()),
    )


def is_random(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation draws random numbers: torch says so also of attention without dropout, which does not."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p", argument.default_value)
            return bool(given)
    return True


SOLE = (2, 4)  # references to a storage and to a tensor that autograd alone holds, our own counted


def adds_gradients_up(args: Any, kwargs: Any) -> bool:
    """Whether autograd adds gradients up that it would add in place if nobody watched it.

    Where two gradients lie in memory in the same order, nothing depends on it; else the order of the sum does, and with
    it the last digit of what is computed from it.
    """
    if len(args) != 2 or kwargs or not all(isinstance(one, Tensor) for one in args):
        return False
    old, new = args
    if old.shape != new.shape or old.dtype is not new.dtype or old.stride() == new.stride():
        return False
    caller: FrameType | None = sys._getframe(2)
    while caller is not None and caller.f_code.co_name in ("_fn", "inner", "__torch_dispatch__"):
        caller = caller.f_back
    if caller is None or caller.f_code.co_name != "_engine_run_backward" or not is_dense(old):
        return False
    held = torch._C._storage_Use_Count(old.untyped_storage()._cdata), old._use_count()
    return held[0] <= SOLE[0] and held[1] <= SOLE[1]


def is_dense(tensor: Tensor) -> bool:
    """Whether its numbers fill their memory without a gap, each in a place of its own."""
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def mark_of(tensor: Tensor) -> Any:
    """Where its numbers lie, and its shape. None for tensors that have no such place, such as nested ones."""
    try:
        return tensor.data_ptr(), tensor.shape
    except (RuntimeError, NotImplementedError):
        return None


def storage_of(tensor: Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


def told_by(result: Any) -> Any:
    """What Python learns from a result without looking into a tensor: sizes, and what is no tensor."""
    if isinstance(result, Tensor):
        return list(result.shape)
    if isinstance(result, (list, tuple)):
        return [told_by(one) for one in result]
    return result


F = TypeVar("F", bound=Callable[..., Any])


def active_recorder() -> TraceRecorder | None:
    """The recorder at work. Autograd hands modes on to the thread that it goes back in, where context variables end."""
    for place in reversed(range(torch._C._len_torch_dispatch_stack())):
        found = torch._C._get_dispatch_stack_at(place)
        if isinstance(found, TraceRecorder):
            return found
    return None


def as_operation(function: F) -> F:
    """A function that is one operation of a trace, though it looks at numbers, loops over blocks or starts a kernel.

    It is called again when the trace is played. It writes into none of its arguments and gives a tensor or a tuple of
    tensors, whose sizes follow from those of its arguments. Where they follow from numbers, `looks_at_numbers`.
    """
    return _one_operation(function, sized=False)


def looks_at_numbers(function: F) -> F:
    """An operation, too, but its result is None or a tensor whose size depends on numbers: played, it must be alike."""
    return _one_operation(function, sized=True)


def _one_operation(function: F, sized: bool) -> F:
    if sized:
        SIZED_FUNCTIONS.add(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = active_recorder()
        if recorder is None:
            return function(*args, **kwargs)
        with untraced():
            result = function(*args, **kwargs)
        recorder.note(function, args, kwargs, result)
        return result

    return call  # type: ignore[return-value]


@contextmanager
def untraced() -> Iterator[None]:
    """Inside, nothing is written down: what is done once for all runs, such as trying a kernel."""
    if active_recorder() is None:
        yield
        return
    with without_dispatch_modes():
        yield


def refuse_trace(why: str) -> None:
    """Called where numbers leave torch: what follows from them would not be seen."""
    recorder = active_recorder()
    if recorder is not None:
        recorder.refuse(why)
