"""A softmax written out: held where a softmax is, and shared as it is, whatever divides the exponentials."""

from __future__ import annotations

import pytest
import torch
from defining import X, check_relevance, explain_alone, hold
from torch import Tensor
from weighing import Operation

A, C = slice(None, 4), slice(4, None)


def total(e: Tensor) -> Tensor:
    return e.sum(-1, keepdim=True)


BY_HAND: dict[str, Operation] = {
    "over its sum": lambda s: (lambda e: e / total(e))(s.exp()),
    "over its sum, twice": lambda s: s.exp() / total(s.exp()),
    "by div": lambda s: torch.div(s.exp(), total(s.exp()), rounding_mode=None),
    "by true_divide, named": lambda s: torch.true_divide(input=s.exp(), other=total(s.exp())),
    "from the right": lambda s: total(s.exp()).__rtruediv__(s.exp()),
    "times one over": lambda s: s.exp() * (1 / total(s.exp())),
    "one over times": lambda s: (1 / total(s.exp())) * s.exp(),
    "times one over, named": lambda s: torch.mul(s.exp(), other=1.0 / total(s.exp())),
    "times a reciprocal": lambda s: s.exp() * total(s.exp()).reciprocal(),
    "a reciprocal times": lambda s: torch.reciprocal(total(s.exp())) * s.exp(),
    "in place": lambda s: s.exp().div_(total(s.exp())),
    "without what is largest": lambda s: (lambda e: e / total(e))((s - hold(s).amax(-1, keepdim=True)).exp()),
    "weights over their sum": lambda s: (lambda w: w / total(w))(s.softmax(-1)),
}


def of_values(weights: Operation) -> Operation:
    return lambda x: weights(x[..., C]) @ x[..., A]


def softmax(s: Tensor) -> Tensor:
    return s.softmax(-1)


@pytest.mark.parametrize("name", BY_HAND)
def test_it_is_held(name: str) -> None:
    """What it weighs gets everything, its scores nothing."""
    check_relevance(of_values(BY_HAND[name]), lambda x: hold(softmax(x[..., C])) @ x[..., A])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name in BY_HAND
        for method in ("lrp(ah=secant)", "lrp(ah=query)", "lrp(ah=secant+act+gate)")
        if (name, method) != ("in place", "lrp(ah=query)")  # the exponential's gradient needs what is written over
    ],
)
def test_it_takes_part_as_a_softmax_does(name: str, method: str) -> None:
    ours, theirs = (explain_alone(of_values(weights), method, X) for weights in (BY_HAND[name], softmax))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.relevance, b.relevance, rtol=1e-9, atol=1e-12)
        assert a.ledger.constants.total == pytest.approx(b.ledger.constants.total, abs=1e-10)
        assert bool(a.relevance[..., C].any())


@pytest.mark.parametrize("name", [name for name in BY_HAND if "in place" not in name])
def test_without_rules_it_is_its_gradient(name: str) -> None:
    check_relevance(of_values(BY_HAND[name]), of_values(softmax), "gi")


@pytest.mark.parametrize("name", [name for name in BY_HAND if "in place" not in name])
def test_with_half_it_keeps_its_gradient(name: str) -> None:
    """Half to the values and half to the weights, and through these as the gradient goes."""

    def line(x: Tensor) -> Tensor:
        weights, values = softmax(x[..., C]), x[..., A]
        return 0.5 * (hold(weights) @ values + weights @ hold(values))

    check_relevance(of_values(BY_HAND[name]), line, "lrp(ah=half)")


@pytest.mark.parametrize("name", BY_HAND)
def test_where_it_multiplies_it_is_held_by_its_rule(name: str) -> None:
    """Which is then met, and says so."""
    check_relevance(
        lambda x: BY_HAND[name](x[..., C]) * x[..., A],
        lambda x: hold(softmax(x[..., C])) * x[..., A],
        "lrp(gate)" if name == "in place" else "lrp(ah+gate)",
    )


@pytest.mark.parametrize("method", ["lrp", "lrp(ah=secant+act+gate)"])
def test_an_exponential_in_place_closes(method: str) -> None:
    """Its scores are gone: it is an activation over its sum."""

    def operation(x: Tensor) -> Tensor:
        e = (1 * x[..., C]).exp_()
        return (e / total(e)) @ x[..., A]

    for e in explain_alone(operation, method, X):
        assert e.ledger.error < 1e-10


@pytest.mark.parametrize("function", [torch.exp, torch.sigmoid, torch.square, torch.exp2, torch.cosh])
def test_only_exponentials_over_their_sum_are_a_softmax(function: Operation) -> None:
    """What is nothing of the kind has no even attention to begin with."""

    def operation(x: Tensor) -> Tensor:
        e = function(x)
        return e / total(e)

    for e in explain_alone(operation, "lrp-secant", X):
        assert ("even attention" in e.ledger.constants) is (function is torch.exp)
