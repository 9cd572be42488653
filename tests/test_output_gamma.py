"""`output=GAMMA` acts in the layers that write into the residual stream, and in no other."""

from __future__ import annotations

import pytest
import torch
from tiny import BUILD, CASTS, arguments, tiny

import headwater as hw
from headwater.defaults import ENCODER_DECODER_METHOD, LANGUAGE_METHOD, is_language_method
from headwater.methods import resolve_method
from headwater.methods.lrp import lrp_with

SOFTMAX_CASTS = {"bloom", "modernbert"}  # their softmax is in float32 always
OUTPUTS = {  # the weights of output projections, and how many there are
    "bert": ({"*output.dense.weight": 0.5, "*classifier.weight": 0.5}, 5),
    "gpt2": ({"*c_proj.weight": 0.5}, 4),
    "gpt-neox": ({"*attention.dense.weight": 0.5, "*dense_4h_to_h.weight": 0.5}, 4),
    "llama": ({"*o_proj.weight": 0.5, "*down_proj.weight": 0.5}, 4),
    "phi3": ({"*o_proj.weight": 0.5, "*down_proj.weight": 0.5}, 4),
    "t5": ({"*.o.weight": 0.5, "*.wo.weight": 0.5, "*out_proj.weight": 0.5}, 11),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_it_is_the_gamma_rule_of_the_weights_that_are_named_so(name: str) -> None:
    weights, count = OUTPUTS[name]
    found = hw.explain(tiny(name), arguments(name), method=lrp_with(output=0.5))
    named = hw.explain(tiny(name), arguments(name), method=lrp_with(gamma=weights))
    plain = hw.explain(tiny(name), arguments(name), method="lrp")
    for e, same, other in zip(found, named, plain, strict=True):
        assert dict(e.rules_met)["output"] == count
        assert torch.equal(e.relevance, same.relevance)
        assert not torch.allclose(e.relevance, other.relevance, rtol=1e-3)


@pytest.mark.parametrize("method", [LANGUAGE_METHOD, ENCODER_DECODER_METHOD, f"{LANGUAGE_METHOD}(0.05)"])
@pytest.mark.parametrize("name", BUILD)
def test_ledger_closes_with_the_defaults_for_language_models(name: str, method: str) -> None:
    for e in hw.explain(tiny(name), arguments(name), method=method):
        assert e.ledger.error <= (1e-5 if name in CASTS | SOFTMAX_CASTS else 1e-10)


def test_the_default_takes_a_boost_in_brackets() -> None:
    names = (LANGUAGE_METHOD, "lrp-language(0.3)")
    usual, more = (hw.explain(tiny("llama"), arguments("llama"), method=name)[0] for name in names)
    assert (usual.method, more.method) == names
    assert resolve_method("lrp-language(output=0.3)").name == more.method
    assert is_language_method(more.method)
    assert not is_language_method("lrp-languages(0.3)")
    assert not torch.allclose(usual.relevance, more.relevance, rtol=1e-3)


def test_gamma_acts_in_the_other_layers() -> None:
    both = hw.explain(tiny("llama"), arguments("llama"), method=lrp_with(gamma=0.2, output=0.5))[0]
    weights = {"*": 0.2, **OUTPUTS["llama"][0]}
    named = hw.explain(tiny("llama"), arguments("llama"), method=lrp_with(gamma=weights))[0]
    assert torch.equal(both.relevance, named.relevance)


def test_none_is_none() -> None:
    found = hw.explain(tiny("gpt2"), arguments("gpt2"), method=lrp_with(output=0.0))[0]
    assert torch.equal(found.relevance, hw.explain(tiny("gpt2"), arguments("gpt2"), method="lrp")[0].relevance)
