"""The scope that makes cuts through the model: nodes on the one hand, and on the other all that goes around them.

What was made before a cut and is used after it goes around the nodes: there the operation gets its own alias of the
tensor, whose gradient is that of this use alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs.inside_demand import find_layer
from ..inputs.places import Captured, is_start, start
from .call import Call, is_signal
from .cuts import tensors
from .saved import borrow
from .scope import Scope
from .tapped import EDGE, InsideRecord, NodeTap, Sum

_BORN = "_headwater_born"  # how many cuts there were when a tensor was made

Axes = tuple[int | None, int | None]  # of samples and of units


@dataclass(eq=False)
class CutScope(Scope):
    """A scope that notes relevance at nodes and around them; which tensors are nodes is said by `note_node`."""

    stacks: dict[str, list[nn.Module]] = field(default_factory=dict)
    entered_layers: Counter[tuple[str, int]] = field(default_factory=Counter)  # how often each layer was called

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inside: InsideRecord = InsideRecord(self.books.samples, self.books.length)

    @property
    def record(self) -> InsideRecord:
        assert self.inside is not None
        return self.inside

    def enter_input(self, captured: Captured, started: Tensor) -> None:
        """An input that enters after a cut goes around its nodes."""
        super().enter_input(captured, started)
        if self.record.cuts:
            self.watch_edge(started, 0)
        self.note_birth(started)

    def stand_in(self, value: Any, seen: Any) -> None:
        super().stand_in(value, seen)
        for one in tensors(value):
            self.note_birth(one)

    def perform_once(self, call: Call) -> Any:
        """An operation that writes into what crosses a cut writes into a copy, whose gradient is of this use alone."""
        target: Any = call.args[0] if call.inplace and call.args else None
        if not is_signal(target) or self.born_at(target) >= len(self.record.cuts):
            return super().perform(call)
        done = give_attributes(target.clone(), target)
        self.watch_edge(done, self.born_at(target))
        super().perform(replace(call, args=(done, *call.args[1:])))
        if is_signal(done):
            target.copy_(done)
        else:
            with torch.no_grad():
                target.copy_(done)
        give_attributes(target, done)
        return None if call.name == "setitem" else target

    def note_birth(self, tensor: Tensor) -> None:
        """This tensor was made just now, after all cuts so far."""
        setattr(tensor, _BORN, len(self.record.cuts))

    def born_at(self, tensor: Tensor) -> int:
        """After how many cuts a tensor was made."""
        found: int | None = getattr(tensor, _BORN, None)
        if found is None and tensor._base is not None:
            found = getattr(tensor._base, _BORN, None)
        return len(self.record.cuts) if found is None else found

    def with_edges(self, call: Call) -> Call:
        """The same operation; of what it uses from before a cut it has aliases of its own."""
        count = len(self.record.cuts)
        first = 1 if call.inplace else 0
        args = (*call.args[:first], *(self.own_alias(value, count) for value in call.args[first:]))
        kwargs = {name: self.own_alias(value, count) for name, value in call.kwargs.items()} if call.kwargs else {}
        return replace(call, args=args, kwargs=kwargs)

    def own_alias(self, value: Any, count: int) -> Any:
        """A tensor from before the last of `count` cuts as an alias that is watched; others as they are."""
        if isinstance(value, Tensor):
            if not value.requires_grad or self.born_at(value) >= count:
                return value
            alias = alias_of(value)
            self.watch_edge(alias, self.born_at(value))
            return alias
        if type(value) in (list, tuple):
            return type(value)([self.own_alias(one, count) for one in value])
        return value

    def watch_edge(self, alias: Tensor, born: int) -> None:
        record = self.record
        axis = record.find_sample_axis(alias.shape, self.books.scrambled)
        self.watch_tensor(alias, NodeTap(EDGE, "", Sum.SAMPLES, axis, None, born, len(record.cuts)))

    def watch_tensor(self, tensor: Tensor, tap: NodeTap) -> None:
        self.pending.register_borrower(self.record.watch(tensor, tap, borrow(tensor), self.books))

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        """A cut whose nodes are those of `tensor`, which was made just now; the model goes on with what is returned."""
        record = self.record
        record.cuts.append(len(self.books.sites))
        number = len(record.cuts)
        setattr(tensor, _BORN, number)
        self.watch_tensor(tensor, NodeTap(kind, module, how, *axes, number - 1, number, layer=self.layer_of(module)))
        return tensor

    def layer_of(self, module: str) -> tuple[str, int] | None:
        """The stack that a module lies in, and the number of its layer. Layers that are called again are counted on."""
        found = find_layer(self.stacks, module)
        if found is None:
            return None
        stack, number = found
        return stack, number + len(self.stacks[stack]) * max(self.entered_layers[found] - 1, 0)


def alias_of(tensor: Tensor) -> Tensor:
    """The same tensor for one use alone, with all that is known of it. The explained input stays one."""
    with torch._C.DisableTorchFunction():
        alias = start(tensor) if is_start(tensor) else tensor.view_as(tensor)
    return give_attributes(alias, tensor)


def give_attributes(target: Tensor, source: Tensor) -> Tensor:
    """What rules noted of a tensor, noted of another."""
    for name, value in vars(source).items():
        setattr(target, name, value)
    return target
