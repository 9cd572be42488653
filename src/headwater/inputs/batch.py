"""What a model is run on, and what is known of each sample in it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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
    the modules whose outputs are explained, and `at` is what that place is called where it is not the usual one;
    `lookups` are those of `inputs.places.InputPlace`. Where an argument itself is explained, it is `tensor`. `before`,
    `pooled` and `beside` are those of `inputs.protocol.Prepared`. `alone(i)` gives sample i as a batch of its own, for
    models that pad in a way of their own. For images, `patches` says which pixels go together.
    """

    samples: int
    items: Sequence[Item]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    ids: Tensor | None = None
    real: Tensor | None = None
    places: list[nn.Module] = field(default_factory=list)
    at: str | None = None
    lookups: tuple[nn.Module, ...] = ()
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

    def with_ids(self, ids: Tensor) -> Batch:
        """The same batch with other words, whatever the argument is called that has them."""
        old = self.ids_argument
        args, kwargs = map_leaves((self.args, self.kwargs), lambda leaf: ids if leaf is old else leaf)
        return replace(self, args=args, kwargs=kwargs, ids=ids)

    @property
    def ids_argument(self) -> Tensor | None:
        """The argument that holds the text's token ids. None where the model is given no ids, or other ones."""
        if self.ids is None:
            return None
        if any(leaf is self.ids for leaf in list_leaves((self.args, self.kwargs))):
            return self.ids
        usual = self.kwargs.get("input_ids")
        return usual if isinstance(usual, Tensor) and torch.equal(usual, self.ids) else None

    def to(self, device: torch.device, dtype: torch.dtype | None) -> Batch:
        """On the model's device; floating inputs in the model's dtype. A copy, for a model may write over its input.

        Numbers that are given twice are one tensor afterwards, too: both are what is explained.
        """
        moved: dict[int, Tensor] = {}

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) in moved:
                return moved[id(value)]
            numbers = value.is_floating_point()
            found = out_of_inference(out_of_inference(value.detach()).to(device, dtype if numbers else None, copy=True))
            return moved.setdefault(id(value), found) if numbers else found

        alone = self.alone
        args, kwargs = map_leaves(self.args, move), map_leaves(self.kwargs, move)
        return replace(
            self,
            args=args,
            kwargs=kwargs,
            ids=find_moved(self, (args, kwargs), move),
            real=move(self.real),
            tensor=None if self.tensor is None else same_place(self, (args, kwargs), self.tensor),
            alone=None if alone is None else lambda i: alone(i).to(device, dtype),
        )


def find_moved(old: Batch, new: tuple[Any, Any], change: Callable[[Any], Any]) -> Any:
    """The ids after a change of all arguments: the changed argument that holds them, so that it is still known."""
    given = old.ids_argument
    return change(old.ids) if given is None else same_place(old, new, given)


def out_of_inference(tensor: Tensor) -> Tensor:
    """A tensor made in inference mode cannot take part in a backward pass; its copy can."""
    if not tensor.is_inference():
        return tensor
    with outside_inference():
        return tensor.clone()


def copy_caches(arguments: Any) -> Any:
    """The same arguments for one pass: a cache of keys and values is written into, so the pass has a copy of it.

    With one cache for all, the second pass would read the text after itself, and the caller's cache would grow.
    """
    kind = getattr(sys.modules.get("transformers"), "Cache", None)
    return arguments if kind is None else map_leaves(arguments, lambda leaf: copy_if(leaf, kind))


def copy_if(leaf: Any, kind: type) -> Any:
    if not isinstance(leaf, kind):
        return leaf
    with outside_inference(), CopyingCutOff():
        return copy.deepcopy(leaf)


class CopyingCutOff(TorchFunctionMode):
    """Tensors are copied without the graph that they were made by: with one, torch refuses."""

    harmless = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        return memo.setdefault(id(tensor), tensor.detach().clone())


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
