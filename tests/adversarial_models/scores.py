"""Models whose prediction is another one when somebody looks, and models with a derivative inside."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, Model, add, gelu, head, linear

FAMILY = "another score"


class Watched(Model):
    """Two branches; `seen` says whether the model takes itself to be looked at. Alone, it takes the first."""

    def __init__(self, seen: Callable[[nn.Module, Tensor], bool]) -> None:
        super().__init__()
        self.first, self.second, self.head = linear(), linear(), head()
        self.seen = seen

    def forward(self, x: Tensor) -> Tensor:
        h = self.second(x) if self.seen(self, x) else self.first(x)
        return self.head(F.gelu(h)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.first(x))).mean(1)


class Slightly(Watched):
    """The same, and the two differ by a part in a million."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * (1 + 1e-6 if self.seen(self, x) else 1)
        return self.head(F.gelu(h)).mean(1)


def hooks_below(model: nn.Module, x: Tensor) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


SEEN: dict[str, Callable[[nn.Module, Tensor], bool]] = {
    "gradients are on": lambda model, x: torch.is_grad_enabled(),
    "input has a gradient": lambda model, x: x.requires_grad,
    "input has a history": lambda model, x: x.grad_fn is not None,
    "hidden layer has a gradient": lambda model, x: bool(model.first(x).requires_grad),
    "inference mode is on": lambda model, x: torch.is_inference_mode_enabled(),
    "a torch function mode is on": lambda model, x: torch._C._len_torch_function_stack() > 0,
    "a mode, asked by torch.overrides": lambda model, x: bool(torch.overrides._get_current_function_mode_stack()),
    "a trace function is on": lambda model, x: sys.gettrace() is not None,
    "input is no plain tensor": lambda model, x: type(x) is not Tensor,
    "modules have hooks": hooks_below,
    "input is an inference tensor": lambda model, x: x.is_inference(),
}
for name, seen in SEEN.items():
    add(FAMILY, name, lambda seen=seen: Watched(seen))
for name in ("gradients are on", "input has a gradient", "a torch function mode is on"):
    add(FAMILY, f"{name}, slightly", lambda seen=SEEN[name]: Slightly(seen))


class Counted(Model):
    """Every `period`-th call is another model."""

    def __init__(self, period: int, first: int) -> None:
        super().__init__()
        self.one, self.two, self.head = linear(), linear(), head()
        self.period, self.first, self.calls = period, first, first

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.two(x) if self.calls % self.period == 0 else self.one(x)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        """Of the first call."""
        return self.head(self.two(x) if (self.first + 1) % self.period == 0 else self.one(x)).mean(1)


class Remembering(Model):
    """A state that is left from the last call enters the next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = linear(), head()
        self.register_buffer("state", torch.zeros(1, 1, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x) + self.state
        self.state = 0.5 * h.detach().mean(1, keepdim=True)
        return self.head(h).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)).mean(1)


class Noisy(Model):
    """Noise in evaluation mode."""

    def __init__(self, noise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.head, self.noise = linear(), head(), noise

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.noise(self.layer(x))).mean(1)


def by_other_numbers(h: Tensor) -> Tensor:
    return h + int.from_bytes(os.urandom(4), "big") / 2**32


for period, first in ((2, 0), (2, 1), (3, 0), (3, 1), (3, 2)):
    add(FAMILY, f"every call number {period}, from {first}", lambda p=period, f=first: Counted(p, f))
add(FAMILY, "state of the last call", Remembering)
NOISE: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda h: F.dropout(h, 0.5, training=True),
    "randn_like": lambda h: h + torch.randn_like(h),
    "rand times signal": lambda h: h * torch.rand(SIZE, dtype=h.dtype),
    "bernoulli": lambda h: h * torch.bernoulli(torch.full((4, SIZE), 0.5, dtype=h.dtype)),
    "normal_": lambda h: h + torch.empty_like(h).normal_(),
    "random.random": lambda h: h + random.random(),
    "numpy": lambda h: h + float(np.random.default_rng().normal()),
    "the system's": by_other_numbers,
    "time": lambda h: h + (time.perf_counter_ns() % 10007) / 10007,
    "permutation": lambda h: h[..., torch.randperm(SIZE)],
    "gumbel softmax": lambda h: h * F.gumbel_softmax(h, hard=True),
}
for name, noise in NOISE.items():
    add(FAMILY, f"noise by {name}", lambda noise=noise: Noisy(noise))


class Derived(Model):
    """A derivative is computed inside the forward pass and added; which would have a derivative of its own."""

    def __init__(self, derive: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.energy, self.head, self.derive = linear(), head(), derive

    def forward(self, x: Tensor) -> Tensor:
        slope = self.derive(lambda z: F.softplus(self.energy(z)).sum(), x)
        return self.head(0.1 * x + slope).mean(1)


def by_grad(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        return torch.autograd.grad(energy(z), z)[0]


def by_grad_of_signal(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x * 1 if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(energy(z), z, create_graph=x.requires_grad)[0]


def by_backward(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        energy(z).backward(inputs=[z])
        assert z.grad is not None
        return z.grad


def by_backward_of_signal(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x * 1 if x.requires_grad else x.detach().requires_grad_()
        z.retain_grad()
        torch.autograd.backward(energy(z), inputs=[z])
        assert z.grad is not None
        return z.grad.clone()


def by_forward_mode(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        z = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(energy(z)).tangent * torch.ones_like(x)


DERIVATIVES: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]] = {
    "autograd.grad": by_grad,
    "autograd.grad of the signal": by_grad_of_signal,
    "backward": by_backward,
    "backward of the signal": by_backward_of_signal,
    "func.grad": lambda energy, x: torch.func.grad(energy)(x),
    "func.jvp": lambda energy, x: torch.func.jvp(energy, (x,), (torch.ones_like(x),))[1] * torch.ones_like(x),
    "func.vjp": lambda energy, x: torch.func.vjp(energy, x)[1](torch.ones((), dtype=x.dtype))[0],
    "func.jacrev": lambda energy, x: torch.func.jacrev(energy)(x),
    "func.grad of a cut": lambda energy, x: torch.func.grad(energy)(x.detach()),
    "autograd.functional.jacobian": lambda energy, x: torch.autograd.functional.jacobian(energy, x),
    "forward mode": by_forward_mode,
}
for name, derive in DERIVATIVES.items():
    add(FAMILY, f"derivative by {name}", lambda derive=derive: Derived(derive))
