"""The scope that notes at every node a change of its value times its gradient: what patching does, to first order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from .by_passing import Axes
from .inside import InsideScope
from .sources import wide
from .tapped import REDUCE, NodeTap, Sum


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
    """Notes change times gradient at every node, and in `terms` the same without signs: what the sum may hide."""

    changes: Sequence[Tensor] = field(default_factory=list)
    terms: dict[int, Tensor] = field(default_factory=dict)  # by the number of the place
    noted: int = 0

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        tap = NodeTap(kind, module, how, *axes, -1, -1, layer=self.layer_of(module))
        self.record.watch(tensor, tap, FixedChange(self.changes[self.noted]), self.books)
        tensor.register_hook(partial(self._note_terms, self.noted, tap))
        self.noted += 1
        return tensor

    def _note_terms(self, number: int, tap: NodeTap, gradient: Tensor | None) -> None:
        if gradient is None or self.books.probe is not None or not self.books.open:
            return
        size = (wide(self.changes[number]) * wide(gradient)).abs()
        self.terms[number] = REDUCE[tap.sum](size, tap, self.record.samples)
