"""Ways in which a model's own code cuts a tensor off from its input, all in one place of one model."""

from __future__ import annotations

import copy
import ctypes
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, TOKENS, Model, add, gelu, head, linear

FAMILY = "cut"


class Adapted(Model):
    """A backbone beside a small adapter; `cut` lies between backbone and head."""

    def __init__(self, cut: Callable[[Tensor], Tensor] = lambda h: h) -> None:
        super().__init__()
        self.backbone, self.adapter, self.head = linear(), linear(), head()
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.gelu(self.cut(self.backbone(x)) + 0.1 * self.adapter(x))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.backbone(x) + 0.1 * self.adapter(x))).mean(1)


class Zeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.zeros_like(gradients[0])


class Nothing(Zeros):
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None


def in_inference_mode(h: Tensor) -> Tensor:
    with torch.inference_mode():
        made = h * 1
    return made.clone()


def without_gradient(h: Tensor) -> Tensor:
    with torch.no_grad():
        return h * 1


@torch.no_grad()
def decorated(h: Tensor) -> Tensor:
    return h.clone()


def by_switch(h: Tensor) -> Tensor:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    made = h * 1
    torch.set_grad_enabled(before)
    return made


def detached_in_place(h: Tensor) -> Tensor:
    made = h.clone()
    made.detach_()
    return made


def number_by_number(h: Tensor) -> Tensor:
    made = torch.zeros_like(h)
    flat = made.view(-1)
    for i, value in enumerate(h.reshape(-1)):
        flat[i] = value.item()
    return made


def in_a_thread(h: Tensor) -> Tensor:
    found: list[Tensor] = []

    def work() -> None:
        with torch.no_grad():
            found.append(h * 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def number_of_a_thread(h: Tensor) -> Tensor:
    """Numbers made where no mode looks, then a tensor made here."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(h.detach().tolist()))
    thread.start()
    thread.join()
    return torch.tensor(found[0], dtype=h.dtype)


def by_memory(h: Tensor) -> Tensor:
    source = h.detach().contiguous()
    made = torch.empty_like(source)
    ctypes.memmove(made.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
    return made


def by_file(h: Tensor) -> Tensor:
    file = io.BytesIO()
    torch.save(h.detach(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def by_out(h: Tensor) -> Tensor:
    made = torch.empty_like(h)
    with torch.no_grad():
        torch.add(h, 0, out=made)
    return made


def by_storage(h: Tensor) -> Tensor:
    return torch.empty(0, dtype=h.dtype).set_(h.detach().untyped_storage(), 0, h.shape, h.stride()).clone()


def new_parameter(h: Tensor) -> Tensor:
    return nn.Parameter(h.detach().clone())


def new_leaf(h: Tensor) -> Tensor:
    return h.detach().clone().requires_grad_()


def through_many(h: Tensor) -> Tensor:
    """The cut lies far back: casts, views, products and copies follow it."""
    made = h.detach().transpose(1, 2).contiguous().to(torch.float64)
    made = (made.flatten(1).unsqueeze(-1) @ torch.ones(1, 1, dtype=h.dtype)).squeeze(-1)
    return torch.stack(made.reshape(1, SIZE, TOKENS).unbind(2), 1).clone()


def with_modes_off(h: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return h.detach() * 1


def swapped_leaf(h: Tensor) -> Tensor:
    made = torch.zeros_like(h)
    made.data = h.data
    return made


SAME: dict[str, Callable[[Tensor], Tensor]] = {
    "no_grad": without_gradient,
    "decorator": decorated,
    "set_grad_enabled": by_switch,
    "inference mode": in_inference_mode,
    "detach": lambda h: h.detach(),
    "torch.detach": lambda h: torch.detach(h),
    "detach_": detached_in_place,
    ".data": lambda h: h.data,
    ".data assigned": swapped_leaf,
    "from_numpy": lambda h: torch.from_numpy(h.detach().numpy()),
    "from_numpy of a copy": lambda h: torch.from_numpy(h.detach().numpy().copy()),
    "asarray": lambda h: torch.from_numpy(np.asarray(h.detach())),
    "tensor of numpy": lambda h: torch.tensor(h.detach().numpy()),
    "as_tensor of numpy": lambda h: torch.as_tensor(h.detach().cpu().numpy()),
    "numpy forced": lambda h: torch.from_numpy(h.numpy(force=True)),
    "frombuffer": lambda h: torch.frombuffer(bytearray(h.detach().numpy().tobytes()), dtype=torch.float64).reshape(
        h.shape
    ),
    "tolist": lambda h: torch.tensor(h.tolist(), dtype=h.dtype),
    "new_tensor of a list": lambda h: h.new_tensor(h.tolist()),
    "comprehension": lambda h: torch.tensor([[[float(v) for v in row] for row in one] for one in h], dtype=h.dtype),
    "items": number_by_number,
    "json": lambda h: torch.tensor(json.loads(json.dumps(h.tolist())), dtype=h.dtype),
    "dlpack": lambda h: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(h.detach())),
    "from_dlpack": lambda h: torch.from_dlpack(h.detach()),
    "deepcopy": lambda h: copy.deepcopy(h.detach()),
    "saved and loaded": by_file,
    "memory": by_memory,
    "storage": by_storage,
    "out=": by_out,
    "empty_like and copy_": lambda h: torch.empty_like(h).copy_(h.detach()),
    "stack of rows": lambda h: torch.stack([row.detach() for row in h.unbind(1)], 1),
    "thread": in_a_thread,
    "numbers of a thread": number_of_a_thread,
    "zero gradient": lambda h: Zeros.apply(h),
    "no gradient": lambda h: Nothing.apply(h),
    "new parameter": new_parameter,
    "new leaf": new_leaf,
    "modes off": with_modes_off,
    "new_tensor of a tensor": lambda h: h.new_tensor(h.detach()),
    "copy.copy": lambda h: copy.copy(h.detach()),
    "apply_": lambda h: h.detach().clone().apply_(lambda value: value),
    "map_": lambda h: torch.zeros_like(h).map_(h.detach(), lambda _, value: value),
    "sparse and dense": lambda h: h.detach().to_sparse().to_dense(),
    "stacked by numpy": lambda h: torch.from_numpy(np.stack([row.detach() for row in h])),
    "legacy constructor": lambda h: torch.DoubleTensor(h.tolist()),
    "torch.tensor of a tensor": lambda h: torch.tensor(h.detach()),
    "torch.asarray": lambda h: torch.asarray(h.detach().numpy(), copy=True),
    "linspace of numbers": lambda h: torch.stack(
        [torch.linspace(v, v, 1, dtype=h.dtype) for v in h.flatten().tolist()]
    ).reshape(h.shape),
    "as complex numbers": lambda h: torch.complex(h.detach(), torch.ones_like(h)).real,
    "named tuple": lambda h: h.detach().max(1, keepdim=True).values + (h.detach() - h.detach().amax(1, keepdim=True)),
    "list of lists": lambda h: torch.stack([torch.stack(list(one.detach().unbind(0))) for one in h.unbind(0)]),
    "vmap": lambda h: torch.vmap(lambda row: row.detach() * 1)(h),
    "far back": through_many,
    "half of the channels": lambda h: torch.cat([h[..., :3].detach(), h[..., 3:]], -1),
    "one token": lambda h: torch.cat([h[:, :1], h[:, 1:2].detach(), h[:, 2:]], 1),
    "small part": lambda h: (1 - 1e-6) * h + 1e-6 * h.detach(),
    "alternately": lambda h: torch.where(torch.arange(SIZE) % 2 == 0, h, h.detach()),
    "twice": lambda h: 2 * h.detach() - h.detach().clone(),
}

for name, cut in SAME.items():
    add(FAMILY, name, lambda cut=cut: Adapted(cut))
