"""The scope that replaces parts of the model while it computes: activation patching. Parts are found as in `inside`.

A head's, neuron's, layer's or module's value becomes another one, in chosen samples of a batch, so that one pass asks
many questions. The rest of the model computes what it then computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ..errors import InputError
from .by_passing import Axes, give_attributes
from .inside import InsideScope
from .saved import forget_maker
from .tapped import NodeTap, Sum


class ValueSwap(NamedTuple):
    """In sample `row`, the units (None: all) of one place take those of `value`, which is of one sample."""

    row: int
    units: Sequence[int] | None
    value: Tensor


class PlaceKey(NamedTuple):
    """One place, whatever was met before it: other values may send tokens to other experts, which are more places."""

    kind: str
    module: str
    expert: tuple[int, int] | None
    call: int  # how many such places came before it


@dataclass(eq=False)
class PatchScope(InsideScope):
    """A scope that notes the values of nodes, place by place, and puts others where `swaps` says so."""

    swaps: Mapping[PlaceKey, Sequence[ValueSwap]] = field(default_factory=dict)
    places: list[NodeTap] = field(default_factory=list)
    keys: list[PlaceKey] = field(default_factory=list)  # of the places
    found: list[Tensor] = field(default_factory=list)
    keeps: bool = True  # whether values are noted
    parts_decide: bool = True  # for values of parts are replaced

    @property
    def tells_experts(self) -> bool:
        return True

    def note_node(self, tensor: Tensor, kind: str, module: str, how: Sum, axes: Axes) -> Tensor:
        layer, expert = self.layer_of(module), self.expert_here
        place = NodeTap(kind, module, how, *axes, -1, -1, tuple(tensor.shape), layer, expert)
        call = sum((one.kind, one.module, one.expert) == (kind, module, expert) for one in self.places)
        self.places.append(place)
        self.keys.append(PlaceKey(kind, module, expert, call))
        if self.keeps:
            self.found.append(tensor.detach().clone())
        swaps = self.swaps.get(self.keys[-1])
        return tensor if swaps is None else swap_values(tensor, place, swaps, self.record.samples)


def swap_values(tensor: Tensor, place: NodeTap, swaps: Sequence[ValueSwap], samples: int) -> Tensor:
    """The same tensor with other values in some samples and units."""
    changed = give_attributes(tensor.clone(), tensor)
    forget_maker(changed)
    for swap in swaps:
        target, value, units = changed, swap.value, place.units
        if samples > 1:
            assert place.samples is not None
            target, value = target.select(place.samples, swap.row), value.select(place.samples, 0)
            units = None if units is None else units - (place.samples < units)
        check_shape(target, value, place)
        if swap.units is None or units is None:
            target.copy_(value)
        else:
            chosen = list(swap.units)
            target.movedim(units, 0)[chosen] = value.expand_as(target).movedim(units, 0)[chosen]
    return changed


def check_shape(target: Tensor, value: Tensor, place: NodeTap) -> None:
    fits = value.dim() == target.dim() and all(a in (1, b) for a, b in zip(value.shape, target.shape, strict=True))
    if not fits:
        raise InputError(
            f"what is put into {place.module!r} has the shape {tuple(value.shape)}, and {tuple(target.shape)} is "
            "needed: both texts must have the same number of tokens. Put in zeros or a mean instead."
        )


def mean_over_positions(values: Sequence[Tensor], place: NodeTap) -> Tensor:
    """The mean of one place over all positions of several texts, in a shape that goes into any of them."""
    features = (values[0].dim() - 1,) if place.sum is Sum.FEATURES else ()
    kept = {*features, *(() if place.units is None else (place.units,))}
    axes = tuple(axis for axis in range(values[0].dim()) if axis not in kept)
    sums = [value.double().sum(axes, keepdim=True) for value in values]
    count = sum(value.numel() // one.numel() for value, one in zip(values, sums, strict=True))
    total: Tensor = sum(sums[1:], sums[0])
    return (total / count).to(values[0].dtype)
