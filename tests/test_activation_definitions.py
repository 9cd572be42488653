"""Activations, each by its definition, with its arguments in every spelling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from defining import X, check, check_relevance, explain_alone, hold, times_constant, weighed
from torch import Tensor
from weighing import LENGTH, WIDTH, Operation, drawn

A, C = slice(None, 4), slice(4, None)
W, B = 1 + 0.3 * drawn(WIDTH, seed=21), drawn(WIDTH, seed=22)
WL, BL = 1 + 0.3 * drawn(LENGTH, seed=23), drawn(LENGTH, seed=24)

FUNCTIONS: dict[str, tuple[Operation, float, str]] = {
    "relu": (torch.relu, 0.0, ""),
    "gelu": (F.gelu, 0.0, ""),
    "silu, named": (lambda x: F.silu(input=x), 0.0, ""),
    "exp": (torch.exp, 1.0, "exp(0)"),
    "exp2": (torch.exp2, 1.0, "exp2(0)"),
    "expm1": (torch.expm1, 0.0, ""),
    "cos": (torch.cos, 1.0, "cos(0)"),
    "sin": (torch.sin, 0.0, ""),
    "sigmoid": (torch.sigmoid, 0.5, "sigmoid(0)"),
    "expit": (torch.special.expit, 0.5, "special_expit(0)"),
    "softplus": (F.softplus, math.log(2), "softplus(0)"),
    "softplus with arguments": (lambda x: F.softplus(x, 2.0), math.log(2) / 2, "softplus(0)"),
    "softplus, named": (lambda x: F.softplus(x, beta=4.0), math.log(2) / 4, "softplus(0)"),
    "hardsigmoid": (F.hardsigmoid, 0.5, "hardsigmoid(0)"),
    "logsigmoid": (F.logsigmoid, -math.log(2), "log_sigmoid(0)"),
    "elu": (lambda x: F.elu(x, 0.7), 0.0, ""),
    "leaky_relu": (lambda x: F.leaky_relu(x, negative_slope=0.3), 0.0, ""),
    "clamp": (lambda x: x.clamp(0.2, 0.9), 0.2, "clamp(0)"),
    "clamp, named": (lambda x: torch.clamp(x, max=-0.2), -0.2, "clamp(0)"),
    "clip": (lambda x: torch.clip(x, -0.5), 0.0, ""),
    "clamp_min": (lambda x: torch.clamp_min(x, 0.3), 0.3, "clamp_min(0)"),
    "clamp_max": (lambda x: torch.clamp_max(x, max=-0.3), -0.3, "clamp_max(0)"),
    "a bound that is a tensor": (lambda x: torch.clamp(x, torch.tensor(0.25, dtype=x.dtype)), 0.25, "clamp(0)"),
    "hardtanh": (lambda x: F.hardtanh(x, 0.1, 0.6), 0.1, "hardtanh(0)"),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), 20.0, "threshold(0)"),
    "one slope, named": (lambda x: torch.prelu(x, weight=torch.tensor([0.3], dtype=x.dtype)), 0.0, ""),
    "a slope each, named": (lambda x: torch.prelu(x, weight=WL), 0.0, ""),
    "one slope": (lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)), 0.0, ""),
    "a slope each": (lambda x: F.prelu(x, WL), 0.0, ""),
    "a cube": (lambda x: x**3, 0.0, ""),
    "a cube by pow": (lambda x: torch.pow(x, exponent=torch.tensor(3.0)), 0.0, ""),
    "a square": (lambda x: x**2, 0.0, ""),
    "square": (torch.square, 0.0, ""),
    "a power of one": (lambda x: x**1, 0.0, ""),
    "powers by channel": (lambda x: x ** torch.tensor([1.0, 2, 3, 4, 1, 2, 3, 5], dtype=x.dtype), 0.0, ""),
    "abs": (torch.abs, 0.0, ""),
}
IN_PLACE: dict[str, tuple[Operation, Operation, float, str]] = {
    "exp_": (lambda x: (1 * x).exp_(), torch.exp, 1.0, "exp(0)"),
    "tanh_": (lambda x: (1 * x).tanh_(), torch.tanh, 0.0, ""),
    "silu": (lambda x: F.silu(1 * x, inplace=True), F.silu, 0.0, ""),
    "elu": (lambda x: F.elu(1 * x, 0.5, True), lambda x: F.elu(x, 0.5), 0.0, ""),
    "hardsigmoid": (lambda x: F.hardsigmoid(1 * x, inplace=True), F.hardsigmoid, 0.5, "hardsigmoid(0)"),
    "clamp_": (lambda x: (1 * x).clamp_(0.2), lambda x: x.clamp(0.2), 0.2, "clamp(0)"),
    "pow_": (lambda x: (1 * x).pow_(3), lambda x: x**3, 0.0, ""),
    "pow_ of two": (lambda x: (1 * x).pow_(2), lambda x: x**2, 0.0, ""),
    "square_": (lambda x: (1 * x).square_(), torch.square, 0.0, ""),
    "abs_": (lambda x: (1 * x).abs_(), torch.abs, 0.0, ""),
    "sqrt_": (lambda x: (x * x).sqrt_(), torch.abs, 0.0, ""),
}


def entering(zero: float, name: str) -> dict[str, Any]:
    return {name: zero} if zero else {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_activation(name: str) -> None:
    function, zero, line = FUNCTIONS[name]
    check((function, times_constant(function, zero), entering(zero, line)))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "a power of one"])
def test_without_its_rule_an_activation_keeps_its_gradient(name: str) -> None:
    function = FUNCTIONS[name][0]
    check((function, function), "gi")


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_activation_in_place(name: str) -> None:
    operation, function, zero, line = IN_PLACE[name]
    check((operation, times_constant(function, zero), entering(zero, line)))


@pytest.mark.parametrize(
    ("first", "second", "label", "zeros"),
    [
        (lambda x: F.softplus(x, 2.0), lambda x: F.softplus(x, 3.0), "softplus(0)", (2.0, 3.0)),
        (lambda x: F.softplus(x, beta=4.0), lambda x: F.softplus(x, beta=5.0), "softplus(0)", (4.0, 5.0)),
    ],
    ids=["by position", "named"],
)
def test_arguments_are_not_mixed_up(first: Operation, second: Operation, label: str, zeros: tuple[float, ...]) -> None:
    zero = [math.log(2) / beta for beta in zeros]
    check(
        (
            lambda x: torch.cat([first(x), second(x)], -1),
            lambda x: torch.cat([times_constant(f, z)(x) for f, z in zip((first, second), zero, strict=True)], -1),
            {label: torch.tensor([zero[0]] * WIDTH + [zero[1]] * WIDTH, dtype=X.dtype)},
        )
    )


@pytest.mark.parametrize("channels", [2, 4])
def test_where_each_channel_has_its_slope_nothing_passes_nothing(channels: int) -> None:
    x = X[:, :channels].clone()
    x[:, 0, 3:5] = 0.0
    slopes = drawn(channels, seed=3)
    for operation in (lambda x: F.prelu(x, slopes), lambda x: torch.prelu(1 * x, weight=slopes)):
        line: Operation = lambda x: x * hold(torch.where(x > 0, 1.0, slopes[:, None])) * (hold(x) != 0)  # noqa: E731
        check((operation, line), x=x)


BOUNDS = 0.3 * drawn(WIDTH, seed=41)


def bounded(x: Tensor, low: Tensor | None, high: Tensor | None) -> tuple[Tensor, Tensor]:
    """What passes, and what stands in the place of what does not."""
    passes, constant = torch.ones_like(x), torch.zeros_like(x)
    if low is not None:
        passes, constant = torch.where(x < low, 0.0, passes), torch.where(x < low, low.to(x), constant)
    if high is not None:
        over = x * passes + constant > high
        passes, constant = torch.where(over, 0.0, passes), torch.where(over, high.to(x), constant)
    return passes, constant


OWN_BOUNDS: dict[str, tuple[Operation, Tensor | None, Tensor | None]] = {
    "both": (lambda x: x.clamp(BOUNDS - 0.4, BOUNDS), BOUNDS - 0.4, BOUNDS),
    "named": (lambda x: torch.clamp(x, min=BOUNDS, max=BOUNDS + 0.4), BOUNDS, BOUNDS + 0.4),
    "from below": (lambda x: torch.clamp_min(x, BOUNDS), BOUNDS, None),
    "from above": (lambda x: torch.clamp_max(x, max=BOUNDS), None, BOUNDS),
    "from above alone": (lambda x: torch.clip(x, max=BOUNDS), None, BOUNDS),
    "beside a number": (
        lambda x: torch.clamp(x, BOUNDS, torch.tensor(0.2, dtype=x.dtype)),
        BOUNDS,
        torch.tensor(0.2, dtype=X.dtype),
    ),
    "in place": (lambda x: (1 * x).clamp_(BOUNDS, BOUNDS + 0.4), BOUNDS, BOUNDS + 0.4),
    "each row its own": (lambda x: x.clamp(min=BL[:, None]), BL[:, None], None),
}


@pytest.mark.parametrize("name", OWN_BOUNDS)
def test_bounds_of_their_own(name: str) -> None:
    """What is beyond a bound is the bound, a constant; what is within it passes as it is."""
    operation, low, high = OWN_BOUNDS[name]
    check_relevance(operation, lambda x: x * hold(bounded(x, low, high)[0]))
    (e,) = explain_alone(operation, "lrp", X[:1])
    assert e.ledger.constants.total == pytest.approx(weighed(bounded(X[:1], low, high)[1]).item(), abs=1e-12)


def test_two_bounds_are_bounds_of_their_own() -> None:
    low = torch.tensor([-0.1, 0.2], dtype=X.dtype)
    check_relevance(lambda x: x[..., :2].clamp(low), lambda x: x[..., :2] * hold(x[..., :2] > low))


def test_arguments_may_have_their_numpy_names() -> None:
    check((lambda x: torch.exp(x=x), times_constant(torch.exp, 1.0), {"exp(0)": 1.0}))
    check((lambda x: torch.mul(a=x, x2=W), lambda x: x * W))
    check((lambda x: torch.add(x1=x, x2=W), lambda x: x, {"add": W}))
    check(
        (
            lambda x: torch.cat([x, B.expand_as(x)], axis=2),
            lambda x: torch.cat([x, torch.zeros_like(x)], 2),
            {"cat": torch.cat([torch.zeros_like(B), B])},
        )
    )
    check((lambda x: torch.cdist(x1=x, x2=x.flip(1)), lambda x: torch.cdist(x, x.flip(1))))
    check((lambda x: torch.linalg.vector_norm(x=x, dim=-1), lambda x: x.norm(dim=-1)))


def test_bounds_that_differ_in_a_late_digit_are_two() -> None:
    bounds = [torch.tensor(value, dtype=X.dtype) for value in (0.25001, 0.25002)]
    check(
        (
            lambda x: torch.cat([x.clamp(bound) for bound in bounds], -1),
            lambda x: torch.cat([times_constant(lambda y, b=b: y.clamp(b), float(b))(x) for b in bounds], -1),
            {"clamp(0)": torch.stack(bounds).repeat_interleave(WIDTH)},
        )
    )


def test_one_slope_in_float32_is_an_activation_that_is_nothing_at_zero() -> None:
    """So a sigmoid is the gate beside it, and not one of two."""
    slope, x = torch.tensor([0.3]), X.float()
    e = explain_alone(lambda x: F.prelu(x[..., A], slope) * torch.sigmoid(x[..., C]), "lrp", x)[0]
    expected = F.prelu(x[..., A], slope) * torch.sigmoid(x[..., C]) * drawn(LENGTH, 4, seed=31).float()
    torch.testing.assert_close(e.relevance[..., A], expected[0])
    assert not e.relevance[..., C].any()
