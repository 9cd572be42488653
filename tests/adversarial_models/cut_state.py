"""Cuts that lie in what a module keeps: hooks, buffers, attributes, parameters, compiled functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, TOKENS, Model, add, gelu, head, linear
from .cut_ways import FAMILY, Adapted


class Hooked(Adapted):
    """The model's code is clean; a hook on its backbone is not."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        if before:
            self.backbone.register_forward_pre_hook(lambda module, args: tuple(a.detach() for a in args))
        else:
            self.backbone.register_forward_hook(lambda module, args, output: output.detach())

    def reference(self, x: Tensor) -> Tensor:
        h = F.linear(x, self.backbone.weight, self.backbone.bias)
        return self.head(gelu(h + 0.1 * self.adapter(x))).mean(1)


class Buffered(Adapted):
    """A buffer that is written while the model runs, and then read."""

    def __init__(self, write: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(lambda h: write(self.memory, h))
        self.register_buffer("memory", torch.zeros(1, TOKENS, SIZE))


def copied(memory: Tensor, h: Tensor) -> Tensor:
    memory.copy_(h.detach())
    return memory


def copied_plainly(memory: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        memory.copy_(h)
    return memory


def into_a_view(memory: Tensor, h: Tensor) -> Tensor:
    memory[:, 1:].copy_(h.detach()[:, 1:])
    memory.view(-1)[:SIZE] = h.detach()[0, 0]
    return memory


def by_index(memory: Tensor, h: Tensor) -> Tensor:
    for i in range(TOKENS):
        memory[:, i] = h[:, i].detach()
    return memory


def by_data(memory: Tensor, h: Tensor) -> Tensor:
    memory.data = h.detach().clone()
    return memory


def by_adding(memory: Tensor, h: Tensor) -> Tensor:
    memory.zero_()
    memory.add_(h.detach())
    return memory


def by_numpy(memory: Tensor, h: Tensor) -> Tensor:
    memory.numpy()[...] = h.detach().numpy()
    return memory


class Memoised(Adapted):
    """What the backbone gave for the same input before is looked up, and nothing computes it again."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[bytes, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = x.detach().numpy().tobytes()
        if key not in self.known:
            self.known[key] = self.backbone(x).detach()
        return self.head(F.gelu(self.known[key] + 0.1 * self.adapter(x))).mean(1)


class NewBias(Model):
    """A layer is given a new parameter, made from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.last, self.head = linear(), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        self.last.bias = nn.Parameter(self.backbone(x).detach().mean((0, 1)))
        return self.head(self.last(x)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, self.last.weight) + self.backbone(x).mean((0, 1))).mean(1)


class GradientHook(Adapted):
    """A hook on a tensor gives every element the same share of the relevance: in all as much as there was."""

    def __init__(self, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(self.hooked)
        self.change = change

    def hooked(self, h: Tensor) -> Tensor:
        if h.requires_grad and h.grad_fn is not None:
            value = h.detach()
            h.register_hook(lambda gradient: self.change(gradient, value))
        return h


def evenly(gradient: Tensor, value: Tensor) -> Tensor:
    return torch.ones_like(value) * (gradient * value).sum() / value.sum()


class Cached(Adapted):
    """A first part leaves a tensor in an attribute, a second part takes it from there."""

    def __init__(self) -> None:
        super().__init__(self.through_attribute)

    def through_attribute(self, h: Tensor) -> Tensor:
        self.kept = h.detach()
        return self.kept


class BiasWritten(Adapted):
    """What depends on the input is written into a parameter, which then looks like any other."""

    def __init__(self) -> None:
        super().__init__()
        self.last = linear()

    def forward(self, x: Tensor) -> Tensor:
        self.last.bias.data.copy_(self.backbone(x).detach().mean((0, 1)))
        return self.head(self.last(self.adapter(x))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        bias = self.backbone(x).mean((0, 1))
        return self.head(F.linear(self.adapter(x), self.last.weight) + bias).mean(1)


class Called(BiasWritten):
    """The same by torch.func.functional_call."""

    def forward(self, x: Tensor) -> Tensor:
        bias = self.backbone(x).detach().mean((0, 1))
        return self.head(torch.func.functional_call(self.last, {"bias": bias}, (self.adapter(x),))).mean(1)


class Scripted(Adapted):
    """The cut lies in a compiled function, of which nobody sees an operation."""

    def __init__(self) -> None:
        super().__init__(script())


def script() -> Callable[[Tensor], Tensor]:
    compiled: Callable[[Tensor], Tensor] = torch.jit.trace(lambda h: h.detach() * 1, torch.zeros(1, TOKENS, SIZE))
    return compiled


class Silent(Model):
    """What is cut off adds nothing to the score in all, and much at each input: its line is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter, self.head = linear(), head()
        self.sign = nn.Buffer(torch.tensor([1.0, -1.0, 2.0, -2.0]).reshape(1, TOKENS, 1))

    def other(self, h: Tensor) -> Tensor:
        """Values of the input with weights that make their sum zero."""
        return self.sign * h.prod(1, keepdim=True) / h

    def forward(self, x: Tensor) -> Tensor:
        weights = self.other(x.detach())  # sum over tokens of weight times x is sum(sign) * prod(x) = 0
        return self.head(self.adapter(x) + weights.detach() * x.detach()).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.adapter(x) + self.other(x).detach() * x).mean(1)


class Opposed(Model):
    """The same cut enters twice, with opposite signs and an activation between: its lines cancel in part."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        h = self.backbone(x).detach()
        return self.head(F.relu(x + h + 50) - h).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        h = self.backbone(x)
        return self.head(x + h + 50 - h).mean(1)


add(FAMILY, "forward hook", lambda: Hooked(before=False))
add(FAMILY, "forward pre-hook", lambda: Hooked(before=True))
for write in (copied, copied_plainly, into_a_view, by_index, by_data, by_adding, by_numpy):
    add(FAMILY, f"buffer {write.__name__.replace('_', ' ')}", lambda write=write: Buffered(write))
add(FAMILY, "cached attribute", Cached)
add(FAMILY, "memoised", Memoised)
add(FAMILY, "new parameter for a layer", NewBias)
add(FAMILY, "gradient hook that shares evenly", lambda: GradientHook(evenly))
add(FAMILY, "gradient hook that gives nothing", lambda: GradientHook(lambda gradient, _: torch.zeros_like(gradient)))
add(FAMILY, "parameter written", BiasWritten)
add(FAMILY, "functional_call", Called)
add(FAMILY, "traced function", Scripted)
add(FAMILY, "sums to nothing", Silent)
add(FAMILY, "opposite signs", Opposed)
