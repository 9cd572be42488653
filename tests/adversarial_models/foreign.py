"""Autograd functions of somebody else's, in modules without parameters: only some act on each element alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, TOKENS, Model, add, head, held, linear

FAMILY = "foreign"


class Foreign(nn.Module):
    """`function` behind an autograd function, whose backward pass is the true gradient."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()

        class Hidden(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                ctx.save_for_backward(x)
                return function(x.detach()).clone()

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                with torch.enable_grad():
                    leaf = ctx.saved_tensors[0].detach().requires_grad_()
                    return torch.autograd.grad(function(leaf), leaf, gradients[0])[0]

        self.hidden = Hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden.apply(x)


class Wrapped(Model):
    """Linear, the function, linear. `right` is its linear map, if it has one that the rules could mean."""

    def __init__(self, function: nn.Module, right: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.before, self.head, self.function = linear(), head(), function
        self.right = right
        self.reference = None if right is None else self.linear_map

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(self.before(x))).mean(1)

    def linear_map(self, x: Tensor) -> Tensor:
        assert self.right is not None
        return self.head(self.right(self.before(x))).mean(1)


def pooled(x: Tensor) -> Tensor:
    return F.max_pool1d(x, 3, 1, 1)


def on_small_values(x: Tensor) -> Tensor:
    return torch.where(x.abs().amax() < 0.1, x.tanh(), x.tanh() - 0.3 * x.tanh().mean())


def even_scale(x: Tensor) -> Tensor:
    """A bias for every place, the same from both ends."""
    shift = torch.arange(TOKENS * SIZE, dtype=x.dtype)
    shift = torch.minimum(shift, shift.flip(0))
    return torch.tanh(x + 0.1 * shift[: x.numel()].reshape(x.shape))


HOMOGENEOUS: dict[str, Callable[[Tensor], Tensor]] = {  # gradient times input is their value: one right map
    "max-pool": pooled,
    "minus the largest": lambda x: x - x.amax(-1, keepdim=True),
    "minus the largest of all": lambda x: x - x.max(),
    "minus the mean": lambda x: x - x.mean(-1, keepdim=True),
    "minus the mean of all": lambda x: x - x.mean(),
    "sorted": lambda x: x.sort(-1).values,
    "sorted both ways": lambda x: x.sort(-1).values + x.sort(-1, descending=True).values,
    "cumulated": lambda x: x.cumsum(-1),
    "plus its mirror": lambda x: x + x.flatten().flip(0).reshape(x.shape),
    "size of its mirror": lambda x: x.flatten().flip(0).reshape(x.shape).abs() + x,
    "smoothed evenly": lambda x: F.avg_pool1d(x, 3, 1, 1),
    "times its own sign of the sum": lambda x: x * x.sum().sign(),
    "median taken away": lambda x: x - x.median(),
    "size of all": lambda x: x.abs().mean() + 0 * x,
}
MIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax of all": lambda x: x.flatten().softmax(0).reshape(x.shape),
    "by the first element": lambda x: x * x.flatten()[0],
    "by both ends": lambda x: x * (x.flatten()[0] + x.flatten()[-1]),
    "over the norm": lambda x: x / x.norm(),
    "over the norm of a row": lambda x: x / x.norm(dim=-1, keepdim=True),
    "gated by the mean": lambda x: x * torch.sigmoid(x.mean()),
    "gated by the mirror": lambda x: x * torch.sigmoid(x.flatten().flip(0).reshape(x.shape)),
    "tanh, and the mean where values are large": on_small_values,
    "layer norm": lambda x: F.layer_norm(x, (SIZE,)),
    "normalised by the largest": lambda x: x / x.abs().max(),
    "other beyond sixteen elements": lambda x: x.tanh() if x.numel() < 16 else x.tanh() + 0.1 * x.sum(),
    "product with the largest": lambda x: x * x.abs().max(),
}
ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "snake": lambda x: x + torch.sin(x) ** 2,
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "softplus by hand": lambda x: torch.log1p(torch.exp(x)),
    "squared relu": lambda x: torch.relu(x) ** 2,
    "steep tanh": lambda x: torch.tanh(5 * x),
}

for name, function in HOMOGENEOUS.items():
    add(FAMILY, name, lambda f=function: Wrapped(Foreign(f), f))
for name, function in MIXED.items():
    add(FAMILY, name, lambda f=function: Wrapped(Foreign(f), None))
for name, function in ELEMENTWISE.items():
    add("legitimate", f"foreign {name}", lambda f=function: Wrapped(Foreign(f), lambda x: held(f, x)), closes=True)


def by_place(x: Tensor) -> Tensor:
    zero = even_scale(torch.zeros_like(x))
    return zero + x * ((even_scale(x) - zero) / x).detach()


add(FAMILY, "a bias for every place", lambda: Wrapped(Foreign(even_scale), by_place))


class Spread(torch.autograd.Function):
    """x W^T, whose backward pass gives every input the same share: in all as much as there was."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        y = x @ weight.T
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, y = ctx.saved_tensors
        return torch.full_like(x, 1.0) * (gradients[0] * y).sum() / x.sum(), None


class Packed(nn.Module):
    """A linear layer behind an autograd function, as packed weights are."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(SIZE, SIZE)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function.apply(x, self.weight)


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] @ ctx.saved_tensors[0], None


class Folded(Plain):
    """A linear layer with a relu in it that only large values meet; the backward pass says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return (x + F.relu(x.abs() - 1.5) * x.sign()) @ weight.T


class Lying(Plain):
    """Its backward pass takes the rows in another order."""

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (gradients[0] @ ctx.saved_tensors[0]).flip(-1), None


class PackedModel(Model):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.head = Packed(function), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(x @ self.layer.weight.T).mean(1)


class FoldedModel(PackedModel):
    reference = None


add("legitimate", "foreign linear layer", lambda: PackedModel(Plain), closes=True)
add(FAMILY, "linear with an even share for all", lambda: PackedModel(Spread))
add(FAMILY, "linear with a mirrored gradient", lambda: PackedModel(Lying))
add(FAMILY, "linear with a relu for large values", lambda: FoldedModel(Folded))


class Unnamed(Model):
    """The autograd function stands in the model's own forward pass, in no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.head = linear(), head()
        self.hidden = Foreign(lambda x: x - x.amax(-1, keepdim=True)).hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden.apply(self.before(x))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        h = self.before(x)
        return self.head(h - h.amax(-1, keepdim=True)).mean(1)


add(FAMILY, "in no module", Unnamed)
