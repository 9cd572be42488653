"""The scope that finds which linear layer reads each group of heads or neurons, so that a unit can be cut out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .by_passing import Axes
from .call import Call
from .inside import holds_mixed_values, linear_input
from .patching import PatchScope
from .tapped import Sum


@dataclass(eq=False)
class ReaderScope(PatchScope):
    """Notes for every place of nodes the modules that read it: of neurons the one they enter, of heads the next one."""

    readers: list[list[str]] = field(default_factory=list)  # by place
    keeps: bool = False
    _heads: int | None = None  # the place of the heads that were mixed last

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        found = super().note_node(tensor, kind, module, how, axes)
        self.readers.append([module] if kind == "neurons" else [])
        self._heads = len(self.places) - 1 if kind == "heads" else self._heads
        return found

    def perform(self, call: Call) -> Any:
        read = linear_input(call)
        if read is not None and holds_mixed_values(read) and self._heads is not None:
            self.readers[self._heads].append(self.where())
        return super().perform(call)
