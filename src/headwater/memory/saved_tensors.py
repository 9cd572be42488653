"""Where a forward pass keeps the tensors that its backward passes need: on the device, in main memory, or on disk.

They grow with the length of the text, and are most of the memory that an explanation needs. Weights stay where they
are. No number changes: a tensor comes back bit for bit.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnknownName
from ..inputs.restoring import hook_saved_tensors, undone
from ..inputs.walking import named_weights
from .backends import Disk, Host
from .offload import Backend, Handle, OffloadBuffer

KEEP = ("device", "host", "disk")
SMALL = 16_384  # bytes: smaller tensors are not worth a copy


class SavedTensorOffload:
    """Moves saved tensors to `where`. `with SavedTensorOffload("disk", model) as offload, offload.watch(scope): …`

    The forward pass runs inside `watch`. Up to `limit` bytes stay on the device. On a processor, main memory is the
    device. With `synchronous`, every copy is waited for.
    """

    def __init__(self, where: str, model: nn.Module, limit: int = 0, synchronous: bool = False) -> None:
        if where not in KEEP:
            raise UnknownName("place to keep", where, KEEP)
        self.where = where
        self.limit = limit
        self.synchronous = synchronous
        self.buffer: OffloadBuffer | None = None
        self._weights = memories(model) if where != "device" else set()
        self._removed: undone | None = None
        self._device = next((weight.device for _, weight in named_weights(model)), torch.device("cpu"))

    def __enter__(self) -> SavedTensorOffload:
        backend: Backend | None = None
        if self.where == "disk":
            folder = Path(tempfile.gettempdir(), f"headwater-{secrets.token_hex(8)}")
            self._removed = undone(partial(shutil.rmtree, folder, ignore_errors=True))
            self._removed.__enter__()
            folder.mkdir(mode=0o700)
            backend = Disk(folder)
        elif self.where == "host" and self._device.type == "cuda":
            backend = Host(self._device)
        self.buffer = None if backend is None else OffloadBuffer(self.limit, backend, self.synchronous)
        return self

    def __exit__(self, *_: object) -> None:
        self.buffer = None
        if self._removed is not None:
            self._removed.__exit__()

    def watch(self, _: Any) -> AbstractContextManager[Any]:
        if self.buffer is None:
            return nullcontext()
        return hook_saved_tensors(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Any:
        if tensor.nbytes < SMALL or tensor.device != self._device or type(tensor) is not Tensor:
            return tensor
        backend = memory_of(tensor)
        if self.buffer is None or backend == 0 or backend in self._weights:
            return tensor
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return self.buffer.put(tensor)

    def _unpack(self, kept: Any) -> Tensor:
        if not isinstance(kept, Handle):
            return kept  # type: ignore[no-any-return]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return kept.tensor()


def memories(model: nn.Module) -> set[int]:
    """The addresses of a model's weights."""
    return {memory_of(weight) for _, weight in named_weights(model)} - {0}


def memory_of(tensor: Tensor) -> int:
    """The address of a storage; 0 where it has none, as weights on the meta device or packed ones."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
