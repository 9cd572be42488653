"""Attention in which queries take part closes however it is written, and by hand is what it is as a function."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from test_operations import Wrapped, closes, data
from tiny import randomised
from torch import Tensor, nn

import headwater as hw
from headwater.rules.attention.query import QUERY_SHARE
from headwater.rules.attention.shares import OFFSET

METHODS = ("lrp-secant", "lrp-query")
Spelling = Callable[[Tensor, Tensor, Tensor], Tensor]


class Attention(nn.Module):
    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self.query, self.key, self.value, self.spelling = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), spelling

    def forward(self, x: Tensor) -> Tensor:
        return self.spelling(self.query(x), self.key(x), self.value(x))


def causal() -> Tensor:
    return torch.ones(4, 4, dtype=torch.bool).tril()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def over_sum(weights: Tensor, more: float = 0.0) -> Tensor:
    return weights / (weights.sum(-1, keepdim=True) + more)


def less_largest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    return over_sum(torch.exp(scores - scores.amax(-1, keepdim=True))) @ v


def times_inverse(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = torch.exp(q @ k.mT)
    return (e * (1 / e.sum(-1, keepdim=True))) @ v


def times_reciprocal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = torch.exp(q @ k.mT)
    return (e * e.sum(-1, keepdim=True).reciprocal()) @ v


def divided_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT).softmax(-1) * causal()
    weights /= weights.sum(-1, keepdim=True)
    return weights @ v


def talking_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mix = torch.tensor([[0.3, 0.7], [0.6, 0.4]], dtype=q.dtype)
    weights = torch.einsum("bhij,hg->bgij", (heads(q) @ heads(k).mT).softmax(-1), mix)
    return (weights @ heads(v)).transpose(1, 2).flatten(2)


def slots(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Slot attention: a softmax along one axis, a mean along the other."""
    weights = (q @ k.mT).softmax(-1)
    return (weights / weights.sum(1, keepdim=True)).mT @ v


def with_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    sink = torch.full((len(q), 4, 1), 0.3, dtype=q.dtype)
    return torch.cat([q @ k.mT, sink], -1).softmax(-1)[..., :-1] @ v


BY_HAND: dict[str, tuple[Spelling, Spelling]] = {
    "exponentials over their sum": (
        lambda q, k, v: over_sum(torch.exp(q @ k.mT)) @ v,
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    ),
    "less the largest": (less_largest, lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "times one over the sum": (times_inverse, lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "times the reciprocal": (times_reciprocal, lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "masked by -inf": (
        lambda q, k, v: over_sum(torch.exp((q @ k.mT).masked_fill(~causal(), -math.inf))) @ v,
        lambda q, k, v: (q @ k.mT).masked_fill(~causal(), -math.inf).softmax(-1) @ v,
    ),
    "masked by a factor": (
        lambda q, k, v: over_sum(torch.exp(q @ k.mT) * causal().to(q)) @ v,
        lambda q, k, v: (q @ k.mT).masked_fill(~causal(), -math.inf).softmax(-1) @ v,
    ),
    "exponentials filled": (
        lambda q, k, v: over_sum(torch.exp(q @ k.mT).masked_fill(~causal(), 0)) @ v,
        lambda q, k, v: (q @ k.mT).masked_fill(~causal(), -math.inf).softmax(-1) @ v,
    ),
    "weights masked, over their sum": (
        lambda q, k, v: over_sum((q @ k.mT).softmax(-1) * causal()) @ v,
        lambda q, k, v: (q @ k.mT).masked_fill(~causal(), -math.inf).softmax(-1) @ v,
    ),
    "heads": (
        lambda q, k, v: (over_sum(torch.exp(heads(q) @ heads(k).mT)) @ heads(v)).transpose(1, 2).flatten(2),
        lambda q, k, v: ((heads(q) @ heads(k).mT).softmax(-1) @ heads(v)).transpose(1, 2).flatten(2),
    ),
}

OTHERS: dict[str, Spelling] = {
    "over the sum and a little": lambda q, k, v: over_sum(torch.exp(q @ k.mT), 1e-3) @ v,
    "over the sum and one": lambda q, k, v: over_sum(torch.exp(q @ k.mT), 1.0) @ v,
    "over the sum in place": divided_in_place,
    "masked afterwards": lambda q, k, v: ((q @ k.mT).softmax(-1) * causal()) @ v,
    "masked afterwards, filled": lambda q, k, v: (q @ k.mT).softmax(-1).masked_fill(~causal(), 0.0) @ v,
    "masked afterwards, where": lambda q, k, v: torch.where(causal(), (q @ k.mT).softmax(-1), 0.0) @ v,
    "masked afterwards, in place": lambda q, k, v: (q @ k.mT).softmax(-1).masked_fill_(~causal(), 0.0) @ v,
    "times a number": lambda q, k, v: ((q @ k.mT).softmax(-1) * 0.7) @ v,
    "over a number": lambda q, k, v: ((q @ k.mT).softmax(-1) / 0.7) @ v,
    "a part of them": lambda q, k, v: (q @ k.mT).softmax(-1)[..., :3] @ v[:, :3],
    "with a sink": with_sink,
    "over two axes": lambda q, k, v: (q @ k.mT).flatten(1).softmax(-1).unflatten(-1, (4, 4)) @ v,
    "without NaN": lambda q, k, v: torch.nan_to_num((q @ k.mT).softmax(-1)) @ v,
    "one less another": lambda q, k, v: ((q @ k.mT).softmax(-1) - 0.3 * (k @ q.mT).softmax(-1)) @ v,
    "mean of two": lambda q, k, v: (0.5 * (q @ k.mT).softmax(-1) + 0.5 * (k @ q.mT).softmax(-1)) @ v,
    "talking heads": talking_heads,
    "slots": slots,
    "added to": lambda q, k, v: torch.baddbmm(v, (q @ k.mT).softmax(-1), v),
    "added to what is constant": lambda q, k, v: torch.baddbmm(torch.ones_like(v), (q @ k.mT).softmax(-1), v, beta=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*BY_HAND, *OTHERS])
def test_it_closes(name: str, method: str) -> None:
    spelling = OTHERS[name] if name in OTHERS else BY_HAND[name][0]
    assert closes(Wrapped(Attention(spelling)), data(), method) < 1e-12


@pytest.mark.parametrize("name", ["times one over the sum", "times the reciprocal"])
def test_it_closes_with_weights_held(name: str) -> None:
    assert closes(Wrapped(Attention(BY_HAND[name][0])), data()) < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand_it_is_what_it_is_as_a_function(name: str, method: str) -> None:
    models = [randomised(Wrapped(Attention(spelling)).double()) for spelling in BY_HAND[name]]
    models[1].load_state_dict(models[0].state_dict())
    ours, theirs = (hw.explain(m, data(), method=method, score=lambda out: out[:, 1]) for m in models)
    for a, b in zip(ours, theirs, strict=True):
        assert a.relevance == pytest.approx(b.relevance, abs=1e-12)
        assert dict(a.ledger.biases) == pytest.approx(dict(b.ledger.biases), abs=1e-12)


@pytest.mark.parametrize("name", ["exponentials over their sum", "masked afterwards", "over two axes"])
def test_left_to_its_gradient_it_is_open(name: str) -> None:
    spelling = OTHERS[name] if name in OTHERS else BY_HAND[name][0]
    assert closes(Wrapped(Attention(spelling)), data(), "lrp(ah=half+act+gate=half)") > 1e-4


class Apart(nn.Module):
    """Queries, keys and values that are the input itself, and weights that are masked after the softmax."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = x.unbind(1)
        return (((query @ key.mT).softmax(-1) * causal()) @ value).sum((1, 2))[:, None]


def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = torch.randn(1, 3, 4, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return x, *x[0].unbind(0)


def test_masked_afterwards_by_hand_with_the_secant() -> None:
    """Of even attention the mask leaves a part, which belongs to the values; queries and keys have a quarter each."""
    x, query, key, value = parts()
    (e,) = hw.explain(Apart().eval(), x, method="lrp(ah=secant+gate)", score=lambda out: out[:, 0])
    weights = (query @ key.T).softmax(-1)
    of_weights, of_even = (float(((p * causal()) @ value).sum()) for p in (weights, torch.full((4, 4), 0.25).double()))
    asked = 0.25 * (of_weights - of_even)
    expected = torch.tensor([asked, asked, 0.5 * (of_weights + of_even)], dtype=torch.float64)
    torch.testing.assert_close(e.relevance.reshape(3, -1).sum(1), expected, rtol=1e-9, atol=1e-9)
    assert e.ledger.closed


def test_masked_afterwards_by_hand_with_the_query() -> None:
    x, query, key, value = parts()
    (e,) = hw.explain(Apart().eval(), x, method="lrp(ah=query+gate)", score=lambda out: out[:, 0])
    scores = query @ key.T
    weights = scores.softmax(-1)
    tangent = weights * (scores - (weights * scores).sum(-1, keepdim=True))
    of_weights, of_scores = (float(((p * causal()) @ value).sum()) for p in (weights, tangent))
    expected = torch.tensor([QUERY_SHARE * of_scores, 0.0, (1 - QUERY_SHARE) * of_weights], dtype=torch.float64)
    torch.testing.assert_close(e.relevance.reshape(3, -1).sum(1), expected, rtol=1e-9, atol=1e-9)
    offset = sum(amount for name, amount in e.ledger.constants.items() if OFFSET in name)
    assert offset == pytest.approx(QUERY_SHARE * (of_weights - of_scores))


def test_weights_without_values_leave_even_attention_as_a_constant() -> None:
    """A model that gives its attention weights as its output."""

    class Weights(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            query, key, _ = x.unbind(1)
            return (query @ key.mT).softmax(-1).square().sum((1, 2))[:, None] * 0 + (query @ key.mT).softmax(-1)[:, 0]

    x = parts()[0]
    (e,) = hw.explain(Weights().eval(), x, method="lrp-secant", score=lambda out: out[:, 1])
    assert e.ledger.error < 1e-12
    assert e.ledger.constants["even attention"] == pytest.approx(0.25)


def test_sigmoid_by_hand() -> None:
    def sigmoid(x: Tensor) -> Tensor:
        return torch.exp(x) / (1 + torch.exp(x))

    assert closes(Wrapped(sigmoid), data()) < 1e-12
    assert closes(Wrapped(sigmoid), data(), "gi") > 1e-4
