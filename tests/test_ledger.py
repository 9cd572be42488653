"""The ledger closes with all rules on every architecture, stays open without one, and leaves the prediction alone."""

from __future__ import annotations

import pytest
import torch
from tiny import BUILD, CASTS, arguments, tiny

import headwater as hw
from headwater.inputs.text import can_generate, takes
from headwater.results.explanation import Explanation

PAPER = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)")
EVERY = ("ah", "ln", "act", "gate")


def explain_tiny(name: str, method: str = "lrp", samples: int = 2, **options: object) -> list[Explanation]:
    found: list[Explanation] = hw.explain(tiny(name), arguments(name, samples), method=method, **options)
    return found


def all_rules_but(missing: str) -> str:
    return f"lrp({'+'.join(rule for rule in EVERY if rule != missing)})"


def plain_score(name: str) -> list[float]:
    model = tiny(name)
    last = {"logits_to_keep": 1} if can_generate(model) and takes(model, "logits_to_keep") else {}
    with torch.no_grad():  # a product with one row rounds in another way than one with all rows
        out = model(**arguments(name), **last)
    logits = out if isinstance(out, torch.Tensor) else out.logits
    return [float(row.max()) for row in (logits[:, -1] if logits.dim() == 3 else logits)]


@pytest.mark.parametrize("at", ["embeddings", "words"])
@pytest.mark.parametrize("name", BUILD)
def test_ledger_closes(name: str, at: str) -> None:
    bound = 1e-5 if name in CASTS else 1e-10
    for e in explain_tiny(name, at=at):
        assert e.ledger.error <= bound
        assert float(e.relevance.sum()) == pytest.approx(e.ledger.inputs, rel=1e-12)
        lines = e.ledger.inputs + e.ledger.biases + e.ledger.constants + e.ledger.unaccounted
        assert lines == pytest.approx(e.score, rel=1e-9)


@pytest.mark.crossed
@pytest.mark.parametrize("method", [*PAPER, "lrp"])
@pytest.mark.parametrize("name", BUILD)
def test_prediction_is_untouched(name: str, method: str) -> None:
    assert [e.score for e in explain_tiny(name, method, output="logit")] == plain_score(name)


@pytest.mark.parametrize(
    ("name", "missing"),
    [(n, r) for n in ("bert", "gpt2", "albert", "bloom", "bart", "vit") for r in ("ah", "ln", "act")]
    + [("t5", "ah"), ("t5", "ln")]  # a feed-forward of ReLU: its gradient is the rule already
    + [(n, r) for n in ("llama", "gemma2", "mixtral", "phi3") for r in ("ah", "ln", "gate")],
)
def test_ledger_stays_open_without(name: str, missing: str) -> None:
    worst = max(e.ledger.error for e in explain_tiny(name, all_rules_but(missing)))
    assert worst > 1e-4


@pytest.mark.parametrize("name", BUILD)
def test_batch_changes_nothing(name: str) -> None:
    """Relevance and every line of the ledger, alone and in a batch."""
    bound = 1e-6 if name in CASTS else 1e-9
    together = explain_tiny(name, samples=3)
    for i, e in enumerate(together):
        fields = {k: v[i : i + 1] for k, v in arguments(name, 3).items()}
        alone = hw.explain(tiny(name), fields, method="lrp")[0]
        assert e.relevance == pytest.approx(alone.relevance, abs=bound)
        for mine, other in ((e.ledger.biases, alone.ledger.biases), (e.ledger.constants, alone.ledger.constants)):
            assert set(mine) == set(other)
            assert [mine[k] for k in mine] == pytest.approx([other[k] for k in mine], abs=bound)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2", "torch-encoder-sequence-first", "xlnet"])
def test_batch_as_large_as_the_text_is_long(name: str) -> None:
    """Shapes do not tell samples from positions here, so the second pass must."""
    inputs = arguments(name, samples=5, length=5)
    for i, e in enumerate(hw.explain(tiny(name), inputs)):
        alone = hw.explain(tiny(name), {k: v[i : i + 1] for k, v in inputs.items()})[0]
        assert e.ledger.error < 1e-10
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-9)


@pytest.mark.crossed
@pytest.mark.parametrize("method", [*PAPER, "lrp"])
@pytest.mark.parametrize("name", sorted(set(BUILD) - {"vit", "xlnet"}))
def test_padding_changes_nothing(name: str, method: str) -> None:
    """XLNet reads its answer off the last position, padding or not: its own logits differ."""
    short = arguments(name, 1, length=6)
    padded = {k: torch.cat([v, torch.zeros(1, 3, dtype=v.dtype)], 1) for k, v in short.items()}
    one, other = (hw.explain(tiny(name), x, method=method)[0] for x in (short, padded))
    exact = abs(one.score - other.score) < 1e-12  # BLOOM's and Gemma 2's masked softmax is in float32
    assert other.score == pytest.approx(one.score, abs=1e-6)
    assert other.relevance == pytest.approx(one.relevance, abs=1e-9 if exact and name not in CASTS else 1e-6)


def test_padding_that_the_model_uses_has_its_own_line() -> None:
    short = arguments("xlnet", 1, length=6)
    padded = {k: torch.cat([v, torch.zeros(1, 3, dtype=v.dtype)], 1) for k, v in short.items()}
    e = hw.explain(tiny("xlnet"), padded, method="lrp")[0]
    assert len(e.relevance) == 6
    assert abs(e.ledger.constants["padding"]) > 1e-3
    assert e.ledger.closed


@pytest.mark.slow
@pytest.mark.parametrize("method", [*PAPER, "lrp"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma3", "vit", "opt", "bart", "modernbert"])
def test_eager_and_sdpa_agree(name: str, method: str) -> None:
    model = tiny(name)
    found = {}
    before = model.config._attn_implementation
    try:
        for implementation in ("eager", "sdpa"):
            model.set_attn_implementation(implementation)
            assert model.config._attn_implementation == implementation
            found[implementation] = explain_tiny(name, method)
    finally:
        model.set_attn_implementation(before)
    for a, b in zip(found["eager"], found["sdpa"], strict=True):
        same = a.score == pytest.approx(b.score, abs=1e-12)  # eager attention may cast its softmax to float32
        assert a.relevance == pytest.approx(b.relevance, abs=1e-9 if same and name not in CASTS else 1e-5)
        assert dict(a.rules_met).get("ah", 0) == dict(b.rules_met).get("ah", 0) or method == "gi"
