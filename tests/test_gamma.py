"""The gamma rule conserves, keeps the prediction, and is the sum it is written as. AttnLRP in the same words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import BUILD, CASTS, arguments, randomised, tiny
from torch import Tensor, nn

import headwater as hw
from headwater.errors import UsageError
from headwater.methods import resolve_method
from headwater.methods.lrp import gamma, lrp_with


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILD)
def test_ledger_closes_with_gamma(name: str) -> None:
    plain = hw.explain(tiny(name), arguments(name))
    for e, other in zip(hw.explain(tiny(name), arguments(name), method="lrp-gamma(0.1)"), plain, strict=True):
        assert e.ledger.error <= (1e-5 if name in CASTS else 1e-10)
        assert e.score == other.score
        assert not torch.allclose(e.relevance, other.relevance, atol=1e-4)
        assert dict(e.rules_met)["gamma"] > 2


def slow(x: Tensor, weight: Tensor, bias: Tensor, above: Tensor, boost: float) -> tuple[Tensor, Tensor]:
    """Relevance of inputs and biases of one linear layer, straight from the sums; `above` is that of its outputs."""
    inputs, biases = torch.zeros_like(x), torch.zeros_like(bias)
    for t in range(len(x)):
        for j in range(len(bias)):
            parts = x[t] * weight[j]
            z = parts.sum() + bias[j]
            agree = parts * z > 0
            parts = torch.where(agree, parts * (1 + boost), parts)
            total = parts.sum() + bias[j]
            inputs[t] += parts / total * above[t, j]
            biases[j] += bias[j] / total * above[t, j]
    return inputs, biases


@pytest.mark.parametrize("boost", [0.0, 0.02, 0.5, 3.0])
def test_gamma_is_its_sum(boost: float) -> None:
    model = randomised(nn.Linear(5, 4).double())
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    e = hw.explain(model, x.unsqueeze(0), method=f"lrp-gamma({boost})", score=lambda out: out[..., :2].sum((1, 2)))[0]
    above = model(x).detach() * torch.tensor([1.0, 1, 0, 0])
    inputs, biases = slow(x, model.weight.detach(), model.bias.detach(), above, boost)
    assert e.relevance == pytest.approx(inputs, abs=1e-12)
    assert e.ledger.biases["bias"] == pytest.approx(float(biases.sum()), abs=1e-12)
    assert e.ledger.closed


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_gamma_in_a_convolution_is_that_of_the_linear_layer_it_is(kind: type[nn.Module]) -> None:
    """A kernel of size one is a linear layer at every place."""
    linear = randomised(nn.Linear(5, 4).double())
    convolution = kind(5, 4, 1).double().eval()
    with torch.no_grad():
        convolution.weight.copy_(linear.weight.reshape(convolution.weight.shape))
        convolution.bias.copy_(linear.bias)
    x = torch.randn(1, 5, *[3] * (1 if kind is nn.Conv1d else 2), dtype=torch.float64)
    flat = x.flatten(2).transpose(1, 2)
    a = hw.explain(convolution, x, method="lrp-gamma(0.3)", score=lambda out: out.sum(tuple(range(1, out.dim()))))[0]
    b = hw.explain(linear, flat, method="lrp-gamma(0.3)", score=lambda out: out.sum((1, 2)))[0]
    assert a.relevance.flatten(1) == pytest.approx(b.relevance.T, abs=1e-12)
    assert a.ledger.biases["bias"] == pytest.approx(b.ledger.biases["bias"], abs=1e-12)


def test_gamma_zero_is_lrp() -> None:
    a, b = (hw.explain(tiny("bert"), arguments("bert", 1), method=m)[0] for m in ("lrp-gamma(0)", "lrp"))
    assert a.relevance == pytest.approx(b.relevance, abs=1e-14)


def test_gamma_by_layer() -> None:
    model, x = tiny("bert"), arguments("bert", 1)
    everywhere = hw.explain(model, x, method=gamma({"*": 0.1}))[0]
    assert torch.equal(everywhere.relevance, hw.explain(model, x, method="lrp-gamma(0.1)")[0].relevance)
    some = hw.explain(model, x, method=gamma({"*": 0.1, "*layer.1.*": 0.0}))[0]
    assert dict(some.rules_met)["gamma"] < dict(everywhere.rules_met)["gamma"]
    assert some.ledger.closed
    with pytest.raises(UsageError, match="from 0 to 1,000,000"):
        gamma({"*": -0.1})
    with pytest.raises(UsageError, match="number"):
        hw.explain(model, x, method="lrp-gamma(much)")


DEPTH = {
    "ah": {"*": "shares(q=0.25,k=0.25,v=0.5)", "*layer.1*": "shares(q=0.3,k=0.2,v=0.5)"},
    "gate": "half",
    "gamma": {"*": 0.1, "*layer.1.*": 0.0},
}


def test_a_name_by_depth_is_read_as_it_is_written() -> None:
    model, x = tiny("bert"), arguments("bert", 1)
    for method in (lrp_with(**DEPTH), gamma({"*": 0.1, "*layer.1.*": 0.0})):
        read = resolve_method(method.name)
        assert read.name == method.name
        ours, again, flat = (hw.explain(model, x, method=m)[0] for m in (method, read.name, "lrp-gamma(0.1)"))
        assert torch.equal(ours.relevance, again.relevance)
        assert not torch.equal(ours.relevance, flat.relevance)
    for wrong in ("gamma=*:", "gamma=:0.1", "gamma=*:0.1,0.2", "gate=*:much", "gamma=*:much"):
        with pytest.raises(UsageError):
            resolve_method(f"lrp(ah+{wrong})")


def test_patterns_keep_their_capital_letters() -> None:
    model, x = tiny("t5"), arguments("t5", 1)
    name = "LRP( AH + ln+act+gate=Half + gamma=*:0.1,*DenseReluDense.wo*:0 )"
    assert resolve_method(name).name == "lrp(ah+ln+act+gate=half+gamma=*:0.1,*DenseReluDense.wo*:0)"
    some, everywhere = (hw.explain(model, x, method=m)[0] for m in (name, name.replace(",*DenseReluDense.wo*:0", "")))
    assert dict(some.rules_met)["gamma"] < dict(everywhere.rules_met)["gamma"]


@pytest.mark.parametrize("rule", ["gamma", "output", "token", "residual", "gate", "ah"])
def test_a_pattern_that_fits_no_name_is_refused(rule: str) -> None:
    """It would act nowhere, and nobody would know."""
    value = "half" if rule in ("gate", "ah") else "0.1"
    method = f"lrp(ln+{rule}=*:{value},*layer.1*:{value})"
    model, x = tiny("bert"), arguments("bert", 1)
    assert hw.explain(model, x, method=method)
    with pytest.raises(UsageError, match=rf"{rule}.*Layer\.1.*small letters differ"):
        hw.explain(model, x, method=method.replace("layer", "Layer"))


def test_gamma_lessens_the_share_of_biases() -> None:
    def share(method: str) -> float:
        e = hw.explain(tiny("bert"), arguments("bert", 1), method=method)[0]
        return sum(abs(v) for v in e.ledger.biases.values()) / e.ledger.size

    assert share("lrp-gamma(1)") < share("lrp")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_attnlrp_is_the_same_eager_and_fused(name: str) -> None:
    model = tiny(name)
    before = model.config._attn_implementation
    found = {}
    try:
        for implementation in ("eager", "sdpa"):
            model.set_attn_implementation(implementation)
            found[implementation] = hw.explain(model, arguments(name, 1), method="attnlrp")[0]
    finally:
        model.set_attn_implementation(before)
    assert found["eager"].relevance == pytest.approx(found["sdpa"].relevance, abs=1e-5)
    assert found["eager"].method == "attnlrp"
    assert not found["sdpa"].ledger.closed


@pytest.mark.parametrize("fused", [True, False])
def test_attnlrp_shares_as_it_says(fused: bool) -> None:
    """One head: values get half, queries and keys a quarter each of what the gradient gives them."""

    class Head(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = x.unbind(1)
            if fused:
                return nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0).sum((1, 2))
            return (torch.softmax(q @ k.transpose(-1, -2), -1) @ v).sum((1, 2))

    x = torch.randn(1, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, shared = (
        hw.explain(Head().eval(), x, method=m, score=lambda out: out)[0].relevance for m in ("gi", "attnlrp")
    )
    for i, part in enumerate((0.25, 0.25, 0.5)):
        assert shared[i] == pytest.approx(part * plain[i], abs=1e-12)


@pytest.mark.parametrize("value", ["-0.1", "1.1e6", "1e308", "1e999", "-1e999", "nan"])
def test_gamma_has_a_range(value: str) -> None:
    for name in (f"lrp-gamma({value})", f"lrp(ah+gamma={value})", f"smoothgrad(lrp-gamma({value}))"):
        with pytest.raises(UsageError, match=r"gamma must be from 0 to 1,000,000, not"):
            resolve_method(name)
    for given in (float(value), {"*": 0.02, "*classifier*": float(value)}):
        with pytest.raises(UsageError, match=r"from 0 to 1,000,000"):
            gamma(given)


@pytest.mark.parametrize("value", [None, "much", [1.0], 10**400])
def test_what_is_no_number_is_no_gamma(value: Any) -> None:
    with pytest.raises(UsageError, match="gamma is a number"):
        gamma(value)


def test_the_largest_gamma_still_gives_relevance() -> None:
    (found, *_) = hw.explain(tiny("bert"), arguments("bert"), method="lrp-gamma(1e6)")
    assert found.relevance.isfinite().all()
    assert found.ledger.closed
