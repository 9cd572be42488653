"""Where a forward pass keeps what its backward passes need: on the device, in main memory, or on disk.

That grows with the text and is most of what an explanation needs; weights stay where they are. Numbers do not change: a
tensor comes back as it went.
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
SMALL = 16_384  # bytes: what is not worth a journey


class SavedTensorOffload:
    """`with SavedTensorOffload("disk", model) as offload: …`; `offload.watch` belongs around the forward pass.

    Up to `room` bytes stay on the device in any case. On a processor the host is the device. A
    `synchronous` one waits for every transfer.
    """

    def __init__(self, where: str, model: nn.Module, room: int = 0, synchronous: bool = False) -> None:
        if where not in KEEP:
            raise UnknownName("place to keep", where, KEEP)
        self.where, self.room, self.synchronous = where, room, synchronous
        self.buffer: OffloadBuffer | None = None
        self._weights = memories(model) if where != "device" else set()
        self._removed: undone | None = None
        self._device = next((weight.device for _, weight in named_weights(model)), torch.device("cpu"))

    def __enter__(self) -> SavedTensorOffload:
        place: Backend | None = None
        if self.where == "disk":
            folder = Path(tempfile.gettempdir(), f"headwater-{secrets.token_hex(8)}")
            self._removed = undone(partial(shutil.rmtree, folder, ignore_errors=True))
            self._removed.__enter__()
            folder.mkdir(mode=0o700)
            place = Disk(folder)
        elif self.where == "host" and self._device.type == "cuda":
            place = Host(self._device)
        self.buffer = None if place is None else OffloadBuffer(self.room, place, self.synchronous)
        return self

    def __exit__(self, *_: object) -> None:
        self.buffer = None
        if self._removed is not None:
            self._removed.__exit__()

    def watch(self, _: Any) -> AbstractContextManager[Any]:
        if self.buffer is None:
            return nullcontext()
        return hook_saved_tensors(self._away, self._back)

    def _away(self, tensor: Tensor) -> Any:
        if tensor.nbytes < SMALL or tensor.device != self._device or type(tensor) is not Tensor:
            return tensor
        place = memory_of(tensor)
        if self.buffer is None or place == 0 or place in self._weights:
            return tensor
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return self.buffer.put(tensor)

    def _back(self, kept: Any) -> Tensor:
        if not isinstance(kept, Handle):
            return kept  # type: ignore[no-any-return]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return kept.tensor()


def memories(model: nn.Module) -> set[int]:
    """Where the weights lie."""
    return {memory_of(weight) for _, weight in named_weights(model)} - {0}


def memory_of(tensor: Tensor) -> int:
    """An address, 0 where there is none: of weights that are nowhere yet, or packed."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
