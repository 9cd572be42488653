"""What is made again on the way back is what it was, whatever the model writes over meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwater.errors import HiddenOperation
from headwater.inputs.places import start
from headwater.methods.lrp import LANGUAGE
from headwater.rules import Books, Scope
from headwater.rules.attention import remade

SIZE, INNER, LENGTH = 8, 12, 40


class Block(nn.Module):
    """Attention and a gated layer; `meddle` may write into what went into them, or came out."""

    def __init__(self, meddle: Callable[..., None]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ways = nn.ModuleList(nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(SIZE, INNER, bias=False) for _ in range(2))
        self.down, self.meddle = nn.Linear(INNER, SIZE, bias=False), meddle
        self.double().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (way(F.rms_norm(x, (SIZE,))).unflatten(-1, (2, -1)).transpose(1, 2) for way in self.ways[:3])
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.meddle("attention", q, k, v)
        x = x + self.ways[3](mixed.transpose(1, 2).flatten(2))
        self.meddle("result", mixed)
        normal = F.rms_norm(x, (SIZE,))
        g, u = self.gate(normal), self.up(normal)
        y = F.silu(g) * u
        self.meddle("gate", g, u)
        out = self.down(y)
        self.meddle("product", y)
        return x + out


def relevance(meddle: Callable[..., None], block: type[Block] = Block) -> Tensor:
    torch.manual_seed(1)
    leaf = torch.randn(1, LENGTH, SIZE, dtype=torch.float64, requires_grad=True)
    model = block(meddle)
    with Scope(LANGUAGE.rules, Books(1), {id(p): n for n, p in model.named_parameters()}, {}):
        out = model(start(leaf))
    (gradient,) = torch.autograd.grad(out[0, -1, 0], leaf)
    return leaf.detach() * gradient


def leave(*_: object) -> None:
    """Nothing is written."""


@pytest.mark.parametrize("place", ["attention", "result", "gate", "product"])
def test_what_is_written_over_later_counts_as_it_was(place: str) -> None:
    written = []

    def meddle(where: str, *parts: Tensor) -> None:
        if where == place:
            written.append(where)
            for part in parts:
                part.mul_(3.0)

    assert torch.allclose(relevance(meddle), relevance(leave), rtol=0, atol=1e-12)
    assert written == [place]


def test_a_product_that_is_written_into_is_no_longer_made_again() -> None:
    """In place or not, the layer takes twice the product."""

    class Doubled(Block):
        def forward(self, x: Tensor) -> Tensor:
            y = F.silu(self.gate(x)) * self.up(x)
            self.meddle("product", y)
            return self.down(y if self.meddle is not leave else y * 2)

    def double(where: str, y: Tensor) -> None:
        y.mul_(2)

    assert torch.allclose(relevance(double, Doubled), relevance(leave, Doubled), rtol=0, atol=1e-12)


def test_attention_is_made_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the output layer, the ledger and its own gradient together."""
    calls, attend = [], remade.forward.attend_by_torch
    monkeypatch.setattr(remade.forward, "attend_by_torch", lambda *args: calls.append(args) or attend(*args))
    relevance(leave)
    assert len(calls) == 2


class Masked(Block):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (way(x).unsqueeze(1) for way in self.ways[:3])
        mask = torch.zeros(LENGTH, LENGTH, dtype=x.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        self.meddle("mask", mask)
        return x + self.ways[3](mixed.squeeze(1))


def write_mask(where: str, mask: Tensor) -> None:
    mask[:, 1:] = -5.0


def test_a_mask_that_is_written_over_later_counts_as_it_was() -> None:
    found = relevance(torch.no_grad()(write_mask), Masked)
    assert torch.allclose(found, relevance(leave, Masked), rtol=0, atol=1e-12)


def test_a_mask_that_is_written_over_unseen_is_refused() -> None:
    with pytest.raises(HiddenOperation, match="writes over"):
        relevance(write_mask, Masked)


def test_an_activation_that_is_written_over_unseen_is_refused() -> None:
    class Tripled(Block):
        def forward(self, x: Tensor) -> Tensor:
            h = F.silu(self.gate(x))
            with torch.no_grad():
                h.mul_(3)
            return self.down(h * self.up(x))

    with pytest.raises(HiddenOperation, match="writes over what went into an activation"):
        relevance(leave, Tripled)
