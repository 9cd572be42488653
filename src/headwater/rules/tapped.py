"""What a run notes inside the model: relevance at nodes, and on every way around them, for each cut.

A cut lies between two operations. Signals that were made before it and are used after it cross it: the nodes, and what
by-passes them. Their relevance and that of the sources which enter after the cut add up to the score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from torch import Tensor

from .saved import ForWayBack
from .sources import Books, sample_axis, wide

EDGE = "by-passing"  # the kind of a tap on what goes around nodes


class SamplesUntold(Exception):
    """The shape of a tensor inside the model does not tell which sample a number belongs to: one sample at a time."""


class Sum(IntEnum):
    """What of value times gradient is kept."""

    NOTHING = 0  # every element is a node
    FEATURES = 1  # the sum over the last axis
    SAMPLES = 2  # one number per sample
    ROWS = 3  # the sum over the last axis but one


@dataclass(frozen=True)
class NodeTap:
    """One place where relevance is noted. `samples` and `units` are axes of what is kept, counted from its front.

    A node belongs to cut number `first`, if to any. What by-passes crosses the cuts from `first` up to `last`.
    """

    kind: str
    module: str
    sum: Sum
    samples: int | None
    units: int | None
    first: int
    last: int
    kept: tuple[int, ...] = ()  # the shape of what is kept of a node
    layer: tuple[str, int] | None = None  # the stack of layers that a node lies in, and the number of its layer
    expert: tuple[int, int] | None = None  # its number, and how many there are, where the node is an expert's


@dataclass(eq=False)
class InsideRecord:
    """The taps of one run, what was noted at each, and for every cut the number of sources that came before it."""

    samples: int
    length: int | None
    taps: list[NodeTap] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    amounts: dict[int, Tensor] = field(default_factory=dict)
    untold: list[str] = field(default_factory=list)  # modules whose attention has no heads that can be told

    def with_amounts(self, amounts: dict[int, Tensor]) -> InsideRecord:
        """The same taps, with what another run noted there."""
        return replace(self, amounts=amounts)

    def describe_taps(self) -> Any:
        """What must be equal of two runs, whatever their lengths."""
        return [replace(tap, kept=()) for tap in self.taps], self.cuts, self.untold

    def find_sample_axis(self, shape: tuple[int, ...], scrambled: bool) -> int:
        """The axis of the samples, where features lie along the last."""
        if self.samples == 1:
            return 0
        found = None if scrambled else sample_axis(shape, self.samples, (len(shape) - 1,), self.length)  # type: ignore[arg-type]
        if found is None:
            raise SamplesUntold
        return found

    def name_expert(self, expert: tuple[int, int]) -> None:
        """The last tap is at this expert."""
        if self.taps:
            self.taps[-1] = replace(self.taps[-1], expert=expert)

    def watch(self, tensor: Tensor, tap: NodeTap, held: ForWayBack, books: Books) -> RelevanceHook:
        """Notes the relevance at `tensor` when its gradient comes. `held` gives its value then."""
        self.taps.append(tap if tap.kind == EDGE else replace(tap, kept=shape_of_node(tensor.shape, tap.sum)))
        noting = RelevanceHook(self, len(self.taps) - 1, held, books)
        tensor.register_hook(noting)
        return noting


def shape_of_node(shape: tuple[int, ...], how: Sum) -> tuple[int, ...]:
    """The shape of what is kept of a node of this shape."""
    return {Sum.NOTHING: shape, Sum.FEATURES: shape[:-1], Sum.ROWS: (*shape[:-2], *shape[-1:])}[how]


class RelevanceHook:
    """A hook that notes value times gradient, once."""

    __slots__ = ("__weakref__", "_books", "_held", "_index", "_record")

    def __init__(self, record: InsideRecord, index: int, held: ForWayBack, books: Books) -> None:
        self._record, self._index, self._books = record, index, books
        self._held: ForWayBack | None = held

    def copy_before_write(self, written: Tensor) -> None:
        """The model is about to write over a tensor: its value is copied if that is the one."""
        if self._held is not None:
            self._held.copy_before_write(written)

    def __call__(self, gradient: Tensor | None) -> None:
        held, books = self._held, self._books
        if gradient is None or held is None or books.probe is not None or not books.open:
            return
        self._held = None  # its memory is free from here on
        tap = self._record.taps[self._index]
        product = wide(held.tensor()) * wide(gradient)
        self._record.amounts[self._index] = REDUCE[tap.sum](product, tap, self._record.samples)


def sum_by_sample(product: Tensor, tap: NodeTap, samples: int) -> Tensor:
    if samples == 1:
        return product.double().sum().reshape(1)
    rows = product if not tap.samples else product.movedim(tap.samples, 0)
    return rows.double().flatten(1).sum(1) if rows.dim() > 1 else rows.double()


REDUCE: dict[Sum, Callable[[Tensor, NodeTap, int], Tensor]] = {
    Sum.NOTHING: lambda product, tap, samples: product,
    Sum.FEATURES: lambda product, tap, samples: product.sum(-1),
    Sum.SAMPLES: sum_by_sample,
    Sum.ROWS: lambda product, tap, samples: product.sum(-2),
}
