"""`lrp` is the model with its gates, normalisers and activation ratios fixed: compared with that linear map itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import difference, lines_difference
from reference.linearised import Affine, Decomposition, Signal, bert, llama, mixing
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import headwater as hw

EXACT = 1e-9
CASTS = 1e-5  # Llama's norms, positions and eager softmax go through float32
IDS = torch.tensor([[2, 17, 5, 40, 23, 3], [2, 8, 31, 9, 55, 3]])


def random_bert(attention: str = "sdpa") -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        layer_norm_eps=1e-6,
        num_labels=3,
        attn_implementation=attention,
    )
    return randomised(BertForSequenceClassification(config))


def random_llama(attention: str = "sdpa") -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        rms_norm_eps=1e-5,
        attention_bias=True,
        mlp_bias=True,
        attn_implementation=attention,
    )
    return randomised(LlamaForCausalLM(config))


def randomised(model: Any) -> Any:
    """Random biases and norm weights too, in float64; wide enough that attention, gates and GELU matter."""
    noise = torch.Generator().manual_seed(0)
    model.double().eval()
    for name, value in model.named_parameters():
        centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        value.data.copy_(centre + 0.3 * torch.randn(value.shape, generator=noise, dtype=torch.float64))
    return model


def by_map(model: Any, ids: Tensor, target: int, gate: str = "constant") -> Decomposition:
    """The slow answer for one text without padding, from the model's weights."""
    if isinstance(model, BertForSequenceClassification):
        return bert(model.state_dict(), ids, target, layers=3, heads=4, eps=1e-6)
    return llama(model.state_dict(), ids, target, layers=2, heads=4, groups=2, eps=1e-5, theta=10000.0, gate=gate)


def tensors(ids: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def agree(found: hw.Explanation, expected: Decomposition, tolerance: float) -> None:
    """Token by token, bias by bias, and nothing else on the ledger."""
    size = float(expected.tokens.abs().max())
    assert found.score == pytest.approx(expected.score, rel=tolerance, abs=tolerance * size)
    assert difference(found.relevance.double(), expected.tokens) < tolerance
    assert lines_difference(found.ledger.biases, expected.biases) < tolerance
    assert found.ledger.inputs == pytest.approx(float(expected.tokens.sum()), rel=tolerance, abs=tolerance * size)
    rest = [*found.ledger.constants.values(), found.ledger.readout, found.ledger.unaccounted]
    assert sum(map(abs, rest)) < tolerance * size


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_bert(target: int, attention: str) -> None:
    model = random_bert(attention)
    found = hw.explain(model, tensors(IDS), target=target, method="lrp")
    for explanation, ids in zip(found, IDS, strict=True):
        agree(explanation, by_map(model, ids, target), EXACT)


def test_bert_in_a_padded_batch() -> None:
    """Padding gets nothing, and changes nothing: the linear map never saw it."""
    model, lengths = random_bert(), (6, 4)
    mask = torch.tensor([[1] * n + [0] * (6 - n) for n in lengths])
    found = hw.explain(model, {"input_ids": IDS * mask, "attention_mask": mask}, target=1, method="lrp")
    for explanation, ids, n in zip(found, IDS, lengths, strict=True):
        expected = by_map(model, ids[:n], 1)
        assert difference(explanation.relevance[:n], expected.tokens) < EXACT
        assert not explanation.relevance[n:].any()
        assert lines_difference(explanation.ledger.biases, expected.biases) < EXACT


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("method", "gate"), [("lrp", "constant"), ("lrp(ah+ln+act+gate=half)", "half")])
def test_llama(method: str, gate: str, attention: str) -> None:
    model, token = random_llama(attention), 41
    found = hw.explain(model, tensors(IDS), score=lambda out: out.logits[:, -1, token], method=method)
    for explanation, ids in zip(found, IDS, strict=True):
        agree(explanation, by_map(model, ids, token, gate=gate), CASTS)


def test_llama_by_token() -> None:
    """A token's index is a target: its logit after the last position."""
    model, token = random_llama(), 7
    for explanation, ids in zip(
        hw.explain(model, tensors(IDS), target=token, output="logit", method="lrp"), IDS, strict=True
    ):
        agree(explanation, by_map(model, ids, token), CASTS)


# The linear maps themselves: do they stand without the library, and would a forgotten rule be seen?


@pytest.mark.parametrize("ids", IDS, ids=["first", "second"])
def test_linearised_bert_is_bert(ids: Tensor) -> None:
    model = random_bert("eager")
    logits = model(**tensors(ids[None])).logits[0].tolist()
    for target, logit in enumerate(logits):
        own = by_map(model, ids, target)
        assert own.score == pytest.approx(logit, rel=1e-12)
        assert float(own.tokens.sum()) + sum(own.biases.values()) == pytest.approx(logit, rel=1e-12)


@pytest.mark.parametrize("gate", ["constant", "half"])
@pytest.mark.parametrize("ids", IDS, ids=["first", "second"])
def test_linearised_llama_is_llama(ids: Tensor, gate: str) -> None:
    model = random_llama("eager")
    logits = model(**tensors(ids[None])).logits[0, -1].tolist()
    for target in (0, 7, 41):
        own = by_map(model, ids, target, gate=gate)
        assert own.score == pytest.approx(logits[target], rel=1e-6, abs=1e-6)
        assert float(own.tokens.sum()) + sum(own.biases.values()) == pytest.approx(own.score, rel=1e-12)


def test_every_bias_has_a_line_but_those_of_queries_and_keys() -> None:
    for model in (random_bert(), random_llama()):
        own = by_map(model, IDS[0], 1, gate="half")
        silent = ("query.bias", "key.bias", "q_proj.bias", "k_proj.bias", "embeddings.LayerNorm.bias")
        names = {n for n, _ in model.named_parameters() if n.endswith("bias") and not n.endswith(silent)}
        assert set(own.biases) == names
        assert all(own.biases.values())


def test_gates_move_relevance() -> None:
    """Constant and half each are two explanations, and the bias of a constant gate gets nothing."""
    model = random_llama()
    constant, half = (by_map(model, IDS[0], 7, gate=gate) for gate in ("constant", "half"))
    assert difference(half.tokens, constant.tokens) > 1e-2
    assert not any("gate_proj" in name for name in constant.biases)
    assert any("gate_proj" in name for name in half.biases)


@pytest.mark.parametrize("missing", ["ah", "ln", "act"])
def test_bert_without_a_rule_is_another_explanation(missing: str) -> None:
    model = random_bert()
    rest = "+".join(rule for rule in ("ah", "ln", "act") if rule != missing)
    (found,) = hw.explain(model, tensors(IDS[:1]), target=1, method=f"lrp({rest})")
    assert difference(found.relevance, by_map(model, IDS[0], 1).tokens) > 1e-2


def test_maps_compose_by_hand() -> None:
    """y = 2x + b, then z = 3y + c, beside x itself: z + x = 7x + 3b + c."""
    one, two = (torch.tensor([[n]]) for n in (2.0, 3.0))
    path = Affine(one, {"b": torch.tensor([5.0])}).then(Affine(two, {"c": torch.tensor([1.0])})) + Affine(torch.eye(1))
    assert path.matrix.item() == 7
    assert {name: vector.item() for name, vector in path.sources.items()} == {"b": 15, "c": 1}
    assert path(torch.tensor([10.0])).item() == 86


def test_heads_that_share_values_mix_them() -> None:
    """Four heads over two groups of values, against the loop."""
    p, v = torch.rand(4, 3, 3).softmax(-1).double(), torch.rand(3, 2 * 5).double()
    mixed = Signal.start({}, v).through(mixing(p, size=5, groups=2)).value
    for j in range(3):
        for head in range(4):
            value = v[:, 5 * (head // 2) : 5 * (head // 2) + 5]
            expected = sum(p[head, j, i] * value[i] for i in range(3))
            torch.testing.assert_close(mixed[j, 5 * head : 5 * head + 5], expected)
