"""The factor by which an activation scales its input, [(f(x) - f(0)) / x], computed when it is first needed.

If the activation turns out to be a gate, which is a constant, the factor is never needed and costs nothing. Until then
input and value are kept. The factor is computed before the next operation that uses the value, and before anything is
written into either.
"""

from __future__ import annotations

import math
import weakref
from itertools import count
from operator import itemgetter
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import HiddenOperation
from ..kernels.elementwise import Activation, divide_by_input
from .saved import SavedTensor

_FIELD = "_headwater_ratio"
_NUMBERS = count()
OURS = 2  # holders of a storage that are ours: the tensor, and the object that asks


class Ratio:
    """(f(x) - f(0)) / x for one tensor; f(0) and f'(0) are its `anchor`. `function` is f, where it can be called again.

    Until the ratio is made, somebody else may take the input instead, and make it from that on the way back.
    """

    __slots__ = ("__weakref__", "_anchor", "_function", "_made", "_origin", "_value", "_version", "_x", "number")

    def __init__(
        self, x: Tensor, value: Tensor, anchor: tuple[float, float], function: Activation | None = None
    ) -> None:
        self._function, self._origin = function, None if function is None else x
        self._x: Tensor | None = x.detach()
        self._value: Tensor | None = value.detach()  # without a graph, so that nothing holds itself
        self._anchor, self._version = anchor, (x._version, value._version)
        self._made: SavedTensor | None = None
        self.number: int = next(_NUMBERS)

    def make(self) -> SavedTensor:
        if self._made is None:
            assert self._x is not None
            assert self._value is not None
            if (self._x._version, self._value._version) != self._version:
                raise HiddenOperation("the model writes over what went into an activation before its result is used.")
            self._origin = None  # before it is asked who holds its memory
            with torch._C.DisableTorchFunction():
                into = self._x if is_only_holder(self._x) else None
                self._made = SavedTensor(ratio(self._x, self._value, *self._anchor, into))
            self._x = self._value = None
        return self._made

    def compute(self) -> Tensor:
        return self.make().tensor()

    @property
    def can_be_made_again(self) -> bool:
        """Whether f(0) is 0, f is known, and its input and its value are what they were."""
        if self._made is not None or self._origin is None or self._value is None or self._anchor[0] != 0:
            return False
        return (self._origin._version, self._value._version) == self._version

    def take_input(self) -> tuple[Tensor, Activation, float]:
        """The input with its graph, f, and f'(0)."""
        assert self._origin is not None
        assert self._function is not None
        return self._origin, self._function, self._anchor[1]


class Borrower(Protocol):
    """Something that holds tensors of the model's for the way back."""

    def copy_before_write(self, written: Tensor) -> None: ...


class Pending(weakref.WeakSet[Ratio]):
    """Ratios that are still to be made, and who holds what the model may still write over."""

    def __init__(self) -> None:
        super().__init__()
        self._borrowers: weakref.WeakValueDictionary[int, Borrower] = weakref.WeakValueDictionary()

    def register_borrower(self, borrower: Borrower) -> None:
        self._borrowers[next(_NUMBERS)] = borrower

    def settle(self, written: Any) -> None:
        """Before anything is written in place. In their order, for what they keep goes through hooks that count."""
        self.settle_ratios()
        self.tell_borrowers(written)

    def tell_borrowers(self, written: Any) -> None:
        """Whoever holds memory that is about to be written over copies it."""
        several = written if isinstance(written, list | tuple) else [written]
        for _, borrower in sorted(self._borrowers.items(), key=itemgetter(0)):
            for tensor in (one for one in several if isinstance(one, Tensor)):
                borrower.copy_before_write(tensor)

    def settle_ratios(self) -> None:
        for one in sorted(self, key=lambda one: one.number):
            one.make()
        self.clear()

    def forget_borrowers(self, since: int) -> None:
        """Those who came since then: what they hold is made again, whatever is written over from now on."""
        for number in [number for number in self._borrowers if number >= since]:
            self._borrowers.pop(number, None)

    @staticmethod
    def moment() -> int:
        return next(_NUMBERS)


def is_only_holder(tensor: Tensor) -> bool:
    """Whether nobody else holds this memory: no tensor of the model, no view, no graph."""
    storage = tensor.untyped_storage()
    whole = storage.nbytes() == tensor.nbytes and tensor.is_contiguous()
    return whole and torch._C._storage_Use_Count(storage._cdata) == OURS


def ratio(x: Tensor, value: Tensor, zero: float, slope: float, into: Tensor | None = None) -> Tensor:
    """(f(x) - f(0)) / x; the derivative where x is 0, or so near it that the difference is rounding alone.

    `into` is memory that may be written over, if only x itself.
    """
    if zero != 0:
        quotient = (value - zero) / x
        return quotient.masked_fill_(x.abs() <= math.sqrt(torch.finfo(x.dtype).eps), slope)
    return divide_by_input(x, value, slope, into)


class Scaled(torch.autograd.Function):
    """The value of f; on the way back its input times the ratio. Without one the ratio is already applied.

    `record` is told which gradient reaches f(0), where that is no part of f(-inf): the ratio is 0 there.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: list[Tensor], factor: Ratio | None) -> Tensor:
        ctx.factor = factor
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.factor is None:
            return gradients[0], None, None
        factor = ctx.factor.compute()
        if (record := getattr(ctx, "record", None)) is not None:
            record(gradients[0].masked_fill(factor == 0, 0))
        return gradients[0] * factor, None, None


def scale_by_constant(
    x: Tensor, value: Tensor, anchor: tuple[float, float], pending: Pending, function: Activation | None = None
) -> Tensor:
    """`value` = f(x), through which relevance goes as through x times a constant. `function` is f."""
    factor = Ratio(x, value, anchor, function)
    result: Tensor = Scaled.apply(x, [value], factor)
    setattr(result, _FIELD, factor)
    pending.add(factor)
    return result


def find_ratio(value: Any) -> Ratio | None:
    """The ratio of the activation that gave `value`."""
    found: Ratio | None = getattr(value, _FIELD, None)
    return found


def settle_ratio(value: Any) -> None:
    """`value` is used as a signal: if an activation gave it, its ratio will be needed."""
    found = find_ratio(value)
    if found is not None:
        found.make()
