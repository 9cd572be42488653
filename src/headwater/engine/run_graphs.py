"""How a plan is played: operation by operation, or on a card as two CUDA graphs where a length comes again.

For a short input the card waits for Python to launch its kernels, also where Python does nothing else. So a plan that
was played twice at one length is captured there, as one graph for each of its parts. A graph holds on to the memory of
its run: it is made only where much more than that is free, and only a few are kept.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ..kernels.pointwise import PointwiseKernel
from ..traces.capture import Body, CapturedCall
from ..traces.play import Left, Program, SplitProgram, play, play_again, split_trace
from ..traces.pointwise import check_chains, join_pointwise, leave_wrong
from ..traces.record import Slot, Trace

OFTEN = 2  # times that a length was played before it is captured
KEPT = 4  # graphs of a plan
MOST = 16  # graphs in all
ROOM = 4  # how much more must be free than a run holds between its parts
DIFFERENT = "joined into kernels, the operations do not say what they say one by one"


class Player(Protocol):
    """One run of a plan."""

    way: str

    def forwards(self) -> Sequence[Tensor]: ...

    def backwards(self, seeds: Sequence[Tensor]) -> Sequence[Tensor]: ...

    def own(self, tensor: Tensor) -> Tensor:
        """The tensor in memory that no later run writes into."""
        ...

    def own_all(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The same of many."""
        ...


@dataclass
class ByOperations:
    """Operation by operation. What a run on a card holds between its parts is noted in `held`."""

    program: Program
    given: Sequence[Tensor]
    length: int
    held: Callable[[int], None] | None = None
    carried: list[Any] = field(default_factory=list)
    way: str = "plan"

    def forwards(self) -> Sequence[Tensor]:
        before = 0 if self.held is None else torch.cuda.memory_allocated()
        found, carried = play(self.program.parts[0], self.given, [], self.length)
        self.carried = list(carried)
        del carried
        if self.held is not None:
            self.held(torch.cuda.memory_allocated() - before)
        return found  # type: ignore[no-any-return]

    def backwards(self, seeds: Sequence[Tensor]) -> Sequence[Tensor]:
        found, _ = play(self.program.parts[1], seeds, self.carried, self.length)
        return found  # type: ignore[no-any-return]

    def own(self, tensor: Tensor) -> Tensor:
        return tensor

    def own_all(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors


@dataclass(frozen=True, eq=False)
class GraphProgram:
    """What is captured: the operations of a plan, with chains of them joined into kernels."""

    plain: SplitProgram
    joined: SplitProgram

    @classmethod
    def of(cls, trace: Trace, wanted: list[list[Slot]]) -> GraphProgram | None:
        plain = split_trace(trace, wanted)
        joined = None if plain is None else split_trace(trace, wanted, partial(join_pointwise, make=PointwiseKernel))
        return None if plain is None or joined is None else cls(plain, joined)

    def confirm(self, given: Sequence[Tensor], seeds: Sequence[Tensor], length: int) -> bool:
        """Whether the joined operations give what the plain ones give. Kernels are compiled meanwhile.

        Each kernel is held against torch's operations for the same numbers, and left to them where it differs: behind
        many layers, a last digit in bfloat16 may have become a first one.
        """

        def compute(program: SplitProgram) -> list[Tensor]:
            first, carried = play_again(program.parts[0], given, (), length)
            return [*first, *play_again(program.parts[1], seeds, carried, length)[0]]

        with check_chains() as checks:
            joined = compute(self.joined)
        leave_wrong(checks)
        return agree(joined, compute(self.plain))


def agree(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Equal but for rounding: kernels of torch may add up in another order from run to run.

    Sums are judged beside the largest number of their type, for what cancels in one of them was as large.
    """
    half = any(one.dtype in (torch.bfloat16, torch.float16) for one in expected)
    largest: dict[torch.dtype, float] = {}
    for one in expected:
        if one.is_floating_point() and one.numel():
            known = one.where(one.isfinite(), 0).abs().max()
            largest[one.dtype] = max(float(known), largest.get(one.dtype, 0.0))

    def alike(ours: Tensor, theirs: Tensor) -> bool:
        if ours.shape != theirs.shape or ours.dtype is not theirs.dtype:
            return False
        if torch.equal(ours, theirs) or not theirs.is_floating_point():
            return torch.equal(ours, theirs)
        near = (ours.double() - theirs.double()).abs() <= (5e-2 if half else 1e-5) * largest[theirs.dtype]
        return bool((near | (ours == theirs) | (ours.isnan() & theirs.isnan())).all())

    return all(map(alike, found, expected))


class RunGraph:
    """Both parts of a plan at one length, captured. Nothing refers back to it, so that its memory goes with it."""

    way = "graph"

    def __init__(
        self, both: GraphProgram, given: Sequence[Tensor], length: int, call: Callable[[Body, Any], Body]
    ) -> None:
        self.both = both
        program = both.joined
        self.program: SplitProgram = program
        self.length = length
        self.call = call
        self.given: list[Tensor] = [tensor.clone() for tensor in given]
        self.pool: tuple[int, int] | None = torch.cuda.graph_pool_handle() if given[0].is_cuda else None
        with check_chains() as checks:  # kernels are compiled before a capture begins
            play_again(program.parts[0], self.given, (), length)
        leave_wrong(checks)
        self.first: Body = call(partial(play_again, program.parts[0], self.given, (), length), self.pool)
        self.second: Body | None = None
        self.seeds: list[Tensor] = []
        self.carried: tuple[Any, ...] = ()
        self.lock: threading.Lock = threading.Lock()

    def take(self, given: Sequence[Tensor]) -> None:
        """The input of the next run. Numbers that Python looked at must be as they were."""
        play(self.program.ask, given, [], self.length)
        for ours, theirs in zip(self.given, given, strict=True):
            ours.copy_(theirs)

    def forwards(self) -> Sequence[Tensor]:
        found, self.carried = self.first()
        return found  # type: ignore[no-any-return]

    def backwards(self, seeds: Sequence[Tensor]) -> Sequence[Tensor]:
        if self.second is None:
            self.seeds = [seed.clone() for seed in seeds]
            if not self.both.confirm(self.given, self.seeds, self.length):
                raise RuntimeError(DIFFERENT)
            body = partial(play_again, self.program.parts[1], self.seeds, self.carried, self.length)
            self.second = self.call(body, self.pool)
        for ours, theirs in zip(self.seeds, seeds, strict=True):
            ours.copy_(theirs)
        return self.second()[0]  # type: ignore[no-any-return]

    def own(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def own_all(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return clone_all(tensors)


def clone_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of many tensors, by one kernel for all that are alike."""
    alike: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for place, one in enumerate(tensors):
        alike.setdefault((one.shape, one.dtype), []).append(place)
    found = list(tensors)
    for places in alike.values():
        for place, own in zip(places, torch.stack([tensors[i] for i in places]).unbind(), strict=True):
            found[place] = own
    return found


ALIVE: weakref.WeakSet[RunGraph] = weakref.WeakSet()
ORDER: list[tuple[weakref.ref[RunGraphs], int]] = []  # whose they are and of which length, the oldest first


def drop_oldest() -> None:
    while ORDER:
        owner, length = ORDER.pop(0)
        found = owner()
        if found is not None and found.made.pop(length, None) is not None:
            return


@dataclass
class RunGraphs:
    """The graphs of one plan, by length; the last that was used comes last."""

    made: dict[int, RunGraph] = field(default_factory=dict)
    played: dict[int, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # bytes between the parts of a run
    refused: str | None = None
    program: GraphProgram | None = None
    call: Callable[[Body, Any], Body] = CapturedCall

    @contextmanager
    def player(
        self, program: Program, trace: Trace, wanted: list[list[Slot]], given: Sequence[Tensor], length: int
    ) -> Iterator[Player]:
        """By a graph where there is one, or is to be one; else operation by operation."""
        if not can_capture(given, self.call) or self.refused is not None:
            yield ByOperations(program, given, length)
            return
        graph = self.made.get(length) or self._make(trace, wanted, given, length)
        if graph is None or not graph.lock.acquire(blocking=False):  # another thread is at it
            self.played[length] = self.played.get(length, 0) + 1
            yield ByOperations(program, given, length, lambda held: self.held.__setitem__(length, held))
            return
        try:
            self.made[length] = self.made.pop(length, graph)
            graph.take(given)
            yield graph
        except Left:
            raise
        except RuntimeError as error:  # it cannot be captured, or there is no memory for it after all
            self.made.clear()
            if str(error) == DIFFERENT and self.program is not None:
                self.program = GraphProgram(self.program.plain, self.program.plain)
            else:
                self.refused = describe(error)
            raise Left from error
        finally:
            graph.lock.release()

    def _make(self, trace: Trace, wanted: list[list[Slot]], given: Sequence[Tensor], length: int) -> RunGraph | None:
        if self.played.get(length, 0) < OFTEN:
            return None
        if self.program is None:
            self.program = GraphProgram.of(trace, wanted)
        if self.program is None:
            self.refused = "numbers are looked at in the middle of a run"
            return None
        while len(self.made) >= KEPT:
            self.made.pop(next(iter(self.made)))
        if len(ALIVE) >= MOST:
            drop_oldest()
        if not has_room(given[0].device, self.held.get(length, 0)):
            return None
        try:
            graph = RunGraph(self.program, given, length, self.call)
        except RuntimeError as error:
            self.refused = describe(error)
            return None
        ALIVE.add(graph)
        ORDER.append((weakref.ref(self), length))
        return graph


def describe(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def can_capture(given: Sequence[Tensor], call: Callable[[Body, Any], Body]) -> bool:
    """On a card; elsewhere only where tests put a plain call in the place of a capture."""
    return bool(given) and (all(tensor.is_cuda for tensor in given) or call is not CapturedCall)


def has_room(device: torch.device, held: int) -> bool:
    """Whether a graph of a run that holds so much between its parts leaves most of the free memory free."""
    if device.type != "cuda":
        return True
    free = torch.cuda.mem_get_info(device)[0]
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return ROOM * held <= free + unused
