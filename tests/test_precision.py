"""Half precision and autocast: the error is stated, sums are float32, and what overflows names its module."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import arguments, tiny
from torch import Tensor, nn

import headwater as hw
from headwater.errors import NotFinite
from headwater.results.ledger import TOLERANCE
from headwater.rules.sources import Books, Sort

X = arguments("bert")
NAMES = ["bert", "gpt2", "llama", "modernbert", "torch-encoder"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_states_its_error(name: str, dtype: str) -> None:
    exact = hw.explain(tiny(name, torch.float32), X, method="lrp", target=1)
    halved = hw.explain(tiny(name, torch.float32), X, method="lrp", target=1, dtype=dtype)
    for e, reference in zip(halved, exact, strict=True):
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


class InAByte(nn.Module):
    """Weights and a table in float8, brought to the type that is computed in; the signal rounded to float8 if asked."""

    def __init__(self, rounds: bool, kind: torch.dtype = torch.float8_e4m3fn) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight, table = (torch.randn(size, 6, generator=generator).to(kind) for size in (5, 4))
        self.table, self.weight = (nn.Parameter(part, requires_grad=False) for part in (table, weight))
        self.bias, self.head = nn.Parameter(torch.randn(5, generator=generator)), nn.Linear(5, 3)
        self.rounds, self.kind = rounds, kind

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table.to(x.dtype)[: x.shape[-2]]
        if self.rounds:
            x = (x / 0.7).to(self.kind).to(x.dtype) * 0.7
        return self.head(nn.functional.gelu(nn.functional.linear(x, self.weight.to(x.dtype), self.bias))).mean(1)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("dtype", [None, "float64", "bfloat16"])
def test_float8(kind: torch.dtype, rounds: bool, dtype: str | None) -> None:
    model, x = InAByte(rounds, kind).eval(), torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    for e in hw.explain(model, x, score=lambda out: out[:, 1], dtype=dtype):
        assert e.ledger.dtype == (dtype or "float32")
        assert e.ledger.closed
        assert e.ledger.biases["table"] != 0
    if dtype is None:
        assert [e.score for e in hw.explain(model, x, score=lambda out: out[:, 1])] == model(x)[:, 1].tolist()


def test_what_is_rounded_to_float8_is_its_input_times_a_constant() -> None:
    """Its gradient is no float8 either, which ends at 448."""

    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.to(torch.float8_e4m3fn).to(x.dtype) * 1000).sum(-1, keepdim=True)

    x = torch.randn(1, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (e,) = hw.explain(Rounded().eval(), x, score=lambda out: out[:, 0])
    torch.testing.assert_close(e.relevance, x[0].to(torch.float8_e4m3fn).double() * 1000)
    assert e.ledger.error < 1e-12


def test_inputs_in_float8_are_computed_in_the_model_s_type() -> None:
    model, x = InAByte(False).eval(), torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    given = hw.explain(model, x.to(torch.float8_e4m3fn), score=lambda out: out[:, 1])
    for a, b in zip(
        given, hw.explain(model, x.to(torch.float8_e4m3fn).float(), score=lambda out: out[:, 1]), strict=True
    ):
        torch.testing.assert_close(a.relevance, b.relevance)
