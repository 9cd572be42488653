"""Faults that a hostile reading found once; each must stay mended."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from tiny import SMALL, arguments, randomised, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.errors import TargetError, UsageError


class Made(nn.Module):
    """A module of one function and some parameters."""

    def __init__(self, function: Callable[..., Tensor], *parameters: Tensor) -> None:
        super().__init__()
        self.function, self.p = function, nn.ParameterList(nn.Parameter(p) for p in parameters)
        self.eval()

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(self, *x)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def explain(
    function: Callable[..., Tensor], *parameters: Tensor, x: Any = None, method: str = "lrp", **options: Any
) -> Any:
    x = draw(1, 4, 8) if x is None else x
    options.setdefault("score", lambda out: out.sum(tuple(range(1, out.dim()))))
    return hw.explain(Made(function, *parameters), x, method=method, **options)[0]


@pytest.mark.parametrize("turn", [lambda w: w.T, lambda w: w.mT, lambda w: w.transpose(0, 1), lambda w: w.H])
def test_a_turned_parameter_is_still_a_parameter(turn: Callable[[Tensor], Tensor]) -> None:
    e = explain(lambda s, x: F.gelu(x @ turn(s.p[0])), draw(5, 8))
    assert e.ledger.closed
    assert e.ledger.inputs == pytest.approx(e.score)


def test_a_turned_gate_is_still_a_gate() -> None:
    w, u = draw(8, 8, seed=1), draw(8, 8, seed=2)
    one = explain(lambda s, x: torch.sigmoid(x @ s.p[0]).mT * (x @ s.p[1]).mT, w, u)
    two = explain(lambda s, x: torch.sigmoid(x @ s.p[0]) * (x @ s.p[1]), w, u)
    assert one.relevance == pytest.approx(two.relevance, abs=1e-12)


def test_written_in_place_is_the_same_as_not() -> None:
    w = [draw(8, 8, seed=i) for i in range(3)]

    def inplace(s: Any, x: Tensor) -> Tensor:
        h = F.gelu(x @ s.p[0])
        h += x @ s.p[1]
        return h * (x @ s.p[2])

    def plain(s: Any, x: Tensor) -> Tensor:
        return (F.gelu(x @ s.p[0]) + x @ s.p[1]) * (x @ s.p[2])

    assert explain(inplace, *w).relevance == pytest.approx(explain(plain, *w).relevance, abs=1e-12)


def test_a_bound_makes_no_gate() -> None:
    w, u = draw(8, 8, seed=1), draw(8, 8, seed=2)
    bound = explain(lambda s, x: (x @ s.p[0]).clamp(-99, 99) * F.silu(x @ s.p[1]), w, u)
    free = explain(lambda s, x: (x @ s.p[0]) * F.silu(x @ s.p[1]), w, u)
    assert bound.relevance == pytest.approx(free.relevance, abs=1e-12)


@pytest.mark.parametrize("method", ["gi", "lrp(ln)", "lrp(act)", "lrp"])
def test_silu_as_a_division_is_an_activation(method: str) -> None:
    def forward(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        return lambda s, x: F.layer_norm(activation(x @ s.p[0]), (8,)) @ s.p[1]

    w = (draw(8, 8, seed=1), draw(8, 3, seed=2))
    by_hand = explain(forward(lambda z: z / (1 + torch.exp(-z))), *w, method=method)
    assert by_hand.relevance == pytest.approx(explain(forward(F.silu), *w, method=method).relevance, abs=1e-9)


@pytest.mark.parametrize("method", ["lrp(ah)", "lrp(ah+ln)", "lrp"])
def test_a_softmax_that_is_normalised_again_or_written_by_hand_is_attention(method: str) -> None:
    def layer(weights: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        return lambda s, x: F.layer_norm(weights(x @ s.p[0] @ x.transpose(1, 2)) @ (x @ s.p[1]), (8,))

    def again(scores: Tensor) -> Tensor:
        p = scores.softmax(-1) * 0.5
        return p / p.sum(-1, keepdim=True)

    def hand(scores: Tensor) -> Tensor:
        e = torch.exp(scores)
        return e / e.sum(-1, keepdim=True)

    w = (draw(8, 8, seed=1) / 8, draw(8, 8, seed=2))
    expected = explain(layer(lambda scores: scores.softmax(-1)), *w, method=method)
    for spelling in (again, hand):
        assert explain(layer(spelling), *w, method=method).relevance == pytest.approx(expected.relevance, abs=1e-9)


def test_the_papers_rules_leave_routers_alone() -> None:
    """Renormalised router weights are no normalisation, a softmax after topk no attention."""
    parts = (draw(8, 3, seed=1), draw(8, 8, seed=2), draw(8, 8, seed=3))

    def forward(s: Any, x: Tensor, weights: Tensor) -> Tensor:
        a = (x @ s.p[1] @ x.transpose(1, 2)).softmax(-1)
        return F.layer_norm(a @ x, (8,)) @ s.p[2] * weights.sum(-1, keepdim=True)

    def renormalised(s: Any, x: Tensor) -> Tensor:
        w, _ = (x @ s.p[0]).softmax(-1).topk(2, -1)
        return forward(s, x, (w / w.sum(-1, keepdim=True))[..., :1])

    def after_topk(s: Any, x: Tensor) -> Tensor:
        w, _ = (x @ s.p[0]).topk(2, -1)
        return forward(s, x, w.softmax(-1)[..., :1])

    for function in (renormalised, after_topk):
        e = explain(function, *parts, method="lrp(ah+ln)")
        assert dict(e.rules_met) == {"ah": 1, "ln": 1}


def test_joined_signals_of_different_kinds_are_no_gate() -> None:
    w, u = draw(8, 8, seed=1), draw(8, 16, seed=2)
    first = explain(lambda s, x: torch.cat([torch.sigmoid(x @ s.p[0]), x], -1) * (x @ s.p[1]), w, u)
    second = explain(lambda s, x: torch.cat([x, torch.sigmoid(x @ s.p[0])], -1) * (x @ s.p[1].roll(8, 1)), w, u)
    assert first.relevance == pytest.approx(second.relevance, abs=1e-12)


def test_operands_given_by_name() -> None:
    w = draw(8, 8, seed=1)
    named = explain(lambda s, x: torch.matmul(input=torch.add(input=x, other=1.0), other=s.p[0]), w)
    plain = explain(lambda s, x: (x + 1.0) @ s.p[0], w)
    assert named.relevance == pytest.approx(plain.relevance, abs=1e-12)
    assert named.ledger.closed
    attention = lambda s, x: torch.matmul(input=torch.softmax(input=x @ x.mT, dim=-1), other=x)  # noqa: E731
    assert dict(explain(attention, method="lrp(ah)").rules_met) == {"ah": 1}


@pytest.mark.parametrize("pool", [F.max_pool1d, F.adaptive_max_pool1d])
def test_pooling(pool: Callable[..., Tensor]) -> None:
    e = explain(lambda s, x: pool(F.gelu(x + s.p[0]), 2), draw(8))
    assert e.ledger.closed


def test_eval_batch_norm_with_one_sample_in_any_memory_order() -> None:
    """torch's own backward is wrong here."""
    norm = nn.BatchNorm2d(16).double().eval()
    with torch.no_grad():
        norm.running_mean.copy_(draw(16))
        norm.running_var.uniform_(0.5, 2)
    model = Made(lambda s, x: (norm(x).flatten(2).transpose(1, 2) @ s.p[0]).sum((1, 2)), draw(16, 5))
    for method in ("gi", "lrp"):
        e = hw.explain(model, draw(1, 16, 2, 2), method=method, score=lambda out: out)[0]
        assert e.ledger.error < 1e-12


def test_fully_masked_rows_are_nothing() -> None:
    mask = torch.zeros(4, 4, dtype=torch.float64)
    mask[0] = -torch.inf
    e = explain(lambda s, x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask).nan_to_num()[:, 1:])
    assert e.ledger.closed


def test_outputs_that_are_not_one_a_sample_are_refused() -> None:
    with pytest.raises(TargetError, match="do not stand first"):
        hw.explain(Made(lambda s, x: x.reshape(-1, 8) @ s.p[0], draw(8, 3)), draw(1, 4, 8))
    with pytest.raises(TargetError, match="do not stand first"):
        hw.explain(Made(lambda s, x: x.reshape(-1, 8)[0] @ s.p[0], draw(8, 3)), draw(1, 4, 8))


def test_outputs_with_samples_second() -> None:
    """[positions, samples, classes] with as many positions as samples: each sample has its own readout and biases."""
    model = Made(lambda s, x: F.gelu(x @ s.p[0] + s.p[1]).transpose(0, 1), draw(8, 3), draw(3, seed=4))
    x = draw(3, 3, 8, seed=5)
    found = hw.explain(model, x, score=lambda out: out[0, :, 1])
    for i, e in enumerate(found):
        alone = hw.explain(model, x[i : i + 1], score=lambda out: out[0, :, 1])[0]
        assert e.ledger.readout == pytest.approx(alone.ledger.readout, abs=1e-12)
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)


def test_a_constant_on_folded_experts() -> None:
    """[experts, samples x tokens, width] with as many experts as samples."""

    def function(s: Any, x: Tensor) -> Tensor:
        tokens = x.reshape(1, -1, 8).expand(2, -1, 8)
        return (F.gelu(tokens @ s.p[0] + 1.0)).sum(0).reshape(x.shape).sum((1, 2))

    model, x = Made(function, draw(8, 8)), draw(2, 4, 8, seed=3)
    found = hw.explain(model, x, score=lambda out: out)
    for i, e in enumerate(found):
        alone = hw.explain(model, x[i : i + 1], score=lambda out: out)[0]
        assert e.ledger.constants.total == pytest.approx(alone.ledger.constants.total, abs=1e-12)


@pytest.mark.parametrize("samples", [5, 17, 40])
def test_samples_are_told_apart_in_any_number(samples: int) -> None:
    """Further passes spell the samples' numbers in digits."""
    model = tiny("gpt2")
    inputs = arguments("gpt2", samples, length=4)
    for i, e in enumerate(hw.explain(model, inputs)):
        assert e.ledger.error < 1e-10
        if i % 7 == 0:
            alone = hw.explain(model, {k: v[i : i + 1] for k, v in inputs.items()})[0]
            assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-9)


def test_samples_are_told_apart_in_half_precision() -> None:
    model = copy.deepcopy(tiny("roberta")).to(torch.bfloat16)
    inputs = arguments("roberta", 24, length=24)
    together = hw.explain(model, inputs, at="words", dtype="bfloat16")
    for i in (0, 11, 23):
        alone = hw.explain(model, {k: v[i : i + 1] for k, v in inputs.items()}, at="words", dtype="bfloat16")[0]
        line = "roberta.embeddings.position_embeddings.weight"
        assert together[i].ledger.constants[line] == pytest.approx(alone.ledger.constants[line], abs=0.05)


def test_a_model_that_pads_its_ids_itself() -> None:
    config = tf.LongformerConfig(**{**SMALL, "max_position_embeddings": 70}, attention_window=4, pad_token_id=1)
    model = randomised(tf.LongformerForSequenceClassification(config).double())
    e = hw.explain(model, {"input_ids": arguments("bert", 1, 9)["input_ids"]})[0]
    assert len(e.relevance) == 9
    assert float(e.relevance.abs().min()) > 0
    assert e.ledger.closed


def seq2seq() -> nn.Module:
    config = copy.deepcopy(tiny("bart").config)
    return randomised(tf.BartForConditionalGeneration(config).double())


def test_decoder_positions_have_their_own_mask() -> None:
    model, ids = seq2seq(), arguments("bert", 2, 5)["input_ids"]
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    fields = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids.flip(1)}
    with torch.no_grad():
        logits = model(**fields).logits
    assert hw.explain(model, fields, output="logit")[0].score == float(logits[0, 4].max())


def test_a_prefix_equal_to_the_source_is_a_prefix() -> None:
    ids = arguments("bert", 1, 5)["input_ids"]
    e = hw.explain(seq2seq(), {"input_ids": ids, "decoder_input_ids": ids.clone()})[0]
    assert e.segments == ("source",) * 5 + ("target",) * 5
    assert len(e.relevance) == 10
    assert e.ledger.closed


def test_a_generating_encoder_decoder_begins_by_itself() -> None:
    e = hw.explain(seq2seq(), "a good film", tokenizer=tokenizer())
    assert e.segments.count("target") == 1
    assert e.ledger.closed


def test_words_and_rows_of_an_encoder_decoder_have_what_its_decoder_is_given_at_the_end() -> None:
    pytest.importorskip("pandas")
    start = tokenizer().convert_ids_to_tokens(seq2seq().config.decoder_start_token_id)
    e = hw.explain(seq2seq(), "a good film", tokenizer=tokenizer(), sinks="show")
    assert e.tokens[-1] == start
    words = e.words()
    assert [word.text for word in words if word.end] == ["a", "good", "film"]
    assert (words[-1].text, words[-1].relevance) == (start, float(e.relevance[-1]))
    assert sum(word.relevance for word in words) == pytest.approx(float(e.relevance.sum()))
    frame = e.to_frame()
    assert len(frame) == len(e.tokens)
    assert frame["start"].isna().tolist() == [False] * (len(e.tokens) - 1) + [True]


def test_a_module_that_is_called_twice_gives_both_calls() -> None:
    inner = nn.Linear(8, 8).double().eval()
    model = Made(lambda s, x: inner(x).sum((1, 2)) + 2 * inner(x[:, :2]).sum((1, 2)))
    model.inner = inner
    e = hw.explain(model, draw(1, 4, 8), inputs=inner, score=lambda out: out)[0]
    assert e.segments == ("call 1",) * 4 + ("call 2",) * 2
    assert e.ledger.closed


def test_a_module_given_with_another_dtype_is_found_in_the_copy() -> None:
    model = tiny("bert", torch.bfloat16)
    e = hw.explain(model, arguments("bert", 1), inputs=model.bert.embeddings, target=1)[0]
    assert e.provenance.dtype == "float32"
    assert e.ledger.closed


def test_score_has_no_target_beside_it() -> None:
    for more in ({"target": 1}, {"output": "probability"}):
        with pytest.raises(UsageError, match="no place beside"):
            hw.explain(tiny("bert"), arguments("bert", 1), score=lambda out: out.logits[:, 0], **more)


def test_a_word_outside_the_vocabulary_is_no_target() -> None:
    with pytest.raises(TargetError, match="not in the tokenizer's vocabulary"):
        hw.explain(tiny("gpt2"), "the film", tokenizer=tokenizer(), target="€")


def test_arrays_and_ragged_lists() -> None:
    fields = tokenizer()(["a film", "a very good film"], padding=True, return_tensors="np")
    assert len(hw.explain(tiny("bert"), fields, tokenizer=tokenizer())) == 2
    with pytest.raises(hw.errors.InputError, match="different lengths"):
        hw.explain(tiny("bert"), tokenizer()(["a film", "a very good film"]), tokenizer=tokenizer())


def test_another_argument_with_a_gradient_of_its_own_is_a_constant() -> None:
    other = (draw(1, 4, 8, seed=3).requires_grad_(True) * 2).requires_grad_(True)
    x = draw(1, 4, 8)
    e = hw.explain(Made(lambda s, x, y: (x * y).sum((1, 2))), (x, other), inputs=x, score=lambda out: out)[0]
    assert e.ledger.inputs == pytest.approx(e.score)
    assert not any(name.startswith("_headwater") for name in vars(other))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_in_a_nested_encoder_that_is_averaged() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = randomised(nn.TransformerEncoder(layer, 2).double())
    padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    model = Made(lambda s, x: encoder(x, src_key_padding_mask=padding[: len(x)]).mean(1) @ s.p[0], draw(8, 3))
    model.encoder = encoder
    for e in hw.explain(model, draw(2, 5, 8)):
        assert e.ledger.error < 1e-10


def test_precision_is_that_of_the_casts_inside() -> None:
    e = hw.explain(tiny("llama"), arguments("llama", 1))[0]
    assert e.provenance.dtype == "float64"
    assert e.ledger.dtype == "float32"
    assert e.ledger.closed


def alive() -> int:
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o) is Tensor)


@pytest.mark.parametrize("call", [hw.explain, hw.audit, hw.compare])
def test_nothing_is_kept_after_a_call(call: Callable[..., Any]) -> None:
    model = copy.deepcopy(tiny("bert"))  # no other test has explained it

    def once() -> None:
        call(model, "a good film", tokenizer=tokenizer())

    grown = []
    for _ in range(4):  # plans are made of the first ones, and hold views of the weights; a leak grows every time
        before = alive()
        for _ in range(3):
            once()
        grown.append(alive() - before)
    assert grown[-1] <= 5, grown


def test_nothing_is_kept_after_an_exception_in_an_audit() -> None:
    def fail(out: Any) -> Tensor:
        raise ZeroDivisionError

    def once() -> None:
        with pytest.raises(ZeroDivisionError):
            hw.audit(tiny("bert"), "a good film", tokenizer=tokenizer(), score=fail)

    once()
    before = alive()
    for _ in range(3):
        once()
    assert alive() <= before + 5


def test_threads_leave_the_random_state_and_the_fused_path_alone() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = randomised(nn.TransformerEncoder(layer, 1).double())
    x, wrong = draw(1, 4, 8), []
    state = torch.get_rng_state()

    def work() -> None:
        try:
            for _ in range(25):
                hw.explain(encoder, x, score=lambda out: out[:, 0, 0])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.equal(torch.get_rng_state(), state)


def test_audit_of_attention_that_shares_one_key() -> None:
    config = tf.FalconConfig(
        vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, multi_query=True, alibi=False
    )
    a = hw.audit(randomised(tf.FalconForCausalLM(config).double()), arguments("bert", 1), method="lrp")
    assert a.explanation.ledger.closed
    assert a.leaks == ()
