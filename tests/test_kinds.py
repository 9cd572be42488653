"""What a tensor is in a product: a gate, a size, weights, or a signal as any other; told rule by rule."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from defining import X, check_relevance, half_each, hold, times_constant
from torch import Tensor
from weighing import LENGTH, WIDTH, Operation, drawn

A, C = slice(None, 4), slice(4, None)
W, B = 1 + 0.3 * drawn(WIDTH, seed=21), drawn(WIDTH, seed=22)
WL, BL = 1 + 0.3 * drawn(LENGTH, seed=23), drawn(LENGTH, seed=24)


def root(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True).sqrt()


POWERS = torch.tensor([2.0, 3.0, 2.0, 4.0], dtype=torch.float64)

# with the method, what a model computes, and the same with what is held detached
KINDS: dict[str, tuple[str, Operation, Operation]] = {
    "a bound makes no gate": (
        "lrp",
        lambda x: x[..., A].clamp(-0.4, 0.5) * x[..., C],
        lambda x: half_each(times_constant(lambda y: y.clamp(-0.4, 0.5))(x[..., A]), x[..., C]),
    ),
    "clamp_min makes no gate": (
        "lrp",
        lambda x: x[..., A].clamp_min(-0.4) * x[..., C],
        lambda x: half_each(times_constant(lambda y: y.clamp(-0.4))(x[..., A]), x[..., C]),
    ),
    "clamp_max makes no gate": (
        "lrp",
        lambda x: torch.clamp_max(x[..., A], 0.5) * x[..., C],
        lambda x: half_each(times_constant(lambda y: y.clamp(max=0.5))(x[..., A]), x[..., C]),
    ),
    "relu makes one": (
        "lrp",
        lambda x: torch.relu(x[..., A]) * x[..., C],
        lambda x: hold(torch.relu(x[..., A])) * x[..., C],
    ),
    "an activation of a size is a size": (
        "lrp(ln)",
        lambda x: x / torch.tanh(x.norm(dim=-1, keepdim=True)),
        lambda x: x / hold(torch.tanh(x.norm(dim=-1, keepdim=True))),
    ),
    "a bound of a size is a size": (
        "lrp(ln)",
        lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(0.1),
        lambda x: x / hold(x.norm(dim=-1, keepdim=True)),
    ),
    "an activation of a gate is its own": (
        "lrp(ln)",
        lambda x: x / (1 + torch.tanh(x.square())) + x / root(x),
        lambda x: x / (1 + torch.tanh(x.square())) + x / hold(root(x)),
    ),
    "a power of a size is a size": (
        "lrp(ln)",
        lambda x: x / root(x) ** 3,
        lambda x: x / hold(root(x) ** 3),
    ),
    "a power of a half is a size": (
        "lrp(ln)",
        lambda x: x / (1 + x.square().mean(-1, keepdim=True)) ** 0.5,
        lambda x: x / hold((1 + x.square().mean(-1, keepdim=True)) ** 0.5),
    ),
    "a power of a half of a gate is a size": (
        "lrp(ln)",
        lambda x: x / (1 + torch.exp(x)) ** 0.5,
        lambda x: x / hold((1 + torch.exp(x)) ** 0.5),
    ),
    "a larger power of a gate is a gate": (
        "lrp(ln)",
        lambda x: x / (1 + torch.exp(x)) ** 0.7 + x / root(x),
        lambda x: x / (1 + torch.exp(x)) ** 0.7 + x / hold(root(x)),
    ),
    "a power below 0 is held": (
        "lrp(ln)",
        lambda x: x * (1 + x.square().mean(-1, keepdim=True)) ** -2,
        lambda x: x * hold((1 + x.square().mean(-1, keepdim=True)) ** -2),
    ),
    "a power below 0 of a gate is a size": (
        "lrp(ln)",
        lambda x: x[..., A] * (1 + torch.exp(x[..., C])) ** -1,
        lambda x: x[..., A] * hold((1 + torch.exp(x[..., C])) ** -1),
    ),
    "a power below 0 without a rule": (
        "lrp(act)",
        lambda x: (3 + x) ** -2 + x**3,
        lambda x: (3 + x) ** -2 + x * hold(x * x),
    ),
    "a power of 0": ("lrp", lambda x: x**0 + x, lambda x: x),
    "a cube gates": (
        "lrp",
        lambda x: x[..., A] ** 3 * x[..., C],
        lambda x: hold(x[..., A] ** 3) * x[..., C],
    ),
    "a power that differs gates": (
        "lrp",
        lambda x: x[..., A] ** POWERS * x[..., C],
        lambda x: hold(x[..., A] ** POWERS) * x[..., C],
    ),
    "a power that differs of a gate gates": (
        "lrp",
        lambda x: torch.sigmoid(x[..., A]) ** POWERS * torch.tanh(x[..., C]),
        lambda x: hold(torch.sigmoid(x[..., A]) ** POWERS) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a power that differs of its own": (
        "lrp(act)",
        lambda x: torch.tanh(x) * x ** POWERS.repeat(2),
        lambda x: half_each(times_constant(torch.tanh)(x), times_constant(lambda y: y ** POWERS.repeat(2))(x)),
    ),
    "powers that differ, some below 0": (
        "lrp",
        lambda x: (x + 4) ** (POWERS[:4].repeat(2) - 2.5),
        lambda x: (x + 4) ** (POWERS[:4].repeat(2) - 2.5),
    ),
    "powers that differ, some of them 0": (
        "lrp",
        lambda x: x[..., A] ** (POWERS - 2) + torch.tanh(x[..., C]),
        lambda x: x[..., A] ** (POWERS - 2) + times_constant(torch.tanh)(x[..., C]),
    ),
    "two powers": (
        "lrp",
        lambda x: x[..., :2] ** POWERS[:2],
        lambda x: times_constant(lambda y: y ** POWERS[:2])(x[..., :2]),
    ),
    "a power that is a signal": (
        "lrp",
        lambda x: (3 + torch.tanh(x[..., A])) ** x[..., C],
        lambda x: (3 + times_constant(torch.tanh)(x[..., A])) ** x[..., C],
    ),
    "a power that is a signal above 0": (
        "lrp",
        lambda x: (3 + torch.tanh(x[..., A])) ** (x[..., C] * x[..., C] + 1),
        lambda x: (3 + times_constant(torch.tanh)(x[..., A])) ** (x[..., C] * hold(x[..., C]) + 1),
    ),
    "a power of a constant": (
        "lrp",
        lambda x: torch.pow(W.abs(), x) + torch.tanh(x),
        lambda x: torch.pow(W.abs(), x) + times_constant(torch.tanh)(x),
    ),
    "a size gates": (
        "lrp",
        lambda x: x[..., A].abs() * x[..., C],
        lambda x: hold(x[..., A].abs()) * x[..., C],
    ),
    "a size of its own": (
        "lrp(act)",
        lambda x: x.abs() * torch.tanh(x),
        lambda x: half_each(x.abs(), times_constant(torch.tanh)(x)),
    ),
    "a slope that is a signal": (
        "lrp",
        lambda x: torch.cat([F.prelu(y[None], y[:, 0]) for y in x]),
        lambda x: torch.cat([F.prelu(y[None], y[:, 0]) for y in x]),
    ),
    "a variance is a size": (
        "lrp(ln)",
        lambda x: x / torch.var_mean(x, -1, keepdim=True)[0],
        lambda x: x / hold(x.var(-1, keepdim=True)),
    ),
    "a mean beside a variance is none": (
        "lrp",
        lambda x: torch.var_mean(x[..., A], -1, keepdim=True)[1] * x[..., C],
        lambda x: half_each(x[..., A].mean(-1, keepdim=True), x[..., C]),
    ),
    "frobenius_norm": (
        "lrp",
        lambda x: torch.frobenius_norm(x[..., A], dim=-1, keepdim=True) * x[..., C],
        lambda x: hold(x[..., A].norm(dim=-1, keepdim=True)) * x[..., C],
    ),
    "linalg.norm": (
        "lrp",
        lambda x: torch.linalg.norm(x[..., A], dim=-1, keepdim=True) * x[..., C],
        lambda x: hold(x[..., A].norm(dim=-1, keepdim=True)) * x[..., C],
    ),
    "linalg.matrix_norm": (
        "lrp",
        lambda x: torch.linalg.matrix_norm(x[..., A], keepdim=True) * x[..., C],
        lambda x: hold(torch.linalg.matrix_norm(x[..., A], keepdim=True)) * x[..., C],
    ),
    "what is divided stays what it is": (
        "lrp",
        lambda x: torch.sigmoid(x[..., A]) / x.norm(dim=-1, keepdim=True) * torch.tanh(x[..., C]),
        lambda x: hold(torch.sigmoid(x[..., A]) / x.norm(dim=-1, keepdim=True)) * times_constant(torch.tanh)(x[..., C]),
    ),
    "what is divided stays its own": (
        "lrp(act+ln)",
        lambda x: torch.tanh(x) / x.norm(dim=-1, keepdim=True) * torch.sin(x),
        lambda x: half_each(
            times_constant(torch.tanh)(x) / hold(x.norm(dim=-1, keepdim=True)), times_constant(torch.sin)(x)
        ),
    ),
    "a number over a size is a size": (
        "lrp(gate+act)",
        lambda x: 2 / x[..., A].norm(dim=-1, keepdim=True) * torch.sigmoid(x[..., C]),
        lambda x: 2 / x[..., A].norm(dim=-1, keepdim=True) * (times_constant(torch.sigmoid, 0.5)(x[..., C]) + 0.5),
    ),
    "an inverse of a root is a size": (
        "lrp(gate+act)",
        lambda x: torch.rsqrt(x[..., A] + 5) * torch.sigmoid(x[..., C]),
        lambda x: torch.rsqrt(x[..., A] + 5) * (times_constant(torch.sigmoid, 0.5)(x[..., C]) + 0.5),
    ),
    "a reciprocal of something linear is a size": (
        "lrp(gate+act)",
        lambda x: torch.reciprocal(x[..., A] + 5) * torch.sigmoid(x[..., C]),
        lambda x: torch.reciprocal(x[..., A] + 5) * (times_constant(torch.sigmoid, 0.5)(x[..., C]) + 0.5),
    ),
    "a reciprocal of a gate is a gate": (
        "lrp(gate+act)",
        lambda x: torch.reciprocal(1 + torch.sigmoid(x[..., A])) * torch.tanh(x[..., C]),
        lambda x: hold(torch.reciprocal(1 + torch.sigmoid(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a reciprocal in place is a gate": (
        "lrp(gate+act)",
        lambda x: (1 + torch.sigmoid(x[..., A])).reciprocal_() * torch.tanh(x[..., C]),
        lambda x: hold(torch.reciprocal(1 + torch.sigmoid(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a reciprocal of its own": (
        "lrp(act)",
        lambda x: torch.reciprocal(1 + torch.exp(-x)) * x,
        lambda x: x * hold(torch.sigmoid(x)),
    ),
    "a number over a gate is a gate": (
        "lrp(gate+act)",
        lambda x: 2 / (1 + torch.sigmoid(x[..., A])) * torch.tanh(x[..., C]),
        lambda x: hold(2 / (1 + torch.sigmoid(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a number over its own": (
        "lrp(act)",
        lambda x: 2 / (1 + torch.exp(-x)) * x,
        lambda x: 2 * x * hold(torch.sigmoid(x)),
    ),
    "an activation over its own": (
        "lrp(act)",
        lambda x: x / (1 + x.abs()) * torch.tanh(x),
        lambda x: half_each(x / hold(1 + x.abs()), times_constant(torch.tanh)(x)),
    ),
    "a gate over its own is a gate": (
        "lrp(act+gate)",
        lambda x: (lambda y: torch.sigmoid(y) / (1 + torch.exp(y)))(x[..., A]) * torch.tanh(x[..., C]),
        lambda x: hold(torch.sigmoid(x[..., A]) / (1 + torch.exp(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a signal over a gate is no gate": (
        "lrp(act+gate)",
        lambda x: x[..., A] / (1 + torch.exp(x[..., C])) * x[..., C],
        lambda x: half_each(x[..., A] / hold(1 + torch.exp(x[..., C])), x[..., C]),
    ),
    "an activation over another's gate is no activation": (
        "lrp(act+gate)",
        lambda x: torch.tanh(x[..., A]) / (1 + torch.exp(x[..., C])) * x[..., C],
        lambda x: half_each(times_constant(torch.tanh)(x[..., A]) / hold(1 + torch.exp(x[..., C])), x[..., C]),
    ),
    "an activation over an activation": (
        "lrp(act+gate)",
        lambda x: torch.relu(x[..., A]) / (3 + torch.tanh(x[..., C])).abs(),
        lambda x: torch.relu(x[..., A]) / hold(3 + torch.tanh(x[..., C])),
    ),
    "a gate over another's size": (
        "lrp",
        lambda x: torch.sigmoid(x[..., A]) / x[..., C].abs(),
        lambda x: times_constant(torch.sigmoid, 0.5)(x[..., A]) / hold(x[..., C].abs()),
    ),
    "an activation over another's size": (
        "lrp",
        lambda x: torch.relu(x[..., A]) / x[..., C].abs(),
        lambda x: torch.relu(x[..., A]) / hold(x[..., C].abs()),
    ),
    "a gate over a gate of its own": (
        "lrp",
        lambda x: torch.sigmoid(x) / (1 + torch.exp(x)),
        lambda x: times_constant(torch.sigmoid, 0.5)(x) / hold(1 + torch.exp(x)),
    ),
    "constants over a gate": (
        "lrp",
        lambda x: W[A] / (1 + torch.sigmoid(x[..., A])) * torch.tanh(x[..., C]),
        lambda x: hold(W[A] / (1 + torch.sigmoid(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    ),
    "a part of itself is its own": (
        "lrp(act)",
        lambda x: x * torch.sigmoid(x / 2),
        lambda x: x * hold(torch.sigmoid(x / 2)),
    ),
    "with a slope that is a signal it is its own": (
        "lrp(act)",
        lambda x: torch.tanh(x) * torch.prelu(x, x.mean((0, 2))),
        lambda x: hold(torch.tanh(x)) * torch.prelu(x, x.mean((0, 2))),
    ),
    "a root of an activation is its own": (
        "lrp(act)",
        lambda x: torch.tanh(x) * torch.sqrt(torch.relu(x)),
        lambda x: half_each(times_constant(torch.tanh)(x), root_of_relu(x)),
    ),
    "a root is a size": (
        "lrp",
        lambda x: torch.sqrt(x[..., A] + 5) * torch.sigmoid(x[..., C]),
        lambda x: hold(torch.sqrt(x[..., A] + 5)) * times_constant(torch.sigmoid, 0.5)(x[..., C]),
    ),
    "a root of a gate is a gate": (
        "lrp(act+gate)",
        lambda x: torch.sqrt(torch.sigmoid(x[..., A])) * x[..., C],
        lambda x: hold(torch.sqrt(torch.sigmoid(x[..., A]))) * x[..., C],
    ),
}


TOTALS: dict[str, Operation] = {
    "mean": lambda x: x.mean(-1, keepdim=True),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "nanmean": lambda x: torch.nanmean(x, -1, keepdim=True),
    "cumsum": lambda x: x.cumsum(-1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "named, as by numpy": lambda x: torch.sum(x, axis=-1, keepdims=True),
}


@pytest.mark.parametrize("name", TOTALS)
def test_a_sum_of_gates_is_a_gate_and_of_sizes_a_size(name: str) -> None:
    total = TOTALS[name]
    check_relevance(
        lambda x: total(torch.sigmoid(x[..., A])) * torch.tanh(x[..., C]),
        lambda x: hold(total(torch.sigmoid(x[..., A]))) * times_constant(torch.tanh)(x[..., C]),
    )
    check_relevance(
        lambda x: total(x[..., A].unflatten(-1, (2, 2)).norm(dim=-1)) * torch.sigmoid(x[..., C][..., :2]),
        lambda x: (
            hold(total(x[..., A].unflatten(-1, (2, 2)).norm(dim=-1)))
            * times_constant(torch.sigmoid, 0.5)(x[..., C][..., :2])
        ),
    )


@pytest.mark.parametrize("name", ["mean", "sum", "cumsum"])
def test_a_sum_of_activations_starts_anew(name: str) -> None:
    total = TOTALS[name]
    check_relevance(
        lambda x: total(torch.tanh(x[..., A])) * x[..., C],
        lambda x: half_each(total(times_constant(torch.tanh)(x[..., A])), x[..., C]),
    )


def root_of_relu(x: Tensor) -> Tensor:
    return x * hold(torch.where(x > 0, torch.relu(x).sqrt() / x, 0.0))


@pytest.mark.filterwarnings("ignore:.*frobenius_norm is deprecated")
@pytest.mark.parametrize("name", KINDS)
def test_what_it_is_in_a_product(name: str) -> None:
    method, operation, line = KINDS[name]
    check_relevance(operation, line, method, X[:1] if "its own" in name and "slope" in name else X)
