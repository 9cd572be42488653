"""The scope of a circuit: relevance stops at every node, so that what flows from one node to the next can be read.

Parts are found as in `inside`. One backward pass goes through all nodes, and notes the score's gradient at each.
Further passes start at nodes with that gradient, and end at the nodes below: there it is noted, and nothing goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..inputs.places import Captured
from ..kernels.batching import open_batch
from .by_passing import Axes, alias_of
from .inside import InsideScope
from .saved import ForWayBack, borrow
from .sources import wide
from .tapped import NodeTap, Sum


@dataclass(eq=False)
class FlowScope(InsideScope):
    """A scope that notes relevance at every unit of every place, and lets it pass, or not."""

    whole: frozenset[str] = frozenset()  # kinds whose units are one node together
    places: list[NodeTap] = field(default_factory=list)
    roots: list[GradientEdge] = field(default_factory=list)  # where a pass from the nodes of a place starts
    gradients: dict[int, Tensor] = field(default_factory=dict)  # of the score, by place
    amounts: dict[int, Tensor] = field(default_factory=dict)  # of the last pass, [scores, units] by place
    entered_inputs: list[Captured] = field(default_factory=list)
    stops: bool = False
    _gates: list[FlowGate] = field(default_factory=list)

    def enter_input(self, captured: Captured, started: Tensor) -> None:
        super().enter_input(captured, started)
        self.entered_inputs.append(captured)

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        units = None if kind in self.whole else axes[1]
        shape, layer = tuple(tensor.shape), self.layer_of(module)
        if not is_part(kind, layer, self):
            return tensor
        self.places.append(NodeTap(kind, module, how, axes[0], units, -1, -1, shape, layer))
        with torch._C.DisableTorchFunction():
            self.roots.append(get_gradient_edge(tensor))
        alias, gate = alias_of(tensor), FlowGate(self, len(self.places) - 1, borrow(tensor))
        with torch._C.DisableTorchFunction():  # else the hook could only look
            alias.register_hook(gate)
        self.pending.register_borrower(gate)
        self._gates.append(gate)
        return alias

    def take_amounts(self, scores: int) -> dict[int, Tensor]:
        """What the last pass noted, [scores, units] by place."""
        found, self.amounts = self.amounts, {}
        return {place: amount.expand(scores, -1) for place, amount in found.items()}

    def release(self) -> None:
        super().release()
        self.roots.clear()
        self._gates.clear()


def is_part(kind: str, layer: tuple[str, int] | None, scope: InsideScope) -> bool:
    """Neurons of a pooler or classifier, which lie in no layer, are no parts: everything passes through them."""
    return kind != "neurons" or layer is not None or not scope.stacks


class FlowGate:
    """A hook on one place: notes value times gradient by unit; with `stops`, nothing goes on from here."""

    __slots__ = ("__weakref__", "_held", "_number", "_scope")

    def __init__(self, scope: FlowScope, number: int, held: ForWayBack) -> None:
        self._scope, self._number, self._held = scope, number, held

    def copy_before_write(self, written: Tensor) -> None:
        """The model is about to write over a tensor: its value is copied if that is the one."""
        self._held.copy_before_write(written)

    def __call__(self, gradient: Tensor | None) -> Tensor | None:
        scope = self._scope
        if gradient is None or not scope.books.open:
            return None
        product = wide(self._held.tensor()) * wide(gradient)
        found, level = open_batch(sum_by_unit(product, scope.places[self._number]))
        scope.amounts[self._number] = found.double() if level is not None else found.double().unsqueeze(0)
        if scope.stops:
            return torch.zeros_like(gradient)
        scope.gradients[self._number] = gradient.detach()
        return None


def sum_by_unit(product: Tensor, place: NodeTap) -> Tensor:
    """[units], or [1] where a place is one node."""
    if place.units is None:
        return product.double().sum().reshape(1)
    return product.double().movedim(place.units, 0).flatten(1).sum(1)


def mask_units(gradient: Tensor, place: NodeTap, units: Tensor) -> Tensor:
    """The gradient where `units`, a mask of a place's units, is 1; elsewhere nothing."""
    if place.units is None:
        return gradient * units.to(gradient)
    shape = [1] * gradient.dim()
    shape[place.units] = -1
    return gradient * units.to(gradient).reshape(shape)
