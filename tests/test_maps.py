"""Attention as it is read is attention as it was computed: weights, values and gradient, in every spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from weighing import drawn

from headwater.inputs.places import start
from headwater.kernels.capped import capped_attention
from headwater.rules import Books, RuleSet
from headwater.rules.maps import AttentionMap, MapScope

HEADS, LENGTH, SIZE = 4, 5, 3
Spelling = Callable[[Tensor, Tensor, Tensor], Tensor]
MASK = 2 * drawn(LENGTH, LENGTH, seed=4)
ALLOWED = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def weights(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.transpose(-2, -1) / SIZE**0.5).softmax(-1)


FUSED: dict[str, Spelling] = {
    "plain": F.scaled_dot_product_attention,
    "named": lambda q, k, v: F.scaled_dot_product_attention(query=q, key=k, value=v),
    "added": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK),
    "added, by position": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK),
    "allowed": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ALLOWED),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "causal, by position": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, True),
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.9),
    "groups": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
    "one for all heads": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    "groups without samples": lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0, :2], v[0, :2], enable_gqa=True),
    "without samples": lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
    "without heads": lambda q, k, v: F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0]),
}
WRITTEN: dict[str, Spelling] = {
    "matmul": lambda q, k, v: weights(q, k) @ v,
    "bmm": lambda q, k, v: torch.bmm(weights(q, k).flatten(0, 1), v.flatten(0, 1)),
    "einsum": lambda q, k, v: torch.einsum("bhij,bhjd->bhid", weights(q, k), v),
    "einsum, heads last": lambda q, k, v: torch.einsum(
        "b h i j, b j h d -> b i h d", weights(q, k), v.transpose(1, 2)
    ).transpose(1, 2),
    "capped": lambda q, k, v: capped_attention(q, k, v, cap=2.0),
    "einsum, keys last": lambda q, k, v: torch.einsum("bhij,bhdj->bhdi", weights(q, k), v.mT).mT,
}


def read(spelling: Spelling) -> tuple[list[AttentionMap], Tensor, Tensor]:
    """What is read of one attention, its result, and the gradient that came back to that."""
    leaves = [drawn(2, HEADS, LENGTH, SIZE, seed=n).requires_grad_() for n in (1, 2, 3)]
    scope: Any = MapScope(RuleSet(frozenset()), Books(2), {}, {})
    with scope:
        result = spelling(*(start(leaf) for leaf in leaves))
    upstream = drawn(*result.shape, seed=9)
    torch.autograd.grad(result, leaves, upstream, allow_unused=True)
    return scope.maps, result.detach(), upstream


@pytest.mark.parametrize("name", [*FUSED, *WRITTEN])
def test_weights_times_values_is_the_result_and_its_gradient_is_kept(name: str) -> None:
    (one,), result, upstream = read({**FUSED, **WRITTEN}[name])
    made = one.weights @ one.values
    torch.testing.assert_close(made.reshape(result.shape), result)
    assert one.gradient is not None
    torch.testing.assert_close(one.gradient.reshape(result.shape), upstream)
    torch.testing.assert_close(one.weights.sum(-1), torch.ones_like(one.weights[..., 0]))


@pytest.mark.parametrize("name", [*FUSED, *WRITTEN])
def test_what_is_read_keeps_no_graph(name: str) -> None:
    (one,), _, _ = read({**FUSED, **WRITTEN}[name])
    assert one.gradient is not None
    for tensor in (one.weights, one.values, one.gradient):
        assert not tensor.requires_grad


def test_further_passes_and_gradients_that_do_not_come_are_not_kept() -> None:
    scope: Any = MapScope(RuleSet(frozenset()), Books(2), {}, {})
    one = AttentionMap(drawn(2, 3), drawn(3, 4))
    scope._note(one, None, (0, 1))
    assert one.gradient is None
    scope._note(one, drawn(4, 2).requires_grad_(), (1, 0))  # somebody follows the way back itself
    assert not one.gradient.requires_grad
    assert torch.equal(one.gradient, drawn(4, 2).T)
    scope.books.probe = 0  # a pass that asks whose a line is
    scope._note(one, drawn(2, 4, seed=8), (0, 1))
    assert torch.equal(one.gradient, drawn(4, 2).T)


def test_a_mask_that_is_a_signal_is_read_without_its_graph() -> None:
    (one,), _, _ = read(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK * q.sum()))
    assert not one.weights.requires_grad


@pytest.mark.parametrize("name", ["plain", "matmul", "einsum, heads last"])
def test_the_gradient_of_the_weights(name: str) -> None:
    """df/dA is what a small change of the weights changes."""
    (one,), _, upstream = read({**FUSED, **WRITTEN}[name])
    free = one.weights.clone().requires_grad_()
    (theirs,) = torch.autograd.grad(free @ one.values, free, upstream)
    assert one.weights_gradient is not None
    torch.testing.assert_close(one.weights_gradient, theirs)
    assert AttentionMap(one.weights, one.values).weights_gradient is None


NO_MAPS: dict[str, Spelling] = {
    "a product of signals": lambda q, k, v: q @ k.mT @ v,
    "weights on the right": lambda q, k, v: v.mT @ weights(q, k),
    "einsum of three": lambda q, k, v: torch.einsum("bhij,bhjd,d->bhid", weights(q, k), v, drawn(SIZE)),
    "einsum without an arrow": lambda q, k, v: torch.einsum("bhij,bhjd", weights(q, k), v),
    "einsum over two axes": lambda q, k, v: torch.einsum("bhij,bhjd->bid", weights(q, k), v),
    "einsum over an axis of the values": lambda q, k, v: torch.einsum(
        "bhij,bhjde->bhid", weights(q, k), v.unsqueeze(-1) * drawn(2)
    ),
    "einsum over an axis of the weights": lambda q, k, v: torch.einsum(
        "bhijx,bhjd->bhid", weights(q, k).unsqueeze(-1) * drawn(2), v
    ),
    "einsum without queries": lambda q, k, v: torch.einsum("bhij,bhjd->bhd", weights(q, k), v),
    "einsum elementwise": lambda q, k, v: torch.einsum("bhij,bhij->bhij", weights(q, k), weights(k, q)),
    "by a vector": lambda q, k, v: weights(q, k) @ v[0, 0, :, 0],
    "of other axes": lambda q, k, v: weights(q, k) @ v[0, 0],
    "of five axes": lambda q, k, v: weights(q, k)[None] @ v[None],
}


@pytest.mark.parametrize("name", NO_MAPS)
def test_what_is_no_attention_is_not_read(name: str) -> None:
    maps, _, _ = read(NO_MAPS[name])
    assert maps == []


def test_attention_of_constants_is_not_read() -> None:
    maps, _, _ = read(lambda q, k, v: q + F.scaled_dot_product_attention(k.detach(), k.detach(), v.detach()))
    assert maps == []
