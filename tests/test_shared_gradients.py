"""Attention's way back in one pass over queries and one over keys, in Triton's interpreter."""

from __future__ import annotations

import pytest
import tiny
import torch
from torch import Tensor

import headwater as hw
from headwater.kernels import attention
from headwater.kernels.rows import BlockedAttention
from headwater.kernels.scoring import ScoreForm

WITH_TOKEN = "lrp(ah=shares(q=0.3,k=0.2,v=0.5)+ln+act+gate=half+output=0.04+token=4)"

shared = pytest.importorskip("headwater.kernels.shared_gradients")

GAMMA = 4.0
SCALE = 0.3
SHAPES = [(40, 40, 16, 2, 1), (33, 33, 32, 4, 2), (128, 128, 16, 2, 2), (17, 50, 24, 2, 1)]


def drawn(queries: int, keys: int, size: int, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """Gradient, queries, keys and values."""
    torch.manual_seed(0)
    of_queries = [torch.randn(2, queries, heads, size).transpose(1, 2) for _ in range(2)]
    return *of_queries, *(torch.randn(2, keys, kv_heads, size).transpose(1, 2) for _ in range(2))


def plainly(parts: tuple[Tensor, ...], causal: bool, gamma: float) -> tuple[Tensor, ...]:
    """The result, its logsumexp, and the gradients of queries, keys and values in float64."""
    gradient, *rest = (part.double() for part in parts)
    held = BlockedAttention(*rest, None, None, SCALE, causal, 0.0, token=gamma)
    result, sums = held.result()
    return result, sums, *held.gradients(gradient, result)[:3]


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).abs().max() / expected.abs().max())


def in_triton(parts: tuple[Tensor, ...], causal: bool, gamma: float = GAMMA) -> tuple[Tensor, ...]:
    result, sums = (one.to(parts[0].dtype) for one in plainly(parts, causal, gamma)[:2])
    made: tuple[Tensor, ...] = shared.shared_gradients(
        parts[0], parts[1:], result, sums.float(), ScoreForm(SCALE, causal), gamma
    )
    return made


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_those_of_the_plain_rule(shape: tuple[int, ...], causal: bool) -> None:
    parts = drawn(*shape)
    causal = causal and shape[0] == shape[1]
    for found, expected in zip(in_triton(parts, causal), plainly(parts, causal, GAMMA)[2:], strict=True):
        assert found.shape == expected.shape
        assert apart(found, expected) < 1e-5


@pytest.mark.slow
def test_queries_and_keys_have_the_gradient_of_torch() -> None:
    gradient, *rest = drawn(*SHAPES[1])
    leaves = [part.double().requires_grad_() for part in rest]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, scale=SCALE, enable_gqa=True)
    expected = torch.autograd.grad(out, leaves, gradient.double())
    with_rule, without = (in_triton((gradient, *rest), causal=True, gamma=gamma) for gamma in (GAMMA, 0.0))
    for found in (with_rule, without):
        assert max(apart(one, other) for one, other in zip(found[:2], expected[:2], strict=True)) < 1e-5
    assert apart(without[2], expected[2]) < 1e-5
    assert apart(with_rule[2], expected[2]) > 1e-2


@pytest.mark.slow
def test_half_precision() -> None:
    parts = tuple(part.half() for part in drawn(*SHAPES[2]))
    for found, expected in zip(in_triton(parts, causal=True), plainly(parts, True, GAMMA)[2:], strict=True):
        assert apart(found, expected) < 5e-3


def test_what_they_do_not_know_they_refuse() -> None:
    _, query, key, value = drawn(*SHAPES[0])
    plain = ScoreForm(SCALE, causal=True)
    assert shared.can_share(query, key, value, plain)
    assert not shared.can_share(query, key, value, ScoreForm(SCALE, cap=3.0))
    assert not shared.can_share(query, key, value, ScoreForm(SCALE, mask=torch.ones(40, 40, dtype=torch.bool)))
    assert not shared.can_share(query.double(), key.double(), value.double(), plain)
    assert not shared.can_share(query.repeat(1, 1, 1, 16), key.repeat(1, 1, 1, 16), value, plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3"])
def test_explanations_by_them_are_those_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card: the result of attention is then made again without a graph."""
    model, data = tiny.tiny(name, torch.float32), {"input_ids": torch.arange(5, 25)[None]}

    def explained() -> hw.Explanation:
        return hw.explain(model, data, method=WITH_TOKEN, plans=False)[0]

    plain, calls, kernel = explained(), [], shared.shared_gradients
    monkeypatch.setattr(attention, "is_served_card", lambda tensor: True)
    monkeypatch.setattr(attention, "SHARED_ON_CARD", True)
    monkeypatch.setattr(shared, "shared_gradients", lambda *args: calls.append(args) or kernel(*args))
    found = explained()
    assert len(calls) == model.config.num_hidden_layers
    assert apart(found.relevance, plain.relevance.double()) < 1e-5
    assert found.ledger.error < 1e-5
