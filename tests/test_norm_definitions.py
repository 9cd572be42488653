"""Normalisations and sizes, each by its definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from defining import Case, X, check, check_relevance, explain_alone, hold, weighed
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
