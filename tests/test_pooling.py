"""Pooling, logarithms, products of many, blends, distances: each closes, needs its rule, and is what sums say."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_operations import Wrapped, closes, data
from tiny import randomised
from torch import Tensor, nn

import headwater as hw


class Two(nn.Module):
    """A function of two signals and of what both are made from."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.left, self.right, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.left(x), self.right(x), x)


class Learned(nn.Module):
    """A function of a signal and of eight learned points."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.points, self.function = nn.Parameter(torch.zeros(8, 8)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.points)


def gem(x: Tensor, power: Tensor | float = 3.0) -> Tensor:
    """Generalised mean, as in image retrieval."""
    return x.clamp(min=1e-6).pow(power).mean(1, keepdim=True).pow(1 / power)


def blended_in_place(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    a = a * 1
    a.lerp_(b, torch.sigmoid(x))
    return a


def made_weights(a: Tensor, b: Tensor, x: Tensor, bias: bool) -> Tensor:
    """A layer whose weights, and bias, are made from the sample itself."""
    rows = [F.linear(u, v.T @ v, v[0] if bias else None) for u, v in zip(a, b, strict=True)]
    return torch.stack(rows)


def spread(x: Tensor) -> Tensor:
    return x[..., None].expand(*x.shape, 8)


OPERATIONS: dict[str, Callable[[], Callable[[Tensor], Tensor] | nn.Module]] = {
    "lerp by a gate": lambda: Two(lambda a, b, x: torch.lerp(a, b, torch.sigmoid(x))),
    "lerp by a signal": lambda: Two(lambda a, b, x: a.lerp(b, x)),
    "lerp in place": lambda: Two(blended_in_place),
    "lerp to what is learned": lambda: Learned(lambda x, p: torch.lerp(x, p[0], torch.sigmoid(x))),
    "lerp from what is learned": lambda: Learned(lambda x, p: torch.lerp(p[0].expand_as(x), x, 0.3)),
    "weights from the input": lambda: Two(lambda a, b, x: made_weights(a, b, x, bias=False)),
    "weights and bias from the input": lambda: Two(lambda a, b, x: made_weights(a, b, x, bias=True)),
    "log": lambda: lambda x: torch.log(F.softplus(x) + 0.1),
    "log in place": lambda: lambda x: (x * x + 0.1).log_(),
    "log2": lambda: lambda x: torch.log2(x.exp() + 0.1),
    "log10": lambda: lambda x: torch.log10(x.abs() + 0.1),
    "prod": lambda: lambda x: x.prod(1, keepdim=True),
    "prod of gates": lambda: lambda x: x * torch.sigmoid(x.flip(-1)).prod(-1, keepdim=True),
    "cumprod": lambda: lambda x: x.cumprod(1),
    "cumprod of what remains": lambda: lambda x: (1 - torch.sigmoid(x)).cumprod(1),
    "logsumexp": lambda: lambda x: x.logsumexp(1, keepdim=True),
    "logsumexp over two axes": lambda: lambda x: x.reshape(len(x), 4, 4, 2).logsumexp((1, 3)).repeat(1, 2)[:, None],
    "logsumexp, masked": lambda: (
        lambda x: x.masked_fill(torch.tensor([[False], [True], [False], [False]]), -math.inf).logsumexp(1, keepdim=True)
    ),
    "logaddexp": lambda: Two(lambda a, b, x: torch.logaddexp(a, b)),
    "logaddexp2": lambda: Two(lambda a, b, x: torch.logaddexp2(a, b)),
    "logaddexp with what is learned": lambda: Learned(lambda x, p: torch.logaddexp(x, p[0])),
    "log_softmax": lambda: lambda x: x.log_softmax(-1)[..., :4].repeat(1, 1, 2),
    "log_softmax as a function": lambda: lambda x: F.log_softmax(x, dim=1) * x.new_tensor([[1.0], [2], [0], [0]]),
    "logsigmoid": lambda: F.logsigmoid,
    "GeM": lambda: gem,
    "GeM, learned": lambda: Learned(lambda x, p: gem(x, 3 + p[0, 0])),
    "power by channel": lambda: Learned(lambda x, p: x.abs() ** (2 + p[0])),
    "root of a mean square": lambda: lambda x: x.square().mean(1, keepdim=True).sqrt(),
    "root of a mean square by pow": lambda: lambda x: (x**2).mean(1, keepdim=True) ** 0.5,
    "root in place": lambda: lambda x: (x * x).mean(1, keepdim=True).sqrt_(),
    "variance": lambda: lambda x: x.var(1, keepdim=True),
    "deviation with eps": lambda: lambda x: (x.var(1, keepdim=True) + 0.1).sqrt(),
    "variance beside the mean": lambda: lambda x: torch.cat(torch.var_mean(x, 1, keepdim=True), 1),
    "power below one": lambda: lambda x: (x.abs() + 0.5) ** 0.3,
    "cosine similarity": lambda: Two(lambda a, b, x: spread(F.cosine_similarity(a, b, dim=-1))),
    "cosine similarity to prototypes": lambda: Learned(lambda x, p: F.cosine_similarity(x[..., None, :], p, dim=-1)),
    "cdist to prototypes": lambda: Learned(torch.cdist),
    "cdist from prototypes": lambda: Learned(lambda x, p: torch.cdist(p.expand(len(x), 8, 8), x).mT),
    "cdist, first norm": lambda: Learned(lambda x, p: torch.cdist(x, p, p=1)),
    "cdist, third norm": lambda: Learned(lambda x, p: torch.cdist(x, p, p=3)),
    "cdist, largest": lambda: Learned(lambda x, p: torch.cdist(x, p, p=math.inf)),
    "square of a distance": lambda: Learned(lambda x, p: -(torch.cdist(x, p) ** 2)),
    "nearness": lambda: Learned(lambda x, p: torch.exp(-torch.cdist(x, p))),
    "nearness as in ProtoPNet": lambda: Learned(lambda x, p: torch.log((torch.cdist(x, p) ** 2 + 1) / 1.1)),
    "pairwise distance": lambda: Two(lambda a, b, x: spread(F.pairwise_distance(a, b, eps=0.1))),
    "pairwise distance to a prototype": lambda: Learned(lambda x, p: spread(F.pairwise_distance(x, p[0]))),
}
BY_GRADIENT: dict[str, Callable[[], Callable[[Tensor], Tensor] | nn.Module]] = {
    "lerp by a number": lambda: Two(lambda a, b, x: torch.lerp(a, b, 0.3)),
    "root of a variance": lambda: lambda x: x.var(1, keepdim=True).sqrt(),
    "deviation": lambda: lambda x: x.std(1, keepdim=True),
    "size": lambda: lambda x: x.norm(dim=1, keepdim=True),
    "distances of two signals": lambda: Two(lambda a, b, x: torch.cdist(a, b).repeat(1, 1, 2)),
}


@pytest.mark.parametrize("name", [*OPERATIONS, *BY_GRADIENT])
def test_it_closes(name: str) -> None:
    assert closes(Wrapped({**OPERATIONS, **BY_GRADIENT}[name]()), data()) < 1e-12


BOOKED = {"lerp from what is learned", *(name for name in OPERATIONS if name.startswith(("cdist", "pairwise")))}
HOMOGENEOUS = {name for name in OPERATIONS if name.startswith(("GeM", "root"))}


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - BOOKED - HOMOGENEOUS))
def test_it_is_open_without_its_rule(name: str) -> None:
    """What is learned is a line by any method; and a root of powers is in order by its gradient, or by rules for both.

    With a rule for the powers alone it is not, as by `lrp` of models with a root that is no divisor.
    """
    assert closes(Wrapped(OPERATIONS[name]()), data(), "gi") > 1e-4


@pytest.mark.parametrize("name", BY_GRADIENT)
def test_what_is_twice_as_large_for_twice_the_signal_keeps_its_gradient(name: str) -> None:
    model = randomised(Wrapped(BY_GRADIENT[name]()).double())
    ours, plain = (hw.explain(model, data(1), method=m, score=lambda out: out[:, 1])[0] for m in ("lrp", "gi"))
    assert ours.relevance == pytest.approx(plain.relevance, abs=1e-12)


@pytest.mark.parametrize("name", ["cdist to prototypes", "nearness", "pairwise distance to a prototype"])
def test_prototypes_are_booked_under_their_name(name: str) -> None:
    model = randomised(Wrapped(OPERATIONS[name]()).double())
    e = hw.explain(model, data(1), score=lambda out: out[:, 1])[0]
    assert abs(e.ledger.biases["operation.points"]) > 1e-3


class Bare(nn.Module):
    """The operation alone: the score is a weighted sum of what comes out."""

    def __init__(self, operation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        out = self.operation(x)
        return (out * weights_like(out)).flatten(1).sum(1, keepdim=True)


def weights_like(out: Tensor) -> Tensor:
    return torch.arange(1.0, out[0].numel() + 1, dtype=out.dtype).reshape(out[0].shape)


def relevance(operation: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, float]:
    """Of the input, and of all constants together."""
    (e,) = hw.explain(Bare(operation).eval(), x[None], score=lambda out: out[:, 0])
    assert e.ledger.error < 1e-12
    return e.relevance, e.ledger.biases + e.ledger.constants


def test_logarithm_by_hand() -> None:
    x = data(1)[0].abs() + 0.1
    found, constants = relevance(torch.log, x)
    expected = weights_like(x[None]) * x * x.log() / (x - 1)
    torch.testing.assert_close(found, expected)
    assert constants == pytest.approx(float(-(expected / x).sum()))


def test_logarithm_undoes_the_exponential() -> None:
    x = data(1)[0]
    torch.testing.assert_close(relevance(lambda x: x.exp().log(), x)[0], weights_like(x[None]) * x)
    torch.testing.assert_close(relevance(lambda x: (1 + x * x).log(), x)[0], relevance(lambda x: (x * x).log1p(), x)[0])


def test_products_by_hand() -> None:
    x = data(1)[0]
    found, constants = relevance(lambda x: x.prod(1), x)
    whole = x.prod(0) * weights_like(x[None, 0])
    torch.testing.assert_close(found, (whole / 4).expand(4, 6))
    assert constants == 0
    found, _ = relevance(lambda x: x.cumprod(1), x)
    parts = x.cumprod(0) * weights_like(x[None]) / torch.arange(1.0, 5).double()[:, None]
    torch.testing.assert_close(found, parts.flip(0).cumsum(0).flip(0))


def test_a_factor_of_zero_takes_what_its_gradient_says() -> None:
    x = data(1)[0]
    x[1] = 0
    assert not relevance(lambda x: x.prod(1), x)[0].any()


def test_log_sum_exp_by_hand() -> None:
    """log 4 is the constant; the weights of the rest are even ones and the softmax, mixed so that they give it."""
    x = 3 * data(1)[0]
    found, constants = relevance(lambda x: x.logsumexp(1), x)
    expected = torch.zeros_like(x)
    for column in range(6):
        s = x[:, column]
        soft, even = s.softmax(0), torch.full((4,), 0.25).double()
        low, high, wanted = float(even @ s), float(soft @ s), float(s.exp().mean().log())
        part = (wanted - low) / (high - low)
        assert 0 < part < 1
        expected[:, column] = (column + 1) * (even + part * (soft - even)) * s
    torch.testing.assert_close(found, expected)
    assert constants == pytest.approx(21 * math.log(4))


def test_generalised_mean_by_hand() -> None:
    """y = (sum x^p / n)^(1/p): the share of each is x^p of the sum."""
    x = data(1)[0].abs() + 0.1
    found, constants = relevance(lambda x: x.pow(3).mean(1).pow(1 / 3), x)
    y = x.pow(3).mean(0).pow(1 / 3) * weights_like(x[None, 0])
    torch.testing.assert_close(found, y * x.pow(3) / x.pow(3).sum(0))
    assert constants == 0


def test_variance_by_hand() -> None:
    x = data(1)[0]
    found, _ = relevance(lambda x: x.var(1), x)
    torch.testing.assert_close(found, x * (x - x.mean(0)) / 3 * weights_like(x[None, 0]))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_distance_to_points_by_hand(power: float) -> None:
    x, points = data(1)[0], torch.randn(5, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found, constants = relevance(lambda x: torch.cdist(x, points, p=power), x)
    expected, booked = torch.zeros_like(x), 0.0
    for i in range(4):
        for j in range(5):
            step = x[i] - points[j]
            slope = step.sign() * step.abs() ** (power - 1) / step.norm(power) ** (power - 1)
            expected[i] += (5 * i + j + 1) * x[i] * slope
            booked -= (5 * i + j + 1) * float(points[j] @ slope)
    torch.testing.assert_close(found, expected)
    assert constants == pytest.approx(booked)


def test_cosine_by_hand() -> None:
    x = data(1)[0]
    found, _ = relevance(lambda x: F.cosine_similarity(x[:, :2], x[:, 2:], dim=-1), x)
    a, b = x[:2], x[2:]
    shares = 0.5 * a * b / a.norm(dim=-1, keepdim=True) / b.norm(dim=-1, keepdim=True) * torch.tensor([[1.0], [2.0]])
    torch.testing.assert_close(found, torch.cat([shares, shares]))


def test_blend_by_hand() -> None:
    """A gate is held constant, so that start and end share by it; a weight that is a signal itself takes half."""
    x = data(1)[0]

    def blended(x: Tensor, gate: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.lerp(x[:, 0], x[:, 1], gate(x[:, 2]))

    scale = weights_like(x[None, 0])
    gate = x[2].sigmoid()
    found, _ = relevance(lambda x: blended(x, torch.sigmoid), x)
    torch.testing.assert_close(found[:3], scale * torch.stack([(1 - gate) * x[0], gate * x[1], 0 * x[2]]))
    found, _ = relevance(lambda x: blended(x, lambda w: w), x)
    half = 0.5 * x[2]
    expected = torch.stack([(1 - half) * x[0], half * x[1], half * (x[1] - x[0])])
    torch.testing.assert_close(found[:3], scale * expected)


def test_made_weights_by_hand() -> None:
    x = data(1)[0]
    found, _ = relevance(lambda x: F.linear(x[0, :2], x[0, 2:])[None], x)
    shares = torch.zeros_like(x)
    for i in range(2):
        for j in range(2):
            part = 0.5 * (2 * i + j + 1) * x[i] * x[2 + j]
            shares[i] += part
            shares[2 + j] += part
    torch.testing.assert_close(found, shares)
