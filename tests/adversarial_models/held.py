"""Rules of ours hold something constant, and that then weighs parameters: what depends on the input becomes a constant.

None of these can be right with a closed ledger: nearly all of the score comes through what is held.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import CLASSES, SIZE, Model, add, attended, head, linear

FAMILY = "held"
POINTS = 5


class Prototypes(Model):
    """`weigh` compares the input with learned points, learned values are mixed; beside it a small linear path."""

    def __init__(self, weigh: Callable[[Tensor, Tensor, Tensor], Tensor], part: float = 0.01) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(POINTS, SIZE))
        self.values = nn.Parameter(torch.randn(POINTS, CLASSES))
        self.shortcut, self.weigh, self.part = head(), weigh, part

    def forward(self, x: Tensor) -> Tensor:
        return (self.weigh(x, self.points, self.values) + self.part * self.shortcut(x)).mean(1)


def softmax_memory(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (x @ points.T).softmax(-1) @ values


def softmax_einsum(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return torch.einsum("btk,kc->btc", torch.softmax(torch.einsum("btd,kd->btk", x, points), -1), values)


def fused_memory(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, points[None], values[None])


def softmax_by_hand(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    powers = (x @ points.T).exp()
    return powers / powers.sum(-1, keepdim=True) @ values


def weighted_sum(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return ((x @ points.T).softmax(-1).unsqueeze(-1) * values).sum(-2)


def inverse_distance(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return torch.cdist(x, points[None]).reciprocal() @ values


def one_over_distance(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (1 / torch.cdist(x, points[None])) @ values


def squared(x: Tensor, points: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - points).square().sum(-1)


def student(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    weights = 1 / (1 + squared(x, points))
    return weights / weights.sum(-1, keepdim=True) @ values


def student_by_pow(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    weights = (1 + squared(x, points)).pow(-1)
    return weights / weights.sum(-1, keepdim=True) @ values


def inverse_root(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (x.square() + 1).rsqrt() @ points.T @ values


def inverse_root_mean(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + 1).rsqrt() * values.sum(0)


def inverse(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (3 + 0.1 * x).pow(-1) @ points.T @ values


def inverse_by_division(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return (points.sum(0) / (3 + x)) @ points.T @ values


def reciprocal(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return torch.reciprocal(3 + x) @ points.T @ values


def chosen_values(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """A router over constant experts."""
    weight, index = (x @ points.T).softmax(-1).topk(2, -1)
    return (weight.unsqueeze(-1) * values[index]).sum(-2)


def constant_experts(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    weights = (x @ points.T).softmax(-1)
    return sum(weights[..., i : i + 1] * values[i] for i in range(POINTS))


def log_softmax_memory(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return F.log_softmax(x @ points.T, -1).exp() @ values


def normalised_distance(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return F.normalize(1 / (1 + squared(x, points)), p=1.0, dim=-1) @ values


def solved(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    matrix = torch.eye(SIZE, dtype=x.dtype) + 0.1 * x.transpose(1, 2) @ x
    return torch.linalg.solve(matrix, points.T @ values).mean(1, keepdim=True)


def divided_constant(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return values.sum(0) / x.norm(dim=-1, keepdim=True)


def deviation(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    return values.sum(0) / x.std(-1, keepdim=True)


for weigh in (
    softmax_memory,
    softmax_einsum,
    fused_memory,
    softmax_by_hand,
    weighted_sum,
    log_softmax_memory,
    inverse_distance,
    one_over_distance,
    normalised_distance,
    student,
    student_by_pow,
    inverse_root,
    inverse_root_mean,
    inverse,
    inverse_by_division,
    reciprocal,
    chosen_values,
    constant_experts,
    solved,
    divided_constant,
    deviation,
):
    add(FAMILY, weigh.__name__.replace("_", " "), lambda weigh=weigh: Prototypes(weigh))


class ModuleMemory(Model):
    """torch's attention module, asked by the input about learned keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(SIZE, 2, batch_first=True)
        self.memory, self.head = nn.Parameter(torch.randn(1, POINTS, SIZE)), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, self.memory, self.memory)[0] + 0.01 * x).mean(1)


class Pooled(Model):
    """A learned query over signals: weights of values that are signals make no line."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Parameter(torch.randn(1, 2, SIZE)), linear(), linear()
        self.head = head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.scaled_dot_product_attention(self.query, self.key(x), self.value(x))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(attended(self.query, self.key(x), self.value(x))).mean(1)


class Sunk(Model):
    """Learned keys and values beside those of the input, as in prefix tuning: what is weighed is a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.randn(1, 2, SIZE)), nn.Parameter(torch.randn(1, 2, SIZE))
        self.head = head()

    def forward(self, x: Tensor) -> Tensor:
        keys, values = torch.cat([self.keys, x], 1), torch.cat([self.values, x], 1)
        return self.head(F.scaled_dot_product_attention(x, keys, values)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(attended(x, torch.cat([self.keys, x], 1), torch.cat([self.values, x], 1))).mean(1)


class SilentMemory(Model):
    """Learned values whose lines add up to nothing, half of them for and half against."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.values = nn.Parameter(torch.randn(POINTS, SIZE)), nn.Parameter(torch.randn(POINTS, CLASSES))
        self.head = head()

    def forward(self, x: Tensor) -> Tensor:
        mixed = (x @ self.points.T).softmax(-1) @ self.values
        balance = mixed - mixed.detach().mean(1, keepdim=True)
        return (balance * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)[:, None] + 0.1 * self.head(x)).mean(1)


add(FAMILY, "attention module over a memory", ModuleMemory)
add("legitimate", "learned values beside signals", Sunk, closes=True)
add("legitimate", "learned query over signals", Pooled, closes=True)
add(FAMILY, "memory minus its own mean", SilentMemory)
