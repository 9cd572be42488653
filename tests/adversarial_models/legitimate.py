"""Honest models that look suspicious. Their ledger must close: an alarm here would teach people not to listen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .cases import CLASSES, SIZE, TOKENS, Model, add, attended, data, gelu, head, linear, normed

FAMILY = "legitimate"
EXPERTS = 3
MASK = torch.tensor([[1, 1, 1, 0]])


class Simple(Model):
    """Linear, `operation`, linear, beside the linear map that it is."""

    def __init__(self, operation: Callable[[Tensor], Tensor], right: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.before, self.head = linear(), head()
        self.operation, self.right = operation, right

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.operation(self.before(x))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.right(self.before(x))).mean(1)


def checked(h: Tensor) -> Tensor:
    if torch.isinf(h).any() or torch.isnan(h).any():
        h = torch.clamp(h, min=-1e4, max=1e4)
    return h


def checked_by_number(h: Tensor) -> Tensor:
    if h.abs().max().item() > 1e6:
        raise ValueError("too large")
    return h


def hard_sigmoid(h: Tensor) -> Tensor:
    return torch.where(h > 3, 1.0, torch.where(h < -3, 0.0, h / 6 + 0.5))


def hard_swish(h: Tensor) -> Tensor:
    return h * hard_sigmoid(h)


def causal(h: Tensor) -> Tensor:
    size = h.shape[1]
    mask = torch.full((size, size), -math.inf, dtype=h.dtype).triu(1)
    return (h @ h.transpose(1, 2) + mask).softmax(-1) @ h


def causal_map(h: Tensor) -> Tensor:
    mask = torch.full((TOKENS, TOKENS), -math.inf, dtype=h.dtype).triu(1)
    return (h @ h.transpose(1, 2) + mask).softmax(-1).detach() @ h


def rotated(h: Tensor) -> Tensor:
    with torch.no_grad():
        angle = torch.arange(h.shape[1], dtype=h.dtype)[:, None] * torch.tensor([1.0, 0.1, 0.01], dtype=h.dtype)
        cos, sin = angle.cos(), angle.sin()
    one, two = h.chunk(2, -1)
    return torch.cat([one * cos - two * sin, one * sin + two * cos], -1)


def in_half(h: Tensor) -> Tensor:
    """The largest is taken away before a softmax, as everybody does; without a gradient, as some do."""
    scores = h @ h.transpose(1, 2)
    return (scores - scores.detach().amax(-1, keepdim=True)).softmax(-1) @ h


def biased_scores(h: Tensor) -> Tensor:
    """A bias of the scores that is cut off: it weighs signals, as the scores do."""
    scores = h @ h.transpose(1, 2)
    return (scores + scores.detach().tanh()).softmax(-1) @ h


def biased_map(h: Tensor) -> Tensor:
    scores = h @ h.transpose(1, 2)
    return (scores + scores.tanh()).softmax(-1).detach() @ h


def attention_map(h: Tensor) -> Tensor:
    return (h @ h.transpose(1, 2)).softmax(-1).detach() @ h


def accumulated(h: Tensor) -> Tensor:
    total = torch.zeros_like(h)
    for i in range(h.shape[1]):
        total[:, i] = h[:, i] * 2
    return total


def counted_rows(h: Tensor) -> Tensor:
    total = h.new_zeros(1, SIZE)
    for row in h.unbind(1):
        total = total + row
    return (total / h.new_tensor(float(h.shape[1])))[:, None].expand_as(h)


def over_threshold(h: Tensor) -> Tensor:
    """Tokens that pass are averaged; how many they are depends on the input, and divides."""
    passes = (h[..., :1] > -0.1).to(h.dtype)
    return (h * passes).sum(1, keepdim=True) / passes.sum(1, keepdim=True)


def root_mean_square(h: Tensor) -> Tensor:
    with torch.no_grad():
        scale = h.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
    return h * scale


def rms_map(h: Tensor) -> Tensor:
    return h * h.square().mean(-1, keepdim=True).add(1e-6).rsqrt().detach()


def refusing(h: Tensor) -> Tensor:
    """Takes no input that is much larger than this one."""
    if h.abs().max().item() > 3:
        raise ValueError("values are out of range")
    return h


def logged(h: Tensor) -> Tensor:
    LOG[:] = [h.norm().item(), float(h.detach().mean()), *h.detach().flatten().tolist()]
    return h


LOG: list[float] = []


def fixed_noise(h: Tensor) -> Tensor:
    return h + torch.randn(SIZE, generator=torch.Generator().manual_seed(0), dtype=h.dtype)


OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "nothing": (lambda h: h, lambda h: h),
    "NaN check": (checked, lambda h: h),
    "check by a number": (checked_by_number, lambda h: h),
    "refuses what is out of range": (refusing, lambda h: h),
    "numbers for a log": (logged, lambda h: h),
    "noise of a fixed seed": (fixed_noise, fixed_noise),
    "relu by where": (lambda h: torch.where(h > 0, h, 0.0), F.relu),
    "relu by where and zeros_like": (lambda h: torch.where(h > 0, h, torch.zeros_like(h)), F.relu),
    "relu by a mask": (lambda h: h * (h > 0), F.relu),
    "relu by a mask of floats": (lambda h: h * (h > 0).to(h.dtype), F.relu),
    "leaky relu by where": (lambda h: torch.where(h > 0, h, 0.1 * h), lambda h: F.leaky_relu(h, 0.1)),
    "hard sigmoid by where": (hard_sigmoid, hard_sigmoid),
    "zeros_like": (lambda h: h + torch.zeros_like(h), lambda h: h),
    "ones_like": (lambda h: h + torch.ones_like(h), lambda h: h + 1),
    "new_zeros": (lambda h: torch.cat([h.new_zeros(1, 1, SIZE), h], 1), lambda h: F.pad(h, (0, 0, 1, 0))),
    "full_like": (lambda h: h + torch.full_like(h, 0.3), lambda h: h + 0.3),
    "type_as": (lambda h: h + torch.ones(SIZE).type_as(h), lambda h: h + 1),
    "expand_as": (lambda h: h + torch.ones(1, dtype=h.dtype).expand_as(h), lambda h: h + 1),
    "number of tokens": (lambda h: h / h.shape[1] + h.numel() / 100, lambda h: h / TOKENS + TOKENS * SIZE / 100),
    "causal mask": (causal, causal_map),
    "rotary table": (rotated, rotated),
    "softmax without its largest": (in_half, attention_map),
    "cut bias of scores": (biased_scores, biased_map),
    "dropout in evaluation": (lambda h: F.dropout(h, 0.5, training=False), lambda h: h),
    "rows written into zeros": (accumulated, lambda h: 2 * h),
    "sum in a loop": (counted_rows, lambda h: h.mean(1, keepdim=True).expand_as(h)),
    "divisor without gradient": (root_mean_square, rms_map),
    "divided by its detached size": (
        lambda h: h / h.detach().norm(dim=-1, keepdim=True),
        lambda h: h / h.detach().norm(dim=-1, keepdim=True),
    ),
    "divided by a number": (lambda h: h / h.abs().max().item(), lambda h: h / h.abs().max().detach()),
    "detached gate": (
        lambda h: h * torch.sigmoid(h.roll(1, -1).detach()),
        lambda h: h * torch.sigmoid(h.roll(1, -1)).detach(),
    ),
    "largest token by index": (
        lambda h: h[:, h.norm(dim=-1).argmax(-1)],
        lambda h: h[:, h.norm(dim=-1).argmax(-1)],
    ),
    "topk tokens": (
        lambda h: h.gather(1, h[..., :1].topk(2, 1).indices.expand(-1, -1, SIZE)),
        lambda h: h.gather(1, h[..., :1].topk(2, 1).indices.expand(-1, -1, SIZE)),
    ),
    "tokens by a threshold": (
        lambda h: h[h[..., 0] > h[..., 0].median()][None],
        lambda h: h[h[..., 0] > h[..., 0].median()][None],
    ),
    "mean over a threshold": (over_threshold, over_threshold),
    "hard attention": (
        lambda h: F.one_hot((h @ h.transpose(1, 2)).argmax(-1), TOKENS).to(h.dtype) @ h,
        lambda h: h[0, (h @ h.transpose(1, 2)).argmax(-1)[0]][None],
    ),
    "sorted": (lambda h: h.sort(1).values, lambda h: h.sort(1).values),
    "checkpoint": (
        lambda h: checkpoint(lambda h: F.gelu(h) + h, h, use_reentrant=False),
        lambda h: gelu(h) + h,
    ),
}
for name, (operation, right) in OPERATIONS.items():
    add(FAMILY, name, lambda o=operation, r=right: Simple(o, r), closes=True)


class Experts(Model):
    """A mixture of experts; `mix` says how tokens come to them."""

    def __init__(self, mix: str, bias: bool = True) -> None:
        super().__init__()
        self.router, self.head, self.mix = nn.Linear(SIZE, EXPERTS), head(), mix
        self.experts = nn.ModuleList([nn.Linear(SIZE, SIZE, bias=bias) for _ in range(EXPERTS)])

    def stacked(self) -> Tensor:
        return torch.stack([e.weight for e in self.experts])

    def forward(self, x: Tensor) -> Tensor:
        weights, index = self.router(x).softmax(-1).topk(2, -1)
        return self.head(getattr(self, f"by_{self.mix}")(x, weights, index)).mean(1)

    def by_gather(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        chosen = self.stacked()[index]  # [1, tokens, 2, size, size]
        return (torch.einsum("btkoi,bti->btko", chosen, x) * weights.unsqueeze(-1)).sum(-2)

    def by_loop(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        flat, result = x[0], torch.zeros_like(x[0])
        for number, expert in enumerate(self.experts):
            token, slot = (index[0] == number).nonzero(as_tuple=True)
            if len(token) == 0:
                continue
            result.index_add_(0, token, expert(flat[token]) * weights[0, token, slot, None])
        return result[None]

    def by_one_hot(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        combine = (F.one_hot(index, EXPERTS).to(x.dtype) * weights.unsqueeze(-1)).sum(-2)
        return torch.einsum("bte,eoi,bti->bto", combine, self.stacked(), x)

    def by_dense(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        dense = torch.zeros(1, TOKENS, EXPERTS, dtype=x.dtype).scatter(-1, index, weights)
        return sum(dense[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))

    def by_argmax(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        return torch.einsum("btoi,bti->bto", self.stacked()[index[..., 0]], x)

    def reference(self, x: Tensor) -> Tensor:
        weights, index = (part.detach() for part in self.router(x).softmax(-1).topk(2, -1))
        if self.mix == "argmax":
            weights, index = torch.ones_like(weights[..., :1]), index[..., :1]
        every = torch.stack([expert(x) for expert in self.experts], -2)
        picked = every.gather(-2, index.unsqueeze(-1).expand(*index.shape, SIZE))
        return self.head((picked * weights.unsqueeze(-1)).sum(-2)).mean(1)


for mix, bias in (
    ("gather", False),
    ("loop", True),
    ("loop", False),
    ("one_hot", False),
    ("dense", True),
    ("argmax", False),
):
    named = f"experts by {mix}{' with biases' if bias else ''}"
    add(FAMILY, named, lambda mix=mix, bias=bias: Experts(mix, bias), closes=True)


class GatheredBiases(Experts):
    """The chosen expert's bias is gathered beside its weights."""

    def __init__(self) -> None:
        super().__init__("gather", bias=True)

    def by_gather(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        made = torch.einsum("btkoi,bti->btko", self.stacked()[index], x)
        made = made + torch.stack([e.bias for e in self.experts])[index]
        return (made * weights.unsqueeze(-1)).sum(-2)


add("judged either way", "experts with gathered biases", GatheredBiases)


class Masked(Model):
    """Padding by a mask: positions counted from it, scores filled by it, a mean over what is real."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.query, self.key, self.head = linear(), linear(), linear(), head()
        self.positions = nn.Embedding(TOKENS + 1, SIZE)

    def placed(self, mask: Tensor) -> Tensor:
        return self.positions(mask.cumsum(1) * mask)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = x + self.placed(mask)
        scores = self.query(h) @ self.key(h).transpose(1, 2) / SIZE**0.5
        weights = scores.masked_fill(mask[:, None] == 0, torch.finfo(x.dtype).min).softmax(-1)
        out = (weights @ self.value(h)) * mask.unsqueeze(-1)
        return self.head(out.sum(1) / mask.sum(1, keepdim=True))

    def reference(self, x: Tensor) -> Tensor:
        h = (x + self.placed(MASK))[:, :3]
        return self.head(attended(self.query(h), self.key(h), self.value(h)).mean(1))


class Block(Model):
    """A Transformer's block as people write it."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.query, self.key, self.value, self.out = linear(), linear(), linear(), linear()
        self.up, self.down, self.head = nn.Linear(SIZE, 8), nn.Linear(8, SIZE), head()
        self.dropout, self.checkpointed = nn.Dropout(0.1), checkpointed

    def forward(self, x: Tensor) -> Tensor:
        mixed: Any = checkpoint(self.mix, x, use_reentrant=False) if self.checkpointed else self.mix(x)
        x = x + self.dropout(mixed)
        return self.head(x + self.down(F.gelu(self.up(self.other_norm(x))))).mean(1)

    def mix(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return self.out(F.scaled_dot_product_attention(self.query(h), self.key(h), self.value(h)))

    def reference(self, x: Tensor) -> Tensor:
        h = normed(self.norm, x)
        x = x + self.out(attended(self.query(h), self.key(h), self.value(h)))
        return self.head(x + self.down(gelu(self.up(normed(self.other_norm, x))))).mean(1)


class Lengths(Masked):
    """How many tokens count is a number read from the mask, which is not explained."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        length = int(mask.sum())
        return self.head(F.gelu(self.value(x[:, :length])).mean(1))

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.value(x[:, :3])).mean(1))


class Lazy(Simple):
    """A table that is made at the first call and kept, and memory that is used as a gate and then written over."""

    def __init__(self) -> None:
        super().__init__(self.shifted, lambda h: h * torch.sigmoid(h).detach() + 0.3 + torch.arange(TOKENS)[:, None])
        self.table: Tensor | None = None
        self.register_buffer("scratch", torch.zeros(1, TOKENS, SIZE))

    def shifted(self, h: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(h.shape[1]).to(h)[:, None]
        self.scratch.copy_(torch.sigmoid(h).detach())
        gated = h * self.scratch.clone()
        self.scratch.fill_(0.3)
        return gated + self.scratch + self.table


class ClassToken(Model):
    """A learned token in front, learned positions added: parameters that enter, as they should."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, SIZE)), nn.Parameter(torch.randn(1, 5, SIZE))
        self.layer, self.head = linear(), nn.Linear(SIZE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(F.gelu(self.layer(h)).mean(1))

    def reference(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token, x], 1) + self.positions
        return self.head(gelu(self.layer(h)).mean(1))


add(FAMILY, "mask and padding", Masked, lambda: (data(), MASK), closes=True)
add(FAMILY, "length from a mask", Lengths, lambda: (data(), MASK), closes=True)
add(FAMILY, "table kept and scratch memory", Lazy, closes=True)
add(FAMILY, "a block", Block, closes=True)
add(FAMILY, "a block under a checkpoint", lambda: Block(checkpointed=True), closes=True)
add(FAMILY, "class token and positions", ClassToken, closes=True)
