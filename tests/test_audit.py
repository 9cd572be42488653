"""The audit adds up, agrees with the paper's propositions, and names what leaks."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tiny import CASTS, arguments, tiny

import headwater as hw
from headwater.errors import NotApplicable, UsageError
from headwater.results.audit import Audit

METHODS = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")
NAMES = ("bert", "gpt2", "bloom", "albert", "llama", "xlnet", "bart", "vit", "mixtral", "torch-encoder")


@cache
def audited(name: str, method: str) -> Audit:
    return hw.audit(tiny(name), arguments(name, 1), method=method, output="logit")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_leaks_are_what_is_unaccounted_for(name: str, method: str) -> None:
    a = audited(name, method)
    named = sum(leak.amount for leak in a.leaks if leak.module)
    assert named == pytest.approx(a.explanation.ledger.unaccounted, abs=1e-5 if name in CASTS else 1e-7)
    assert (not a.leaks) == (method == "lrp")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_second_proposition(name: str, method: str) -> None:
    """Var/(eps + Var) of the relevance vanishes in a normalisation, none with the LN-rule."""
    norms = audited(name, method).norms
    assert len(norms) >= 4
    for norm in norms:
        assert norm.measured == pytest.approx(norm.predicted, abs=1e-6)
        assert norm.predicted == (1.0 if "ln" in method or method == "lrp" else norm.collapse)
        assert norm.collapse < 0.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_first_proposition(name: str, method: str) -> None:
    """With biases of queries and keys in their place, predicted and measured break agree at every head."""
    heads = audited(name, method).heads
    assert len(heads) == {"bart": 24}.get(name, 8)
    for head in heads:
        assert head.measured == pytest.approx(head.predicted, abs=1e-6)
    broken = max(abs(head.predicted) for head in heads)
    assert broken == 0 if "ah" in method or method == "lrp" else broken > 1e-3


@pytest.mark.parametrize("method", ["lrp-gamma", "lrp-query", "lrp-secant"])
def test_methods_with_a_backward_pass_of_their_own_are_audited(method: str) -> None:
    """An audit keeps the graph, so that what writes into its own memory on the way back must not be part of it."""
    found = audited("bert", method)
    assert found.explanation.ledger.closed
    assert not found.leaks


def test_the_papers_form_without_biases_is_another_number() -> None:
    """2 Cov_j(q, v) df/dy, which leaves out biases of queries and keys, does not hold here: so ours can be wrong."""
    model = tiny("bert")
    a = audited("bert", "gi")
    stripped = {k: v.clone() for k, v in model.state_dict().items()}
    for name in stripped:
        if name.endswith(("query.bias", "key.bias")):
            stripped[name].zero_()
    other = type(model)(model.config).double().eval()
    other.load_state_dict(stripped)
    b = hw.audit(other, arguments("bert", 1), method="gi")
    differences = [abs(x.predicted - y.predicted) for x, y in zip(a.heads, b.heads, strict=True)]
    assert max(differences) > 1e-3


@pytest.mark.parametrize("method", ["gi", "lrp"])
def test_residual_stream_does_not_blur_modules(method: str) -> None:
    """A linear layer keeps all of its relevance, whatever else its input feeds."""
    flows = [m for m in audited("bert", method).modules if m.kind == "Linear"]
    assert len(flows) > 10
    for flow in flows:
        assert flow.lost == pytest.approx(0, abs=1e-12)


def test_audit_names_the_operation_of_a_missing_rule() -> None:
    leaking = {leak.operation for leak in audited("bert", "lrp(ah+ln)").leaks}
    assert leaking == {"gelu", "tanh"}


def test_audit_gives_the_explanation_that_explain_gives() -> None:
    for method in METHODS:
        alone = hw.explain(tiny("bert"), arguments("bert", 1), method=method)[0]
        seen = audited("bert", method).explanation
        assert torch.allclose(alone.relevance, seen.relevance, atol=1e-12)
        assert alone.score == seen.score


@pytest.mark.parametrize("method", ["random", "leave-one-out", "a-last", "rollout", "gae", "ifr", "smoothgrad(lrp)"])
def test_what_is_not_followed_through_the_model_is_refused(method: str) -> None:
    """Of a mean over many passes the modules of the first would be shown beside the mean's own ledger."""
    with pytest.raises(NotApplicable, match=r"relevance to parts of the model|a mean over many passes"):
        audited("bert", method)
    if method.startswith("smoothgrad"):
        with pytest.raises(NotApplicable, match="a mean over many passes"):
            hw.explain(tiny("bert"), arguments("bert", 1), method=method, inside=["layers"])


def test_audit_is_of_one_input() -> None:
    with pytest.raises(UsageError, match="one input"):
        hw.audit(tiny("bert"), arguments("bert", 2))


def test_audit_leaves_no_hook_behind() -> None:
    model = tiny("bert")
    audited("bert", "lrp")
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
