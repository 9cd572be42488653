"""Where a forward pass keeps what its backward passes need: on the device, in main memory, or on disk.

That grows with the text and is most of what an explanation needs; weights stay where they are. Numbers do not change: a
tensor comes back as it went.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnknownName

KEEP = ("device", "host", "disk")
SMALL = 16_384  # bytes: what is not worth a journey


class Keeping:
    """`with Keeping("disk", model) as keeping: …`; `keeping.watch` belongs around the forward pass."""

    def __init__(self, where: str, model: nn.Module) -> None:
        if where not in KEEP:
            raise UnknownName("place to keep", where, KEEP)
        self.where = where
        self.moved = 0  # tensors that went elsewhere
        self._weights = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Keeping:
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-") if self.where == "disk" else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def watch(self, _: Any) -> AbstractContextManager[Any]:
        if self.where == "device":
            return nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self._away, self._back)

    def _away(self, tensor: Tensor) -> Any:
        if tensor.nbytes < SMALL or tensor.untyped_storage().data_ptr() in self._weights:
            return tensor
        with torch.no_grad():  # the rules look away
            if self._folder is not None:
                self.moved += 1
                return OnDisk(tensor, Path(self._folder.name) / f"{self.moved}.pt")
            if tensor.device.type == "cpu":
                return tensor
            self.moved += 1
            return tensor.device, tensor.cpu()

    def _back(self, kept: Any) -> Tensor:
        with torch.no_grad():
            if isinstance(kept, OnDisk):
                return kept.read()
            if isinstance(kept, tuple):
                return kept[1].to(kept[0])  # type: ignore[no-any-return]
            return kept  # type: ignore[no-any-return]


class OnDisk:
    """A tensor in a file, which goes when nobody needs it any more."""

    def __init__(self, tensor: Tensor, path: Path) -> None:
        self.path, self.device = path, tensor.device
        torch.save(tensor.detach().cpu().clone(), path)  # a view would take its whole storage along

    def read(self) -> Tensor:
        found: Tensor = torch.load(self.path, weights_only=True)
        return found.to(self.device)

    def __del__(self) -> None:
        self.path.unlink(missing_ok=True)
