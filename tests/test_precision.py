"""Half precision and autocast: the error is stated, sums are float32, and what overflows names its module."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import arguments, tiny
from torch import Tensor, nn

import headwater as hw
from headwater.errors import NotFinite
from headwater.ledger import TOLERANCE
from headwater.rules.sources import Books, Sort

X = arguments("bert")
NAMES = ["bert", "gpt2", "llama", "modernbert", "torch-encoder"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_states_its_error(name: str, dtype: str) -> None:
    exact = hw.explain(tiny(name, torch.float32), X, target=1)
    for e, reference in zip(hw.explain(tiny(name, torch.float32), X, target=1, dtype=dtype), exact, strict=True):
        assert e.relevance.dtype is torch.float32
        assert e.ledger.dtype == e.provenance.dtype == dtype
        assert 1e-9 < e.ledger.error < TOLERANCE[dtype]
        assert e.ledger.closed
        size = float(reference.relevance.abs().sum())
        assert float((e.relevance - reference.relevance).abs().sum()) < 0.1 * size


def test_half_precision_that_loses_a_rule_is_still_found_open() -> None:
    for dtype in ("bfloat16", "float16"):
        found = hw.explain(tiny("llama", torch.float32), X, method="lrp(ah+act+gate)", dtype=dtype)
        assert not any(e.ledger.closed for e in found)


class Inside(nn.Module):
    """A model that switches autocast on by itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("where", ["around", "inside"])
def test_autocast(where: str, attention: str) -> None:
    model = copy.deepcopy(tiny("bert", torch.float32))
    model.set_attn_implementation(attention)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        score = model(**X).logits.max(-1)[0]
    if where == "inside":
        found = hw.explain(Inside(model), X)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            found = hw.explain(model, X)
    assert [e.score for e in found] == [float(s) for s in score]
    for e in found:
        assert (e.ledger.dtype, e.provenance.dtype) == ("bfloat16", "float32")
        assert e.ledger.closed
        assert e.ledger.error > 1e-9
        assert e.relevance.dtype is torch.float32


def test_sums_of_half_precision_are_float32() -> None:
    """Ten thousand times 0.0078125 of a bias of one: float16 would stop counting at a power of two."""
    books = Books(samples=1)
    result = torch.zeros(1, 10_000, 1, dtype=torch.bfloat16, requires_grad=True) * 1
    books.enter_vector(result, "bias", torch.ones(1, dtype=torch.bfloat16))
    result.backward(torch.full_like(result, 0.0078125 * 1.0078125))
    assert float(books.totals(Sort.BIAS)["bias"]) == pytest.approx(10_000 * 0.0078125 * 1.0078125, rel=1e-6)


@pytest.mark.parametrize("method", ["lrp", "gi", "lrp-gamma"])
def test_an_overflow_names_its_module(method: str) -> None:
    model = copy.deepcopy(tiny("bert", torch.float32))
    with torch.no_grad():
        model.bert.encoder.layer[1].intermediate.dense.weight.mul_(3e4)
    with pytest.raises(NotFinite, match=r"'bert\.encoder\.layer\.1\.intermediate\.dense'"):
        hw.explain(model, X, method=method, dtype="float16")
    assert not any(module._forward_hooks for module in model.modules())


class Steep(nn.Module):
    """Small numbers forwards, large ones backwards: a tiny factor and a huge one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        with torch.no_grad():
            for layer, scale in ((self.low, 1e-4), (self.high, 3e4), (self.head, 3e3)):
                layer.weight.copy_(scale * torch.eye(*layer.weight.shape))
                layer.bias.zero_()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.high(self.low(x)))


def test_an_overflow_on_the_way_back_names_its_module() -> None:
    x = torch.full((1, 4), 1e-2)
    assert hw.explain(Steep(), x)[0].ledger.closed
    with pytest.raises(NotFinite, match="on the way back it first appeared at the output of the module 'low'"):
        hw.explain(Steep(), x, dtype="float16")
