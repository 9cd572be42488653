"""Logarithms, distances, angles and products of many, each by its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from defining import Case, X, check, check_relevance, half_each, hold
from torch import Tensor
from weighing import LENGTH, WIDTH, Operation, drawn

A, C = slice(None, 4), slice(4, None)
POSITIVE = X.abs() + 0.1

LOGS: dict[str, tuple[Operation, float]] = {
    "log": (torch.log, 1.0),
    "log as a method": (lambda x: x.log(), 1.0),
    "log in place": (lambda x: (1 * x).log_(), 1.0),
    "log2": (torch.log2, 1 / math.log(2)),
    "log2 in place": (lambda x: (1 * x).log2_(), 1 / math.log(2)),
    "log10": (torch.log10, 1 / math.log(10)),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_logarithm_from_one(name: str) -> None:
    """log(u) = (u - 1) [log(u) / (u - 1)], where u is 1 by its slope there."""
    operation, slope = LOGS[name]
    x = POSITIVE.clone()
    x[:, 1, 2:4] = 1.0
    label = f"{name.split()[0]} from 1"

    def factor(x: Tensor) -> Tensor:
        return torch.where(x == 1, slope, slope * x.log() / (x - 1))

    check((operation, lambda x: x * hold(factor(x)), {label: lambda x: -factor(x)}), x=x)


@pytest.mark.parametrize("name", LOGS)
def test_without_its_rule_a_logarithm_keeps_its_gradient(name: str) -> None:
    operation = LOGS[name][0]
    if "in place" not in name:
        check((operation, operation), "gi", x=POSITIVE)


def log1p_line(x: Tensor) -> Tensor:
    """log(1 + e^x), through the logarithm and the exponential."""
    return x * hold(((x.exp() - 1) / x) * torch.log1p(x.exp()) / x.exp())


GATES: dict[str, tuple[Operation, Operation]] = {
    "a logarithm of a gate is one": (
        lambda x: x[..., A] * torch.log(1 + torch.exp(x[..., C])),
        lambda x: x[..., A] * hold(torch.log(1 + torch.exp(x[..., C]))),
    ),
    "a logarithm is an activation": (
        lambda x: x[..., A] * torch.log(x[..., C] * x[..., C] + 2),
        lambda x: x[..., A] * hold(torch.log(x[..., C] * x[..., C] + 2)),
    ),
    "a logarithm of its own gates nothing else": (
        lambda x: x * torch.log(1 + torch.exp(x)),
        lambda x: x * hold(torch.log(1 + torch.exp(x))),
    ),
    "a gate and a logarithm of something linear": (
        lambda x: torch.sigmoid(x[..., A]) * torch.log(x[..., C] + 5),
        lambda x: hold(torch.sigmoid(x[..., A])) * x[..., C] * hold((x[..., C] + 5).log() / (x[..., C] + 4)),
    ),
    "a product of gates is a gate": (
        lambda x: x[..., A] * torch.sigmoid(x[..., C]).prod(-1, keepdim=True),
        lambda x: x[..., A] * hold(torch.sigmoid(x[..., C]).prod(-1, keepdim=True)),
    ),
    "a product of signals is none": (
        lambda x: x[..., A] * x[..., C].prod(-1, keepdim=True),
        lambda x: half_each(x[..., A], hold(x[..., C].prod(-1, keepdim=True)) * (x / hold(x))[..., C].mean(-1, True)),
    ),
    "a product of activations is none": (
        lambda x: torch.tanh(x[..., A]) * torch.relu(x[..., C]).prod(-1, keepdim=True),
        lambda x: hold(torch.tanh(x[..., A])) * product_of_relus(x[..., C]),
    ),
    "gates so far are gates": (
        lambda x: x[..., A] * torch.sigmoid(x[..., C]).cumprod(-1),
        lambda x: x[..., A] * hold(torch.sigmoid(x[..., C]).cumprod(-1)),
    ),
    "gates so far in place are gates": (
        lambda x: x[..., A] * torch.sigmoid(x[..., C]).cumprod_(1),
        lambda x: x[..., A] * hold(torch.sigmoid(x[..., C]).cumprod(1)),
    ),
    "the exponential of a log-softmax is a softmax": (
        lambda x: x[..., A] * torch.log_softmax(x[..., C], -1).exp(),
        lambda x: x[..., A] * hold(x[..., C].softmax(-1)),
    ),
    "the exponential of a log-softmax in place is one, too": (
        lambda x: x[..., A] * torch.log_softmax(x[..., C], -1).exp_(),
        lambda x: x[..., A] * hold(x[..., C].softmax(-1)),
    ),
    "the logarithm of a softmax is none": (
        lambda x: x[..., A] * x[..., C].softmax(-1).log(),
        lambda x: x[..., A] * hold(x[..., C].softmax(-1).log()),
    ),
}


def product_of_relus(x: Tensor) -> Tensor:
    whole = torch.relu(x).prod(-1, keepdim=True)
    return hold(whole) * torch.where(whole > 0, (x / hold(x)).mean(-1, keepdim=True), 0.0)


@pytest.mark.parametrize("name", GATES)
def test_what_it_is_in_a_product(name: str) -> None:
    check_relevance(*GATES[name])


def test_a_logarithm_is_an_activation_of_its_own() -> None:
    check_relevance(lambda x: x * torch.log(1 + x.abs()), lambda x: x * hold(torch.log(1 + x.abs())), "lrp(act)")


def test_a_logarithm_of_weights_weighs_nothing() -> None:
    """Beside an activation it is another one."""

    def line(x: Tensor) -> Tensor:
        weights = x[..., C].softmax(-1)
        factor = hold(weights.log() / (weights - 1))
        return half_each(x[..., A] * hold(torch.tanh(x[..., A]) / x[..., A]), weights * factor - factor)

    check_relevance(lambda x: torch.tanh(x[..., A]) * x[..., C].softmax(-1).log(), line, "lrp(act+gate)")


# Sums of exponentials


def mixed(x: Tensor, axes: Any, seen: Tensor | None = None) -> Tensor:
    """sum_k w_k s_k, w between even weights and the softmax, so that it is log sum exp(s) - log n."""
    seen = torch.ones_like(x, dtype=torch.bool) if seen is None else seen.expand_as(x)
    with torch.no_grad():
        count = seen.sum(axes, keepdim=True).to(x.dtype)
        even = seen / count
        soft = torch.where(seen, x.exp(), 0.0)
        wanted = soft.sum(axes, keepdim=True).log() - count.log()
        soft = soft / soft.sum(axes, keepdim=True)
        low, high = ((w * x).sum(axes, keepdim=True) for w in (even, soft))
        share = torch.where(high == low, 0.0, (wanted - low) / (high - low))
        weights = even + share * (soft - even)
    return (weights * x).sum(axes, keepdim=True)


MASK = torch.tensor([[True], [False], [True], [True]])
BOTH = torch.log(torch.tensor(2.0, dtype=torch.float64))


def two(a: Tensor, b: Tensor) -> Tensor:
    return mixed(torch.stack(torch.broadcast_tensors(a, b)), 0)[0]


POINT = drawn(WIDTH, seed=9)

SUMS: dict[str, Case] = {
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: mixed(x, 1)[:, 0], {"logsumexp(0)": math.log(LENGTH)}),
    "logsumexp, kept": (
        lambda x: torch.logsumexp(x, dim=-1, keepdim=True),
        lambda x: mixed(x, -1),
        {"logsumexp(0)": math.log(WIDTH)},
    ),
    "logsumexp, a list": (
        lambda x: torch.logsumexp(x, [1, 2]).unsqueeze(1),
        lambda x: mixed(x, (1, 2))[:, 0],
        {"logsumexp(0)": math.log(LENGTH * WIDTH)},
    ),
    "logsumexp by special": (
        lambda x: torch.special.logsumexp(x, (1,), keepdim=True),
        lambda x: mixed(x, 1),
        {"special_logsumexp(0)": math.log(LENGTH)},
    ),
    "logsumexp, masked": (
        lambda x: x.masked_fill(~MASK, -math.inf).logsumexp(1),
        lambda x: mixed(x, 1, MASK)[:, 0],
        {"logsumexp(0)": math.log(3), "masked_fill": 0.0},
    ),
    "logsumexp of one": (
        lambda x: x.masked_fill(torch.tensor([[False], [True], [True], [True]]), -math.inf).logsumexp(1),
        lambda x: x[:, 0],
        {"logsumexp(0)": 0.0, "masked_fill": 0.0},
    ),
    "logaddexp": (
        lambda x: torch.logaddexp(x[..., A], x[..., C]),
        lambda x: two(x[..., A], x[..., C]),
        {"logsumexp(0)": math.log(2)},
    ),
    "logaddexp2": (
        lambda x: torch.logaddexp2(x[..., A], other=x[..., C]),
        lambda x: two(x[..., A] * BOTH, x[..., C] * BOTH) / BOTH,
        {"logsumexp(0)": 1.0},
    ),
    "logaddexp, broadcast": (
        lambda x: torch.logaddexp(x[:, :1], x),
        lambda x: two(x[:, :1], x),
        {"logsumexp(0)": math.log(2)},
    ),
    "log_softmax": (
        lambda x: x.log_softmax(1),
        lambda x: x - mixed(x, 1),
        {"logsumexp(0)": -math.log(LENGTH)},
    ),
    "log_softmax, named": (
        lambda x: F.log_softmax(x, dim=-1),
        lambda x: x - mixed(x, -1),
        {"logsumexp(0)": -math.log(WIDTH)},
    ),
    "log_softmax by special": (
        lambda x: torch.special.log_softmax(x, 1),
        lambda x: x - mixed(x, 1),
        {"logsumexp(0)": -math.log(LENGTH)},
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_exponentials(name: str) -> None:
    check(SUMS[name])


@pytest.mark.parametrize("name", SUMS)
def test_without_its_rule_a_sum_of_exponentials_keeps_its_gradient(name: str) -> None:
    operation = SUMS[name][0]
    check((operation, operation, {"masked_fill": 0.0} if "masked" in name or "of one" in name else {}), "gi")


def test_a_row_that_is_masked_all_over_passes_nothing_on() -> None:
    """log of nothing is -inf, which no score is made of: here it is left out by a condition."""

    def operation(x: Tensor) -> Tensor:
        sums = x.masked_fill(torch.tensor([[True], [False], [False], [False]]), -math.inf).logsumexp(-1)
        return sums.masked_fill(sums == -math.inf, 0.0)

    check((operation, lambda x: torch.cat([0 * x[:, :1, 0], mixed(x, -1)[:, 1:, 0]], 1)), group="biases")


def test_scores_that_are_all_alike_share_evenly() -> None:
    x = X.clone()
    x[:, :, :] = x[:, :, :1]
    check((lambda x: x.logsumexp(-1), lambda x: x.mean(-1), {"logsumexp(0)": math.log(WIDTH)}), x=x)


def test_the_exponential_of_a_log_softmax_is_held_by_the_rule_for_attention() -> None:
    """Without that rule it is an activation."""
    check_relevance(
        lambda x: x[..., A] * x[..., C].log_softmax(-1).exp(),
        lambda x: x[..., A] * hold(x[..., C].softmax(-1)),
        "lrp(ah+gate)",
    )
    check_relevance(
        lambda x: x.log_softmax(-1).exp(),
        lambda x: (x - mixed(x, -1)) * hold((x.softmax(-1) - 1) / x.log_softmax(-1)),
        "lrp(act)",
    )


def test_another_function_of_a_log_softmax_is_an_activation() -> None:
    check_relevance(
        lambda x: torch.tanh(x.log_softmax(-1)),
        lambda x: (x - mixed(x, -1)) * hold(torch.tanh(x.log_softmax(-1)) / x.log_softmax(-1)),
    )


# Distances

POINTS = drawn(5, WIDTH, seed=8)
POINTS[1, 3] = X[0, 1, 3]  # a coordinate in which the two do not differ


def slopes(a: Tensor, b: Tensor, p: float) -> Tensor:
    """Of |a - b|_p by a, [..., a, b, coordinates]."""
    step = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == math.inf:
        longest = step.abs() == step.abs().amax(-1, keepdim=True)
        return step.sign() * longest / longest.sum(-1, keepdim=True)
    size = step.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)
    return torch.where(size == 0, 0.0, step.sign() * step.abs().pow(p - 1) / size.pow(p - 1))


def distance_case(p: float, named: bool = False) -> Case:
    return (
        (lambda x: torch.cdist(x, POINTS, p=p)) if named else (lambda x: torch.cdist(x, POINTS, p)),
        lambda x: (x.unsqueeze(-2) * hold(slopes(x, POINTS, p))).sum(-1),
        {"cdist": lambda x: -(POINTS * slopes(x, POINTS, p)).sum(-1)},
    )


@pytest.mark.parametrize("method", ["lrp", "gi"])
@pytest.mark.parametrize("samples", [1, 3, 5])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 1.5, math.inf])
def test_distances_to_points(p: float, samples: int, method: str) -> None:
    x = torch.cat([X, drawn(2, LENGTH, WIDTH, seed=11)])[:samples]
    check(distance_case(p), method, x)
    check(distance_case(p, named=True), method, x)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances_from_points(p: float) -> None:
    case = (
        lambda x: torch.cdist(POINTS.expand(len(x), -1, -1), x, p),
        lambda x: (x.unsqueeze(-2) * hold(slopes(x, POINTS, p))).sum(-1).mT,
        {"cdist": lambda x: -(POINTS * slopes(x, POINTS, p)).sum(-1).mT},
    )
    check(case)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_a_point_that_is_met_has_no_part(p: float) -> None:
    """At a distance of 0 there is no direction."""
    x = X.clone()
    x[0, 2] = POINTS[3]
    check(
        (
            lambda x: torch.cdist(x, POINTS, p),
            lambda x: (x.unsqueeze(-2) * hold(slopes(x, POINTS, p))).sum(-1),
            {"cdist": lambda x: -(POINTS * slopes(x, POINTS, p)).sum(-1)},
        ),
        x=x,
    )


def apart(x: Tensor, b: Tensor, eps: float, p: float = 2.0) -> Tensor:
    """|x - b + eps|_p: each coordinate's part of it, as a slope."""
    step = x - b + eps
    size = step.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)
    return step.sign() * step.abs().pow(p - 1) / size.pow(p - 1)


def pair_case(operation: Operation, eps: float, p: float = 2.0, keep: bool = False) -> Case:
    def summed(y: Tensor) -> Tensor:
        return y.sum(-1, keepdim=keep)

    return (
        operation,
        lambda x: summed(x * hold(apart(x, POINT, eps, p))),
        {
            "sub": lambda x: summed(-POINT * apart(x, POINT, eps, p)),
            "add": lambda x: summed(eps * apart(x, POINT, eps, p)),
        },
    )


PAIRS: dict[str, Case] = {
    "plain": pair_case(lambda x: F.pairwise_distance(x, POINT), 1e-6),
    "by position": pair_case(lambda x: F.pairwise_distance(x, POINT, 3.0, 0.2, True), 0.2, 3.0, keep=True),
    "named": pair_case(lambda x: F.pairwise_distance(x, POINT, p=3.0, eps=0.2, keepdim=True), 0.2, 3.0, keep=True),
    "named points": pair_case(lambda x: F.pairwise_distance(x1=x, x2=POINT, p=1.0, eps=0.1), 0.1, 1.0),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_distance_of_pairs(name: str) -> None:
    check(PAIRS[name])


def cosine_line(a: Tensor, b: Tensor, axis: int, eps: float = 1e-8) -> Tensor:
    a, b = (v / hold(v.norm(dim=axis, keepdim=True).clamp_min(eps)) for v in (a, b))
    return (half_each(a, b) if b.requires_grad else a * b).sum(axis)


COSINES: dict[str, tuple[Operation, Operation]] = {
    "of two": (
        lambda x: F.cosine_similarity(x[:, :2], x[:, 2:], -1),
        lambda x: cosine_line(x[:, :2], x[:, 2:], -1),
    ),
    "along its own axis": (
        lambda x: F.cosine_similarity(x[..., A], x[..., C]),
        lambda x: cosine_line(x[..., A], x[..., C], 1),
    ),
    "named": (
        lambda x: F.cosine_similarity(x1=x, x2=POINT.expand_as(x), dim=2, eps=5.0),
        lambda x: cosine_line(x, POINT, -1, 5.0),
    ),
    "by position": (
        lambda x: F.cosine_similarity(x, POINT.expand_as(x), 2, 5.0),
        lambda x: cosine_line(x, POINT, -1, 5.0),
    ),
    "of small numbers": (
        lambda x: F.cosine_similarity(1e-9 * x, POINT.expand_as(x), -1),
        lambda x: cosine_line(1e-9 * x, POINT, -1),
    ),
}


@pytest.mark.parametrize("name", COSINES)
def test_an_angle(name: str) -> None:
    check_relevance(*COSINES[name])


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: torch.cdist(x[..., A], drawn(4, 4)) * x[..., C],
        lambda x: F.pairwise_distance(x[..., A], drawn(4), keepdim=True) * x[..., C],
    ],
)
def test_a_distance_is_a_size(operation: Operation) -> None:
    """Held where it multiplies a signal."""

    def held(x: Tensor) -> Tensor:
        return hold(operation(torch.cat([x[..., A], torch.ones_like(x[..., C])], -1))) * x[..., C]

    check_relevance(operation, held)


# Products of many


def counts(x: Tensor, axis: int) -> Tensor:
    return torch.ones_like(x).cumsum(axis)


def so_far(x: Tensor, axis: int) -> Tensor:
    """Each of n factors takes an n-th."""
    return hold(x.cumprod(axis)) * (x / hold(x)).cumsum(axis) / counts(x, axis)


def of_all(x: Tensor, axis: int) -> Tensor:
    return hold(x.prod(axis)) * (x / hold(x)).mean(axis)


PRODUCTS: dict[str, tuple[Operation, Operation]] = {
    "prod": (lambda x: x.prod(1), lambda x: of_all(x, 1)),
    "prod of the last axis": (lambda x: torch.prod(x, -1), lambda x: of_all(x, -1)),
    "prod, named": (lambda x: torch.prod(x, dim=2, keepdim=True), lambda x: of_all(x, 2)[..., None]),
    "prod of all there is": (lambda x: x.flatten(1).prod(1, True), lambda x: of_all(x.flatten(1), 1)[:, None]),
    "prod of nothing": (
        lambda x: x.prod(1) + x[..., :0].prod(1).sum(-1, keepdim=True),
        lambda x: of_all(x, 1),
    ),
    "cumprod": (lambda x: x.cumprod(1), lambda x: so_far(x, 1)),
    "cumprod from the end": (lambda x: torch.cumprod(x, -1), lambda x: so_far(x, 2)),
    "cumprod, named": (lambda x: torch.cumprod(x, dim=-2), lambda x: so_far(x, 1)),
    "cumprod in place": (lambda x: (1 * x).cumprod_(1), lambda x: so_far(x, 1)),
    "cumprod in place, named": (lambda x: (1 * x).cumprod_(dim=-1), lambda x: so_far(x, 2)),
    "cumprod into what is used again": (
        lambda x: (lambda y: y.cumprod_(1) + y)(1 * x),
        lambda x: 2 * so_far(x, 1),
    ),
}


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_many(name: str, samples: int) -> None:
    check(PRODUCTS[name], x=X[:samples])


@pytest.mark.parametrize("name", [name for name in PRODUCTS if "in place" not in name])
def test_without_its_rule_a_product_of_many_keeps_its_gradient(name: str) -> None:
    operation = PRODUCTS[name][0]
    check((operation, operation), "gi")
