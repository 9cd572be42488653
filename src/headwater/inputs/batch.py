"""What a model is run on, and what is known of each sample in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from ..results.picture import ImageFrame
from .patches import PatchGrid
from .protocol import SideInput
from .restoring import outside_inference


@dataclass(frozen=True)
class Item:
    """One sample as its user knows it: the tokens of its real positions and where they stand in the text."""

    tokens: tuple[str, ...] = ()
    text: str | tuple[str, str] | None = None
    special: tuple[bool, ...] = ()
    offsets: tuple[tuple[int, int], ...] | None = None
    word_ids: tuple[int | None, ...] | None = None
    sequence_ids: tuple[int | None, ...] | None = None
    frame: ImageFrame | None = None  # of an image


@dataclass(frozen=True)
class Batch:
    """The arguments of one forward pass of `samples` samples. A method makes another batch, and never changes one.

    `ids` are the text's token ids [samples, positions]; `real` is true at positions that are not padding. `places` are
    the modules whose outputs are explained. Where an argument itself is explained, it is `tensor`. `before`, `pooled`
    and `beside` are those of `inputs.protocol.Prepared`. `alone(i)` gives sample i as a batch of its own, for models
    that pad in a way of their own. For images, `patches` says which pixels go together.
    """

    samples: int
    items: list[Item]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    ids: Tensor | None = None
    real: Tensor | None = None
    places: list[nn.Module] = field(default_factory=list)
    tensor: Tensor | None = None
    before: tuple[str, ...] = ()
    pooled: bool = False
    beside: SideInput | None = None
    alone: Callable[[int], Batch] | None = None
    patches: PatchGrid | None = None
    starts: tuple[int, ...] = ()  # tokens that the model's decoder may start with

    @property
    def length(self) -> int | None:
        """Positions inside the model, where known."""
        known = self.ids if self.ids is not None else self.real
        return None if known is None else known.shape[1] + len(self.before)

    def to(self, device: torch.device, dtype: torch.dtype | None) -> Batch:
        """On the model's device; floating inputs in the model's dtype."""

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            value = out_of_inference(value.detach())
            return out_of_inference(value.to(device, dtype if value.is_floating_point() else None))

        alone = self.alone
        args, kwargs = map_leaves(self.args, move), map_leaves(self.kwargs, move)
        return replace(
            self,
            args=args,
            kwargs=kwargs,
            ids=move(self.ids),
            real=move(self.real),
            tensor=None if self.tensor is None else same_place(self, (args, kwargs), self.tensor),
            alone=None if alone is None else lambda i: alone(i).to(device, dtype),
        )


def out_of_inference(tensor: Tensor) -> Tensor:
    """A tensor made in inference mode cannot take part in a backward pass; its copy can."""
    if not tensor.is_inference():
        return tensor
    with outside_inference():
        return tensor.clone()


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """`change` applied to every leaf of nested lists, tuples and dicts."""
    if isinstance(value, dict):
        return {k: map_leaves(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map_leaves(v, change) for v in value)
    return change(value)


def list_leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(value, lambda leaf: found.append(leaf))
    return found


def group_by_length(
    lengths: Sequence[int], *, most: float = inf, budget: float = inf, mixes: bool = True
) -> list[list[int]]:
    """Indices of samples that are run together, like lengths side by side and the longest first.

    A group has at most `most` samples, and its size times its longest stays within the `budget`; one sample may always
    run alone. Without `mixes`, a group has one length: its model takes no padding.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size, longest = (len(groups[-1]) + 1, lengths[groups[-1][0]]) if groups else (1, lengths[i])
        if not groups or size > most or size * longest > budget or (not mixes and lengths[i] != longest):
            groups.append([])
        groups[-1].append(i)
    return groups


def same_place(old: Batch, new: tuple[Any, Any], tensor: Tensor) -> Tensor:
    """The new argument that replaced `tensor`."""
    for before, after in zip(list_leaves((old.args, old.kwargs)), list_leaves(new), strict=True):
        if before is tensor:
            return after  # type: ignore[no-any-return]
    raise LookupError("the tensor is no argument of the batch")
