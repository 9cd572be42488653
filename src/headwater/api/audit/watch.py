"""A place where passing relevance is read off: gradient times value, seen by a hook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...rules.lineage import carry


@dataclass(eq=False)
class Tap:
    """`relevance` is known after the backward pass; 0 where no gradient came by."""

    value: Tensor
    alias: Tensor
    gradient: Tensor | None = None
    open: bool = True
    _handle: Any = None

    @classmethod
    def on(cls, tensor: Tensor, value: Tensor | None = None) -> Tap:
        tap = cls(tensor.detach().clone() if value is None else value, tensor)  # the tensor may be written over
        tap._handle = tensor.register_hook(tap.note)
        return tap

    def close(self) -> None:
        """Let go of the tensor: hook, tap and tensor would otherwise keep each other alive."""
        if self._handle is not None:
            self._handle.remove()
        self._handle, self.alias = None, self.value

    def note(self, gradient: Tensor | None) -> None:
        if self.open and gradient is not None:
            seen = gradient.detach()
            self.gradient = seen if self.gradient is None else self.gradient + seen

    @property
    def relevance(self) -> float:
        return 0.0 if self.gradient is None else float((self.gradient.double() * self.value.double()).sum())


@dataclass(frozen=True)
class Reordered:
    """A tap whose axes are read in another order."""

    tap: Tap
    order: tuple[int, ...]

    @property
    def alias(self) -> Tensor:
        return self.tap.alias

    @property
    def value(self) -> Tensor:
        return self.tap.value.permute(self.order)

    @property
    def gradient(self) -> Tensor | None:
        return None if self.tap.gradient is None else self.tap.gradient.permute(self.order)

    def back(self, tensor: Tensor) -> Tensor:
        """A tensor in this order, turned back to the tap's own."""
        return tensor.permute(tuple(self.order.index(axis) for axis in range(len(self.order))))


def tap_alias(tensor: Tensor) -> tuple[Tensor, Tap]:
    """An alias of `tensor` for one user alone, and the tap on it."""
    alias = tensor.view_as(tensor)
    carry(alias, tensor, same_elements=True)
    return alias, Tap.on(alias)
