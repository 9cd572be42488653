"""The ledger closes with all rules on every architecture, stays open without one, and leaves the prediction alone."""

from __future__ import annotations

import pytest
import torch
from tiny import BUILD, CASTS, arguments, tiny

import headwater as hw
from headwater.explanation import Explanation

PAPER = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)")
EVERY = ("ah", "ln", "act", "gate")


def explain_tiny(name: str, method: str = "lrp", samples: int = 2, **options: object) -> list[Explanation]:
    found: list[Explanation] = hw.explain(tiny(name), arguments(name, samples), method=method, **options)
    return found


def all_rules_but(missing: str) -> str:
    return f"lrp({'+'.join(rule for rule in EVERY if rule != missing)})"


def plain_score(name: str) -> list[float]:
    with torch.no_grad():
        out = tiny(name)(**arguments(name))
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


@pytest.mark.parametrize("method", [*PAPER, "lrp"])
@pytest.mark.parametrize("name", BUILD)
def test_prediction_is_untouched(name: str, method: str) -> None:
    assert [e.score for e in explain_tiny(name, method)] == plain_score(name)


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
        alone = hw.explain(tiny(name), {k: v[i : i + 1] for k, v in arguments(name, 3).items()})[0]
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
    e = hw.explain(tiny("xlnet"), padded)[0]
    assert len(e.relevance) == 6
    assert abs(e.ledger.constants["padding"]) > 1e-3
    assert e.ledger.closed


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


def test_as_a_dict_each_entry_stands_where_it_says_something() -> None:
    assert Ledger(1.0, 1.0, spread=2.0).to_dict() == {
        "score": 1.0,
        "inputs": 1.0,
        "biases": {},
        "constants": {},
        "readout": 0.0,
        "unaccounted": 0.0,
        "error": 0.0,
        "closed": True,
        "scale": "score",
        "dtype": "float32",
        "spread": 2.0,
    }
    cut = Ledger(1.0, 0.5, cut_off=Lines({"detach": 0.25}), held=Lines({"memory": 0.25}), cut_size=0.75, magnitude=3.0)
    more = {name: value for name, value in cut.to_dict().items() if name not in Ledger(1.0, 1.0).to_dict()}
    assert more == {
        "cut_off": {"detach": 0.25},
        "held": {"memory": 0.25},
        "why": cut.why,
        "cut_size": 0.75,
        "magnitude": 3.0,
    }


def test_defaults_add_nothing() -> None:
    ledger = Ledger(1.0, 1.0)
    assert (ledger.readout, ledger.magnitude, ledger.spread, ledger.cut_size) == (0.0, 0.0, 0.0, 0.0)
    assert (dict(ledger.biases), dict(ledger.constants), dict(ledger.cut_off), dict(ledger.held)) == ({}, {}, {}, {})


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_every_bound_grows_with_what_it_is_a_part_of(dtype: str, tolerance: float, size: float) -> None:
    def with_gap(part: float) -> Ledger:
        return Ledger(size * (1 + part), size, dtype=dtype)

    assert with_gap(0.5 * tolerance).scale == "score"
    assert with_gap(2 * tolerance).scale == "lines"
    assert with_gap(0.5 * tolerance).closed
    assert not with_gap(2 * tolerance).closed
    cut = min(tolerance, 1e-5) * size
    assert Ledger(size, size, cut_off=Lines({"detach": 0.5 * cut, "round": -0.5 * cut}), dtype=dtype, cut_size=0).closed
    for opens in ({"cut_off": Lines({"a": 2 * cut, "b": -2 * cut})}, {"cut_size": 2 * cut}):
        assert "cuts off" in Ledger(size, size, dtype=dtype, **opens).why  # type: ignore[arg-type]
    held = {"held": Lines({"a": 0.06 * size, "b": -0.06 * size})}
    assert "hold constant" in Ledger(size, size, dtype=dtype, **held).why
    assert Ledger(size, size, dtype=dtype, held=Lines({"a": 0.03 * size, "b": -0.03 * size})).closed
    near = Ledger(
        size * (1 + 2 * tolerance**0.5), size, Lines({"a": 1e20 * size}), Lines({"b": -1e20 * size}), dtype=dtype
    )
    assert "finer dtype" in near.why
