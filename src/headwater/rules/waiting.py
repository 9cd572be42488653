"""A tensor that waits for the backward pass outside autograd's own saved ones: in a hook, or made after its node.

It goes through the same hooks (`torch.autograd.graph.saved_tensors_hooks`) as those, so that whoever keeps saved
tensors elsewhere, or makes them again, does so with all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Waiting:
    """`Waiting(tensor)` on the way forward, `.tensor()` on the way back."""

    __slots__ = ("_kept", "_unpack")

    def __init__(self, tensor: Tensor) -> None:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        with torch._C.DisableTorchFunction():
            self._kept: Any = tensor.detach()
            self._unpack: Any = None
            if hooks is not None:
                pack, self._unpack = hooks
                self._kept = pack(self._kept)

    def tensor(self) -> Tensor:
        found: Tensor = self._kept if self._unpack is None else self._unpack(self._kept)
        return found

    @property
    def here(self) -> bool:
        """Whether the tensor itself is held, and nothing in its place."""
        return isinstance(self._kept, Tensor)
