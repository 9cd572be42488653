"""`baseline(METHOD)` and `mean(A,B)`: what they compute, and that their ledgers close where those of their parts do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import arguments, tiny, tokenizer

import headwater as hw
from headwater.errors import UsageError
from headwater.methods import resolve_method
from headwater.methods.composed import BASELINE
from headwater.names import split_names
from headwater.testing import check_method

TEXTS = ["a gripping, beautifully acted film", "the movie is not good"]
SHARES = "lrp(ah=shares(q=0.2,k=0.3,v=0.5)+ln+act+gate)"
SECANT = "lrp(ah=secant+ln+act+gate+gamma=0.02)"


def explain(method: str, model: str = "bert", **options: Any) -> hw.Explanation:
    return hw.explain(tiny(model).double(), TEXTS[0], tokenizer=tokenizer(), method=method, target=1, **options)


@pytest.mark.parametrize(
    "name", ["baseline(gi)", "baseline(lrp-gamma(0.02))", f"mean(lrp,{SHARES})", f"baseline(mean(lrp,{SECANT}))"]
)
@pytest.mark.parametrize("model", ["bert", "distilbert"])
def test_composed_methods_conform(name: str, model: str) -> None:
    assert check_method(name, tiny(model), TEXTS, tokenizer=tokenizer(), tolerance=1e-4) is not None


@pytest.mark.parametrize(
    "name", ["baseline(lrp)", f"baseline({SECANT})", f"mean(lrp-gamma,{SHARES})", f"mean(lrp,baseline({SECANT}))"]
)
@pytest.mark.parametrize("model", ["bert", "distilbert", "gpt2"])
def test_the_ledger_closes(name: str, model: str) -> None:
    assert explain(name, model).ledger.unaccounted == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", ["baseline(gi)", "mean(lrp,gi)"])
def test_the_ledger_stays_open_where_that_of_a_part_does(name: str) -> None:
    assert abs(explain(name).ledger.unaccounted) > 1e-3


def test_relevance_is_the_gradient_times_the_difference_to_unk() -> None:
    """By hand: the model's own embeddings of the text and of [UNK] at every place."""
    model: Any = tiny("bert").double()
    read = tokenizer()
    ids = read(TEXTS[0], return_tensors="pt")["input_ids"]
    embed = model.bert.embeddings
    seen: list[torch.Tensor] = []

    def start(module: object, args: object, output: torch.Tensor) -> torch.Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    handle = embed.register_forward_hook(start)
    score = model(input_ids=ids).logits[0, 1]
    handle.remove()
    (gradient,) = torch.autograd.grad(score, seen[:1])
    with torch.no_grad():
        baseline = embed(torch.full_like(ids, read.unk_token_id))
    expected = (gradient * (seen[0].detach() - baseline)).sum(-1)[0]
    found = explain("baseline(gi)")
    torch.testing.assert_close(found.relevance.double(), expected.double())
    assert found.ledger.constants[BASELINE] == pytest.approx(float((gradient * baseline).sum()))


def test_a_text_of_unk_alone_has_no_relevance() -> None:
    read = tokenizer()
    ids = torch.full((1, 5), read.unk_token_id)
    (found,) = hw.explain(tiny("bert"), {"input_ids": ids}, tokenizer=read, method="baseline(lrp)", target=0)
    assert found.relevance.abs().max() == 0
    assert found.ledger.unaccounted == pytest.approx(0, abs=1e-5)


def test_padding_does_not_change_the_baseline() -> None:
    alone = [hw.explain(tiny("bert"), text, tokenizer=tokenizer(), method="baseline(lrp)", target=1) for text in TEXTS]
    together = hw.explain(tiny("bert"), list(TEXTS), tokenizer=tokenizer(), method="baseline(lrp)", target=1)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.relevance, other.relevance, atol=1e-5, rtol=1e-4)
        assert one.ledger.constants[BASELINE] == pytest.approx(other.ledger.constants[BASELINE], abs=1e-5)


def test_without_tokens_the_baseline_is_zero() -> None:
    plain, less = (
        hw.explain(tiny("vit"), arguments("vit"), method=name, target=0) for name in ("lrp", "baseline(lrp)")
    )
    for one, other in zip(plain, less, strict=True):
        torch.testing.assert_close(one.relevance, other.relevance)


def test_a_mean_is_the_mean_of_its_parts() -> None:
    one, other, both = (explain(name) for name in ("lrp", SHARES, f"mean(lrp,{SHARES})"))
    torch.testing.assert_close(both.relevance, (one.relevance + other.relevance) / 2)
    for name in ("inputs", "readout"):
        expected = (getattr(one.ledger, name) + getattr(other.ledger, name)) / 2
        assert getattr(both.ledger, name) == pytest.approx(expected)
    assert both.ledger.biases.total == pytest.approx((one.ledger.biases.total + other.ledger.biases.total) / 2)


def test_a_baseline_of_a_mean_is_the_mean_of_baselines() -> None:
    first, second = explain(f"baseline(mean(lrp,{SECANT}))"), explain(f"mean(baseline(lrp),baseline({SECANT}))")
    torch.testing.assert_close(first.relevance, second.relevance)


def test_names_are_split_outside_brackets() -> None:
    assert split_names(f"lrp,{SHARES},gi") == ["lrp", SHARES, "gi"]
    assert resolve_method(f"mean( lrp, {SHARES} )").name == f"mean(lrp,{SHARES})"


@pytest.mark.parametrize("name", ["baseline(rollout)", "mean(lrp,gae)", "mean(lrp)"])
def test_what_cannot_be_composed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="takes"):
        resolve_method(name)


@pytest.mark.parametrize("name", ["baseline(baseline(lrp))", "baseline(mean(baseline(lrp),lrp))"])
def test_a_baseline_is_taken_off_once(name: str) -> None:
    with pytest.raises(UsageError, match="no place inside another"):
        hw.explain(tiny("bert"), "a good film", tokenizer=tokenizer(), method=name)
