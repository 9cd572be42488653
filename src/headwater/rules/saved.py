"""Tensors that are saved for the backward pass by us, and not by autograd: for a hook, or after a node was made.

They pass through the same hooks as autograd's own (`torch.autograd.graph.saved_tensors_hooks`). So whoever offloads or
recomputes saved tensors does it with these, too.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..errors import HiddenOperation


class SavedTensor:
    """`SavedTensor(tensor)` on the way forward, `.tensor()` on the way back."""

    __slots__ = ("_hooks", "_kept")

    def __init__(self, tensor: Tensor, like: SavedTensor | None = None) -> None:
        """Saved by the hooks that are active now, or by those of another saved tensor."""
        self._hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True) if like is None else like._hooks
        with torch._C.DisableTorchFunction():
            kept = tensor.detach()
            self._kept: Any = kept if self._hooks is None else self._hooks[0](kept)

    def tensor(self) -> Tensor:
        found: Tensor = self._kept if self._hooks is None else self._hooks[1](self._kept)
        return found

    @property
    def here(self) -> bool:
        """Whether the tensor itself is held, and nothing in its place."""
        return isinstance(self._kept, Tensor)


class BorrowedTensor:
    """A saved tensor that belongs to the model. The model may write over it before the backward pass.

    Whoever sees that coming calls `copy_before_write`, and a copy is saved in its place. Where a hook of autograd has
    taken the tensor away, only a weak reference to its memory is held, so that the memory can be freed.
    """

    __slots__ = ("_memory", "_version", "_view", "_waiting")

    def __init__(self, tensor: Tensor) -> None:
        self._hold(tensor, None)

    def _hold(self, tensor: Tensor, like: SavedTensor | None) -> None:
        self._version = tensor._version
        self._view = (tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())
        self._waiting = SavedTensor(tensor, like)
        self._memory = None if self.here else StorageWeakRef(tensor.untyped_storage())

    @property
    def here(self) -> bool:
        return self._waiting.here

    def tensor(self) -> Tensor:
        found = self._waiting.tensor()
        if self.here:  # else whoever keeps it looks after that
            self._check(found)
        return found

    def copy_before_write(self, written: Tensor) -> None:
        """`written` is about to be written over. If this tensor lies in its memory, a copy is saved instead."""
        memory = written.untyped_storage()
        mine = self._waiting.tensor().untyped_storage()._cdata if self._memory is None else self._memory.cdata
        if mine != memory._cdata:
            return
        self._check(written)
        dtype, offset, shape, stride = self._view
        with torch._C.DisableTorchFunction():
            same = torch.empty(0, dtype=dtype, device=written.device).set_(memory, offset, shape, stride)
            self._hold(same.clone(), self._waiting)

    def _check(self, tensor: Tensor) -> None:
        if tensor._version != self._version:
            raise HiddenOperation("the model writes over what goes into or comes out of a linear layer.")


_MAKER = "_headwater_maker"


class ForWayBack(Protocol):
    """A tensor for the way back: kept, or made again from what is."""

    @property
    def here(self) -> bool:
        """Whether it takes nothing but memory and arithmetic to have it: no other device, no disk."""

    def tensor(self) -> Tensor: ...

    def copy_before_write(self, written: Tensor) -> None: ...


def mark_remade(tensor: Tensor, maker: ForWayBack) -> None:
    """`maker` can make `tensor` again: whoever needs it on the way back need not keep it."""
    setattr(tensor, _MAKER, (maker, tensor._version))


def forget_maker(tensor: Tensor) -> None:
    """A tensor has got other numbers: nobody can make it again."""
    if hasattr(tensor, _MAKER):
        delattr(tensor, _MAKER)


def find_maker(tensor: Tensor) -> ForWayBack | None:
    """Who can make a tensor again, as long as nobody has written into it."""
    found: tuple[ForWayBack, int] | None = getattr(tensor, _MAKER, None)
    return found[0] if found is not None and found[1] == tensor._version else None


def borrow(tensor: Tensor) -> ForWayBack:
    """A tensor of the model's for the way back: made again if it can be, or is a view of what can be; else itself."""
    maker = find_maker(tensor)
    if maker is not None:
        return maker
    base = tensor._base
    maker = None if base is None else find_maker(base)
    return BorrowedTensor(tensor) if base is None or maker is None else RemadeView(tensor, base, maker)


class RemadeView:
    """A view of a tensor that is made again."""

    __slots__ = ("_layout", "_maker", "_view")

    def __init__(self, view: Tensor, base: Tensor, maker: ForWayBack) -> None:
        self._maker, self._layout = maker, base.stride()
        self._view = (view.shape, view.stride(), view.storage_offset() - base.storage_offset())

    @property
    def here(self) -> bool:
        return self._maker.here

    def tensor(self) -> Tensor:
        found, (shape, stride, offset) = self._maker.tensor(), self._view
        if found.stride() != self._layout:
            found = found.new_empty_strided(found.shape, self._layout).copy_(found)
        return found.as_strided(shape, stride, found.storage_offset() + offset)

    def copy_before_write(self, written: Tensor) -> None:
        """What it is made of is looked after by its maker."""
