"""Attention that takes part: the softmax by its secant, exact, linear and conserving, however attention is written."""

from __future__ import annotations

import pytest
import torch
from attending import closed, fused_and_written
from tiny import BUILD, arguments, tiny
from torch import Tensor

import headwater as hw
from headwater.errors import UnknownName
from headwater.rules.attention.secant import even_weights, secant

METHODS = ("lrp-secant", "lrp(ah=secant+ln+act+gate=half)", "lrp(ah=secant+ln+act+gate+gamma=0.05)")


def scores_of(seed: int, masked: bool) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(4, 5, 7, generator=generator, dtype=torch.float64)
    if masked:
        scores[:, :, 4:] = -torch.inf
        scores[0, 0, 1] = -torch.inf
    return scores


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_softmax_and_linear_in_the_scores(seed: int, masked: bool) -> None:
    """Value p; scores times gradient is p minus even attention; moving all scores alike changes nothing."""
    scores = scores_of(seed, masked).requires_grad_()
    weights = scores.detach().softmax(-1)
    even = even_weights(weights)
    line = secant(scores, weights, even)
    torch.testing.assert_close(line, weights)
    upstream = torch.randn(line.shape, dtype=torch.float64)
    (slope,) = torch.autograd.grad((line * upstream).sum(), scores)
    assert bool(slope.isfinite().all())
    assert bool((slope[scores.detach() == -torch.inf] == 0).all())
    finite = scores.detach().nan_to_num(neginf=0.0)
    torch.testing.assert_close((finite * slope).sum(), ((weights - even) * upstream).sum())
    torch.testing.assert_close(slope.sum(-1), torch.zeros(4, 5, dtype=torch.float64))


def test_where_nothing_is_preferred_it_is_the_gradient() -> None:
    scores = torch.full((2, 6), 1.5, dtype=torch.float64, requires_grad=True)
    weights = scores.detach().softmax(-1)
    upstream = torch.randn(2, 6, dtype=torch.float64)
    (ours,) = torch.autograd.grad((secant(scores, weights, even_weights(weights)) * upstream).sum(), scores)
    (theirs,) = torch.autograd.grad((scores.softmax(-1) * upstream).sum(), scores)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BUILD)
def test_the_ledger_closes_through_the_softmax(name: str, method: str) -> None:
    assert closed(name, method)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_queries_and_keys_take_part(name: str) -> None:
    """Otherwise it would be the AH-rule; and left to its gradient the softmax does not conserve."""
    batch = arguments(name)
    secants, constant, gradient = (
        hw.explain(tiny(name), batch, method=method)[0] for method in ("lrp-secant", "lrp", "attnlrp")
    )
    assert (secants.relevance - constant.relevance).abs().max() > 1e-3 * constant.relevance.abs().max()
    assert gradient.ledger.error > 1e-4


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "qwen3"])
def test_written_out_or_fused_it_is_the_same(name: str) -> None:
    assert fused_and_written(name, "lrp-secant")


def test_a_bias_of_the_scores_is_a_line() -> None:
    """T5's relative positions and BLOOM's ALiBi enter through the scores alone."""
    t5 = hw.explain(tiny("t5"), arguments("t5"), method="lrp-secant")[0]
    assert any("relative_attention_bias" in name and amount != 0 for name, amount in t5.ledger.constants.items())
    bloom = hw.explain(tiny("bloom"), arguments("bloom"), method="lrp-secant")[0]
    assert any("baddbmm" in name and amount != 0 for name, amount in bloom.ledger.constants.items())


def test_gates_have_no_secant() -> None:
    with pytest.raises(UnknownName, match="share for 'gate'"):
        hw.explain(tiny("bert"), arguments("bert"), method="lrp(ah+gate=secant)")
