"""The scope that notes at every node a change of its value times its gradient: what patching would do, to first order.

Nodes can have gone a part of their way already, so that gradients are those on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from .by_passing import Axes, give_attributes
from .inside import InsideScope
from .saved import forget_maker
from .tapped import NodeTap, Sum


class FixedChange:
    """A node's change of value, in the place of its value."""

    def __init__(self, change: Tensor) -> None:
        self.change = change

    @property
    def here(self) -> bool:
        return True

    def tensor(self) -> Tensor:
        return self.change

    def copy_before_write(self, written: Tensor) -> None:
        """Nobody else has it."""


@dataclass(eq=False)
class ChangeScope(InsideScope):
    """Notes change times gradient at every node."""

    changes: Sequence[Tensor] = field(default_factory=list)
    moved: Mapping[int, Tensor] = field(default_factory=dict)  # what is taken from the values of a place
    noted: int = 0

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        tap = NodeTap(kind, module, how, *axes, -1, -1, layer=self.layer_of(module))
        taken = self.moved.get(self.noted)
        if taken is not None:
            tensor = give_attributes(tensor - taken, tensor)
            forget_maker(tensor)
        self.record.watch(tensor, tap, FixedChange(self.changes[self.noted]), self.books)
        self.noted += 1
        return tensor
