"""Two traces of one model on inputs of different lengths -> one trace whose sizes depend on the length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .record import Slot, Struct, Trace

SMALL = 4096  # numbers in a constant tensor that is compared


@dataclass(frozen=True)
class Size:
    """A size or position: square * n² + times * n + plus, for an input of length n."""

    square: int
    times: int
    plus: int

    def at(self, length: int) -> int:
        return self.square * length * length + self.times * length + self.plus

    def __str__(self) -> str:
        return f"{self.square} * n * n + {self.times} * n + {self.plus}"


class Different(Exception):
    """Two traces do not agree."""


def join_traces(first: Trace, second: Trace, lengths: tuple[int, int]) -> Trace | None:
    """One trace that is the first at the first length and the second at the second; None if there is none."""
    try:
        return _merge_traces(first, second, lambda one, other: size_through(one, other, lengths))
    except Different:
        return None


def fits(joined: Trace, other: Trace, length: int) -> bool:
    """Whether a joined trace, at this length, is the other: the same operations with the same arguments."""
    try:
        _need_frame(joined, other)
        for one, two in zip(joined.operations, other.operations, strict=True):
            _need(one.function is two.function and one.results == two.results and one.single == two.single)
            if one.args != two.args or one.kwargs != two.kwargs or one.reads != two.reads:
                told = [_at(part, length) for part in (one.args, one.kwargs, one.reads)]
                _need(told == [two.args, two.kwargs, two.reads])
    except Different:
        return False
    return True


def _at(value: Any, length: int) -> Any:
    """The value with its sizes at this length."""
    if isinstance(value, Size):
        return value.at(length)
    if isinstance(value, (list, tuple)):
        return type(value)([_at(one, length) for one in value])
    if isinstance(value, dict):
        return {key: _at(one, length) for key, one in value.items()}
    return Struct(value.kind, _at(value.values, length)) if isinstance(value, Struct) else value


def size_through(one: Any, other: int, lengths: tuple[int, int]) -> Any:
    """The simplest size that has these values at these lengths."""
    if one == other:
        return one
    (a, b), step = lengths, lengths[1] - lengths[0]
    if step and (other - one) % step == 0:
        times = (other - one) // step
        plus = one - times * a
        if plus == 0:
            return Size(0, times, 0)
    if one % (a * a) == 0 and other == one // (a * a) * b * b:
        return Size(one // (a * a), 0, 0)
    if step and (other - one) % step == 0 and abs(plus) <= max(64, abs(times)):
        return Size(0, times, plus)
    raise Different


Merge = Callable[[Any, int], Any]


def _need_frame(first: Trace, second: Trace) -> None:
    """As many operations in the same parts, on the same inputs and constants."""
    _need(len(first.operations) == len(second.operations))
    _need((first.begins, first.inputs) == (second.begins, second.inputs))
    _need(first.constants.keys() == second.constants.keys())
    _need(all(same_constant(tensor, second.constants[number]) for number, tensor in first.constants.items()))


def _merge_traces(first: Trace, second: Trace, sizes: Merge) -> Trace:
    _need_frame(first, second)
    made = []
    for one, other in zip(first.operations, second.operations, strict=True):
        _need(one.function is other.function and one.results == other.results and one.single == other.single)
        args, kwargs = _merge(one.args, other.args, sizes), _merge(one.kwargs, other.kwargs, sizes)
        made.append(one._replace(args=args, kwargs=kwargs, reads=_merge(one.reads, other.reads, sizes)))
    return replace(first, operations=made)


def _merge(one: Any, other: Any, sizes: Merge) -> Any:
    if isinstance(one, (list, tuple)):
        _need(type(one) is type(other) and len(one) == len(other))
        return type(one)([_merge(a, b, sizes) for a, b in zip(one, other, strict=True)])
    if isinstance(one, dict):
        _need(isinstance(other, dict) and one.keys() == other.keys())
        return {key: _merge(value, other[key], sizes) for key, value in one.items()}
    if isinstance(one, Struct):
        _need(isinstance(other, Struct) and one.kind is other.kind)
        return Struct(one.kind, _merge(one.values, other.values, sizes))
    if isinstance(one, Size) or (type(one) is int and type(other) is int):
        return sizes(one, other)
    if isinstance(one, float) and isinstance(other, float):
        _need(one == other or (math.isnan(one) and math.isnan(other)))
        return one
    _need(type(one) is type(other) and (one is other or isinstance(one, Slot | str | bool) or _plain(one)))
    _need(one is other or bool(one == other))
    return one


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, complex))


def same_constant(one: Tensor, other: Tensor) -> bool:
    """The same weight, or a small tensor with the same numbers."""
    if one is other:
        return True
    alike = (one.shape, one.dtype, one.device, one.stride()) == (other.shape, other.dtype, other.device, other.stride())
    return alike and one.numel() <= SMALL and torch.equal(one, other)


def _need(holds: bool) -> None:
    if not holds:
        raise Different
