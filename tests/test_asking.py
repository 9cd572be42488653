"""The query takes part: values and queries share attention, keys are held, and what the tangent leaves is a line."""

from __future__ import annotations

import math

import pytest
import torch
from attending import closed, fused_and_written
from tiny import BUILD, arguments, tiny
from torch import Tensor, nn

import headwater as hw
from headwater.rules.attention.query import QUERY_SHARE
from headwater.rules.attention.shares import OFFSET

METHODS = ("lrp-query", "lrp(ah=query+ln+act+gate)")


class Attention(nn.Module):
    """One head whose queries, keys and values come from inputs of their own; the score is a sum of its outputs."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.maps = nn.ParameterList(torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(3))
        self.fused = fused

    def parts(self, x: Tensor) -> list[Tensor]:
        return [x[:, i] @ weight for i, weight in enumerate(self.maps)]

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            mixed = (query @ key.transpose(-2, -1) / math.sqrt(4)).softmax(-1) @ value
        return mixed.sum((1, 2), keepdim=False)[:, None]


@pytest.mark.parametrize("fused", [True, False])
def test_it_is_what_the_sums_say(fused: bool) -> None:
    """R(q), R(k), R(v) and the offset, written out from y = p v, p = J s + c and s = q k."""
    model = Attention(fused).eval()
    x = torch.randn(1, 3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (e,) = hw.explain(model, x, method="lrp(ah=query+gate)", target=0)
    query, key, value = (part[0].detach() for part in model.parts(x))
    scores = query @ key.T / 2
    weights = scores.softmax(-1)
    tangent = weights * (scores - (weights * scores).sum(-1, keepdim=True))
    of_values, of_scores = (float((p @ value).sum()) for p in (weights, tangent))
    relevance = e.relevance.reshape(3, -1).sum(1)
    expected = torch.tensor([QUERY_SHARE * of_scores, 0.0, (1 - QUERY_SHARE) * of_values], dtype=relevance.dtype)
    torch.testing.assert_close(relevance, expected, rtol=1e-6, atol=1e-9)
    offset = sum(amount for name, amount in e.ledger.constants.items() if OFFSET in name)
    assert offset == pytest.approx(QUERY_SHARE * (of_values - of_scores))
    assert e.ledger.closed


@pytest.mark.crossed
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BUILD)
def test_the_ledger_closes(name: str, method: str) -> None:
    for e in closed(name, method):
        assert any(OFFSET in line for line in e.ledger.constants)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "qwen3"])
def test_written_out_or_fused_it_is_the_same(name: str) -> None:
    for fused, written in fused_and_written(name, "lrp-query"):
        ours, theirs = (sum(v for k, v in e.ledger.constants.items() if OFFSET in k) for e in (fused, written))
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_without_its_line_the_ledger_would_be_open(name: str) -> None:
    e = hw.explain(tiny(name), arguments(name), method="lrp-query")[0]
    offset = sum(amount for line, amount in e.ledger.constants.items() if OFFSET in line)
    assert abs(offset) > 1e-3 * abs(e.score)
