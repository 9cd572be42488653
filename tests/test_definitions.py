"""Normalisations, sizes and activations, each by its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from defining import Case, X, check, check_relevance, explain_alone, hold, times_constant, weighed
from torch import Tensor
from weighing import LENGTH, WIDTH, Operation, drawn

# Normalisations

W, B = 1 + 0.3 * drawn(WIDTH, seed=21), drawn(WIDTH, seed=22)
WL, BL = 1 + 0.3 * drawn(LENGTH, seed=23), drawn(LENGTH, seed=24)
MEAN, SIZE = drawn(LENGTH, seed=25), drawn(LENGTH, seed=26).abs() + 0.5
EPS = 0.3


def centred(x: Tensor, axes: Any = -1, eps: float = EPS) -> Tensor:
    """(x - E[x]) / sqrt(Var[x] + eps), the root held."""
    apart = x - x.mean(axes, keepdim=True)
    return apart / hold((apart.square().mean(axes, keepdim=True) + eps).sqrt())


def over_size(x: Tensor, axes: Any = -1, eps: float = EPS) -> Tensor:
    return x / hold((x.square().mean(axes, keepdim=True) + eps).sqrt())


def in_groups(x: Tensor, groups: int) -> Tensor:
    return centred(x.unflatten(1, (groups, -1)).flatten(2)).reshape(x.shape)


def images(x: Tensor) -> Tensor:
    return x.unflatten(2, (2, 4))


def running(x: Tensor, weight: Tensor | None = WL, eps: float = EPS) -> Tensor:
    factor = (1.0 if weight is None else weight) / (SIZE + eps).sqrt()
    return x * factor.reshape(-1, *[1] * (x.dim() - 2))


def by_channel(vector: Tensor) -> Tensor:
    return vector[:, None]


SHIFT = -MEAN * WL / (SIZE + EPS).sqrt()

NORMS: dict[str, Case] = {
    "layer_norm": (
        lambda x: F.layer_norm(x, (WIDTH,), W, B, EPS),
        lambda x: centred(x) * W,
        {"layer_norm": B},
    ),
    "layer_norm, its own eps": (
        lambda x: F.layer_norm(1e-2 * x, (WIDTH,), W, B),
        lambda x: centred(1e-2 * x, eps=1e-5) * W,
        {"layer_norm": B},
    ),
    "layer_norm, a list": (
        lambda x: torch.layer_norm(x, [WIDTH], weight=None, bias=B, eps=EPS),
        centred,
        {"layer_norm": B},
    ),
    "layer_norm without weights": (lambda x: F.layer_norm(x, (WIDTH,), eps=EPS), centred),
    "layer_norm over two axes": (
        lambda x: F.layer_norm(x, (LENGTH, WIDTH), torch.outer(WL, W), torch.outer(BL, B), EPS),
        lambda x: centred(x, (-2, -1)) * torch.outer(WL, W),
        {"layer_norm": torch.outer(BL, B)},
    ),
    "rms_norm": (lambda x: F.rms_norm(x, (WIDTH,), W, EPS), lambda x: over_size(x) * W),
    "rms_norm without weights": (lambda x: F.rms_norm(x, [WIDTH], eps=EPS), over_size),
    "rms_norm, its own eps": (
        lambda x: F.rms_norm(1e-8 * x, (WIDTH,), W),
        lambda x: over_size(1e-8 * x, eps=torch.finfo(x.dtype).eps) * W,
    ),
    "rms_norm over two axes": (
        lambda x: F.rms_norm(x, (LENGTH, WIDTH), torch.outer(WL, W), EPS),
        lambda x: over_size(x, (-2, -1)) * torch.outer(WL, W),
    ),
    "group_norm": (
        lambda x: F.group_norm(x, 2, WL, BL, EPS),
        lambda x: in_groups(x, 2) * by_channel(WL),
        {"group_norm": by_channel(BL)},
    ),
    "group_norm, its own eps": (
        lambda x: F.group_norm(1e-2 * images(x), 2),
        lambda x: centred(1e-2 * x.unflatten(1, (2, -1)).flatten(2), eps=1e-5).reshape(images(x).shape),
    ),
    "group_norm, named": (
        lambda x: F.group_norm(x, num_groups=4, weight=WL, bias=BL, eps=EPS),
        lambda x: in_groups(x, 4) * by_channel(WL),
        {"group_norm": by_channel(BL)},
    ),
    "group_norm of images": (
        lambda x: torch.group_norm(images(x), 2, WL, BL, EPS, False),
        lambda x: images(in_groups(x, 2) * by_channel(WL)),
        {"group_norm": BL[:, None, None]},
    ),
    "instance_norm": (
        lambda x: F.instance_norm(x, weight=WL, bias=BL, eps=EPS),
        lambda x: centred(x) * by_channel(WL),
        {"instance_norm": by_channel(BL)},
    ),
    "instance_norm, its own eps": (
        lambda x: F.instance_norm(1e-2 * images(x)),
        lambda x: images(centred(1e-2 * x, eps=1e-5)),
    ),
    "instance_norm by torch": (
        lambda x: torch.instance_norm(images(x), WL, BL, None, None, True, 0.1, EPS, False),
        lambda x: images(centred(x) * by_channel(WL)),
        {"instance_norm": BL[:, None, None]},
    ),
    "instance_norm with statistics that are not used": (
        lambda x: F.instance_norm(x, MEAN.clone(), SIZE.clone(), WL, BL, True, 0.1, EPS),
        lambda x: centred(x) * by_channel(WL),
        {"instance_norm": by_channel(BL)},
    ),
    "instance_norm that runs": (
        lambda x: F.instance_norm(x, MEAN, SIZE, WL, BL, False, 0.1, EPS),
        running,
        {"running mean": by_channel(SHIFT), "instance_norm": by_channel(BL)},
    ),
    "instance_norm that runs, its own eps": (
        lambda x: F.instance_norm(x, MEAN, 1e-5 * SIZE, use_input_stats=False),
        lambda x: x / (1e-5 * SIZE + 1e-5).sqrt()[:, None],
        {"running mean": by_channel(-MEAN / (1e-5 * SIZE + 1e-5).sqrt())},
    ),
    "batch_norm": (
        lambda x: F.batch_norm(x, MEAN, SIZE, WL, BL, False, 0.1, EPS),
        running,
        {"running mean": by_channel(SHIFT), "batch_norm": by_channel(BL)},
    ),
    "batch_norm, its own eps": (
        lambda x: F.batch_norm(images(x), MEAN, 1e-5 * SIZE),
        lambda x: images(x / (1e-5 * SIZE + 1e-5).sqrt()[:, None]),
        {"running mean": (-MEAN / (1e-5 * SIZE + 1e-5).sqrt())[:, None, None]},
    ),
    "batch_norm of vectors": (
        lambda x: torch.batch_norm(x[:, 0, :4], WL, BL, MEAN, SIZE, False, 0.1, EPS, False),
        lambda x: x[:, 0, :4] * WL / (SIZE + EPS).sqrt(),
        {"running mean": SHIFT, "batch_norm": BL},
    ),
}
NAMED: dict[str, Case] = {
    "layer_norm": (
        lambda x: torch.layer_norm(x, normalized_shape=[WIDTH], weight=W, bias=B, eps=EPS),
        lambda x: centred(x) * W,
        {"layer_norm": B},
    ),
    "layer_norm, its own eps": (
        lambda x: torch.layer_norm(1e-2 * x, normalized_shape=[WIDTH]),
        lambda x: centred(1e-2 * x, eps=1e-5),
    ),
    "rms_norm": (
        lambda x: torch.rms_norm(x, normalized_shape=[WIDTH], weight=W, eps=EPS),
        lambda x: over_size(x) * W,
    ),
    "group_norm": (
        lambda x: torch.group_norm(x, num_groups=2, weight=WL, bias=BL, eps=EPS),
        lambda x: in_groups(x, 2) * by_channel(WL),
        {"group_norm": by_channel(BL)},
    ),
    "group_norm, its own eps": (
        lambda x: torch.group_norm(1e-2 * x, num_groups=2),
        lambda x: centred(1e-2 * x.unflatten(1, (2, -1)).flatten(2), eps=1e-5).reshape(x.shape),
    ),
    "instance_norm": (
        lambda x: torch.instance_norm(
            x,
            weight=WL,
            bias=BL,
            running_mean=None,
            running_var=None,
            use_input_stats=True,
            momentum=0.1,
            eps=EPS,
            cudnn_enabled=False,
        ),
        lambda x: centred(x) * by_channel(WL),
        {"instance_norm": by_channel(BL)},
    ),
    "batch_norm": (
        lambda x: torch.batch_norm(
            x,
            weight=WL,
            bias=BL,
            running_mean=MEAN,
            running_var=SIZE,
            training=False,
            momentum=0.1,
            eps=EPS,
            cudnn_enabled=False,
        ),
        running,
        {"running mean": by_channel(SHIFT), "batch_norm": by_channel(BL)},
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_norm_whose_arguments_are_named(name: str) -> None:
    check(NAMED[name])


WITH_BIAS = {name: case for name, case in NORMS.items() if len(case) == 3 and "run" not in name and "batch" not in name}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm(name: str) -> None:
    check(NORMS[name])


@pytest.mark.parametrize("name", WITH_BIAS)
def test_without_its_rule_a_norm_keeps_its_gradient_and_its_bias(name: str) -> None:
    operation, _, lines = WITH_BIAS[name]
    check((operation, operation, lines), "gi")


@pytest.mark.parametrize("samples", [LENGTH, 2 * LENGTH, WIDTH])
@pytest.mark.parametrize(
    "name", ["layer_norm", "group_norm", "instance_norm", "batch_norm", "layer_norm over two axes"]
)
def test_a_norm_of_as_many_samples_as_there_are_channels(name: str, samples: int) -> None:
    """Where a shape does not tell which axis the samples have."""
    check(NORMS[name], x=drawn(samples, LENGTH, WIDTH, seed=samples))


def test_statistics_of_the_batch_itself_are_left_to_their_gradient() -> None:
    """For one sample, since samples depend on each other."""
    for operation in (
        lambda x: F.batch_norm(x, None, None, WL, BL, True, 0.1, EPS),
        lambda x: F.batch_norm(x, MEAN.clone(), SIZE.clone(), WL, BL, training=True, eps=EPS),
        lambda x: torch.batch_norm(x, WL, BL, None, None, True, 0.1, EPS, False),
    ):
        check((operation, operation), x=X[:1])


def test_a_running_mean_made_from_the_input_is_cut_off() -> None:
    def operation(x: Tensor) -> Tensor:
        return F.batch_norm(x, x.detach().mean((0, 2)), SIZE, eps=EPS)

    case = (
        operation,
        lambda x: running(x, None),
        {"detach": lambda x: by_channel(-x.mean((0, 2)) / (SIZE + EPS).sqrt())},
    )
    check(case, x=X[:1], group="cut_off")


# Sizes


def square_of(x: Tensor) -> Tensor:
    return x * hold(x)


def spread_of(x: Tensor, axis: int = -1) -> Tensor:
    """A variance: each square is its root times a constant."""
    apart = x - x.mean(axis, keepdim=True)
    return (apart * hold(apart)).sum(axis, keepdim=True) / (x.shape[axis] - 1)


A, C = slice(None, 4), slice(4, None)

SIZES: dict[str, Case] = {
    "var": (lambda x: x.var(-1, keepdim=True), spread_of),
    "var of another axis": (lambda x: torch.var(x, 1, keepdim=True), lambda x: spread_of(x, 1)),
    "var_mean": (
        lambda x: torch.cat(torch.var_mean(x, -1, keepdim=True), -1),
        lambda x: torch.cat([spread_of(x), x.mean(-1, keepdim=True)], -1),
    ),
    "std_mean": (
        lambda x: torch.cat(torch.std_mean(x, -1, keepdim=True), -1),
        lambda x: torch.cat(torch.std_mean(x, -1, keepdim=True), -1),
    ),
    "std": (lambda x: x.std(-1), lambda x: x.std(-1)),
    "norm": (lambda x: x.norm(dim=-1), lambda x: x.norm(dim=-1)),
    "sqrt": (lambda x: x.exp().sqrt(), lambda x: x * hold((x.exp() - 1) / x * (-x / 2).exp())),
    "sqrt of a mean of squares": (
        lambda x: x.square().mean(-1).sqrt(),
        lambda x: square_of(x).mean(-1) / hold(x.square().mean(-1).sqrt()),
    ),
    "over a number": (lambda x: x / 3, lambda x: x / 3),
    "over a constant": (lambda x: x / W, lambda x: x / W),
    "over a signal": (lambda x: x[..., A] / x[..., C], lambda x: x[..., A] / hold(x[..., C])),
    "over a signal in place": (lambda x: (1 * x[..., A]).div_(x[..., C]), lambda x: x[..., A] / hold(x[..., C])),
    "over a signal by rdiv": (lambda x: x[..., C].__rtruediv__(x[..., A]), lambda x: x[..., A] / hold(x[..., C])),
    "rounded": (
        lambda x: torch.div(5 * x[..., A], x[..., C], rounding_mode=None),
        lambda x: 5 * x[..., A] / hold(x[..., C]),
    ),
    "over a variance": (lambda x: x / x.var(-1, keepdim=True), lambda x: x / hold(x.var(-1, keepdim=True))),
    "times a reciprocal": (lambda x: x * x.reciprocal().flip(-1), lambda x: x * hold(1 / x).flip(-1)),
    "times a root's inverse": (lambda x: x * x.abs().rsqrt(), lambda x: x * hold(x.abs().rsqrt())),
    "times a root's inverse of an activation": (
        lambda x: x.flip(-1) * torch.rsqrt(1 + torch.tanh(x)),
        lambda x: x.flip(-1) * hold(torch.rsqrt(1 + torch.tanh(x))),
    ),
    "times a reciprocal of a size": (
        lambda x: x * x.norm(dim=-1, keepdim=True).reciprocal(),
        lambda x: x / hold(x.norm(dim=-1, keepdim=True)),
    ),
    "a mean of sizes divides": (
        lambda x: x / x.norm(dim=-1, keepdim=True).mean(1, keepdim=True),
        lambda x: x / hold(x.norm(dim=-1, keepdim=True).mean(1, keepdim=True)),
    ),
    "over one and an exponential of its own": (
        lambda x: x / (1 + torch.exp(-x)),
        lambda x: x * hold(torch.sigmoid(x)),
    ),
    "over one and another's exponential": (
        lambda x: x[..., A] / (1 + torch.exp(x[..., C])),
        lambda x: x[..., A] / hold(1 + torch.exp(x[..., C])),
    ),
    "one over an activation gates": (
        lambda x: x[..., A] * (1 / (1 + torch.exp(x[..., C]))),
        lambda x: x[..., A] / hold(1 + torch.exp(x[..., C])),
    ),
    "a reciprocal of an activation is that activation's": (
        lambda x: x * torch.reciprocal(1 + torch.exp(-x)),
        lambda x: x * hold(torch.sigmoid(x)),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_and_what_it_divides(name: str) -> None:
    operation, line, *_ = SIZES[name]
    check_relevance(operation, line)


@pytest.mark.parametrize("name", SIZES)
def test_without_rules_it_is_the_gradient(name: str) -> None:
    operation = SIZES[name][0]
    if "in place" not in name:
        check_relevance(operation, operation, "gi")


HELD: dict[str, Operation] = {
    "rsqrt": lambda x: torch.rsqrt(x.square() + 1),
    "reciprocal": lambda x: torch.reciprocal(x + 5),
    "a power below 0": lambda x: (x + 5) ** -0.5,
    "one over": lambda x: 1 / (x + 5),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_norm_multiplies_by_is_held_wherever_it_goes(name: str) -> None:
    """It passes nothing on, and the ledger says what is held."""
    operation = HELD[name]
    check_relevance(lambda x: x + operation(x), lambda x: x)
    (e,) = explain_alone(lambda x: x + operation(x), "lrp", X[:1])
    assert e.ledger.held.total == pytest.approx(weighed(operation(X[:1])).item())


# Activations

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


# What it is in a product


def half_each(a: Tensor, b: Tensor) -> Tensor:
    return 0.5 * (a * hold(b) + hold(a) * b)


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
