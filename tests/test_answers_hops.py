"""Relevance on the model's own words, passed on hop by hop: as the token-by-token matrix has it, without making it."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from functools import cache

import pytest
import torch
import transformers as tf
from speaker import speaker, talker
from tiny import CASTS
from torch import nn

import headwater as hw
from headwater.api import leave_out
from headwater.api.span_scores import weigh
from headwater.engine import propagate
from headwater.errors import UsageError

approx = pytest.approx
DOCUMENTS = ["the capital of France is Paris. it was a good film.", "", "she said London! the film was good."]
ANSWER = "Paris is good. it was London."
CHAT = [
    {"role": "system", "content": "it is a good film"},
    {"role": "user", "content": "the capital is"},
    {"role": "assistant", "content": "she said it"},
    {"role": "tool", "content": f"and {DOCUMENTS[0]}"},
]
MODELS = ("gpt2", "llama", "t5-lm", "sliding")


@cache
def make(name: str) -> nn.Module:
    """One of the tiny models; "sliding" is Mistral's build with a window of twelve tokens."""
    if name != "sliding":
        return talker(name)
    model = deepcopy(talker("mistral"))
    config = deepcopy(model.config)
    config.sliding_window = 12
    made = tf.MistralForCausalLM(config).double().eval()
    made.load_state_dict(model.state_dict())
    return made


def ask(name: str = "gpt2", **options) -> hw.AnswerExplainer:
    given = {"documents": DOCUMENTS, "answer": ANSWER, "tokenizer": speaker(), "score": "logprob"} | options
    question = None if "chat" in given else "the capital is"
    return hw.explain_answer(make(name), question, **given)


def tolerance(name: str) -> float:
    return 1e-6 if name in CASTS or name == "sliding" else 1e-10


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("sinks", ["show", "aside"])
@pytest.mark.parametrize("name", MODELS)
def test_all_hops_together_are_the_triangular_system(name, sinks, chat):
    found = ask(name, sinks=sinks, **({"chat": CHAT, "documents": DOCUMENTS[:1]} if chat else {}))
    span = found.sentence(1)
    exact = found.through(span)
    traced = span.through(hops=len(found.pieces))
    assert float(span.by_role()["output"]) != 0
    assert torch.allclose(traced.relevance, exact.relevance.double(), rtol=0, atol=tolerance(name))
    assert abs(traced.by_role()["output"]) < tolerance(name)
    assert traced.ledger.error < tolerance(name)
    assert traced.score == span.score
    assert float(traced.relevance.sum()) == approx(traced.ledger.inputs, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_each_hop_has_its_ledger_and_passes_on_what_the_models_own_words_had(name):
    span = ask(name).whole()
    before = span
    for count in (1, 2, 3):
        now = span.through(hops=count)
        assert len(now.hops) == count
        hop = now.hops[-1]
        assert hop.score == approx(before.by_role()["output"], abs=tolerance(name))  # all of it was passed on
        assert hop.error < tolerance(name)
        others = hop.score - hop.inputs  # went to lines of the hop's ledger
        assert now.ledger.inputs == approx(before.ledger.inputs - others, abs=10 * tolerance(name))
        assert now.ledger.error < tolerance(name)
        before = now
    assert span.through(hops=0).relevance is span.relevance


def test_a_hop_costs_one_forward_and_one_backward_pass_however_long_the_span_is(monkeypatch):
    passes = {"forward": 0, "backward": 0}
    plain = propagate.backward
    monkeypatch.setattr(propagate, "backward", lambda *a: passes.update(backward=passes["backward"] + 1) or plain(*a))
    model = deepcopy(talker("gpt2"))
    found = hw.explain_answer(model, "it was", tokenizer=speaker(), documents=DOCUMENTS, answer=f"{ANSWER} {ANSWER}")
    found.whole().through(hops=1)  # at its first explanation a model is looked at closely
    model.register_forward_pre_hook(lambda *_: passes.update(forward=passes["forward"] + 1))
    passes.update(forward=0, backward=0)
    found.whole().through(hops=1)
    assert passes == {"forward": 2, "backward": 2}


@pytest.mark.parametrize("name", MODELS)
def test_hops_that_are_asked_for_with_the_span_are_the_same(name):
    a = ask(name)
    for hops in (1, 3):
        found, expected = a.whole(hops=hops), a.whole().through(hops=hops)
        assert found.relevance.tolist() == approx(expected.relevance.tolist(), abs=tolerance(name))
        assert found.ledger.closed
        assert len(found.hops) == len(expected.hops)
        assert all(hop.closed for hop in found.hops)
    found, expected = a.sentence(1, hops=1), a.sentence(1).through(hops=1)
    assert found.relevance.tolist() == approx(expected.relevance.tolist(), abs=tolerance(name))
    with pytest.raises(UsageError, match="at least 0"):
        a.whole(hops=-1)


def test_they_take_one_forward_pass_together(monkeypatch):
    model, passes = deepcopy(talker("llama")), []
    a = hw.explain_answer(model, prompt="the capital is", answer=ANSWER, tokenizer=speaker())
    a.whole()  # at its first explanation a model is looked at closely
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    a.whole(hops=2)
    together, passes[:] = len(passes), []
    a.whole().through(hops=2)
    assert (together, len(passes)) == (1, 3)


def test_hops_end_by_themselves_where_little_is_left():
    span = ask().whole()
    traced = span.through()
    assert 0 < len(traced.hops) < len(span.tokens)
    start = span.roles.index("output")
    assert float(traced.relevance[start:].abs().sum()) <= 1e-3 * float(span.relevance.abs().sum())


def test_a_token_is_weighed_by_its_score_and_keeps_its_share_where_that_is_nearly_nothing():
    found = ask()
    scores = found.tokens().scores
    reader = found._explain([(0, 3)], [1.0] * len(scores))[0][1]
    assert reader.weights == approx([1 / score for score in scores[:3]])
    assert weigh([1.0, 1.0], torch.tensor([1e-6, 2.0])) == (0.0, 0.5)


def test_the_window_of_the_sliding_model_is_smaller_than_the_prompt():
    wide = ask("mistral").whole().log_probability
    assert ask("sliding").whole().log_probability != approx(wide, abs=1e-6)


def test_a_span_without_a_model_says_what_it_needs():
    found = ask()
    span = found.sentence(1)
    for copy in (
        pickle.loads(pickle.dumps(span)),
        hw.SpanExplanation.from_dict(json.loads(json.dumps(span.through(hops=1).to_dict()))),
    ):
        with pytest.raises(UsageError, match=r"a\.tokens\(\)"):
            copy.through()
        assert copy.through(found.tokens()).ledger.error < 1e-10
    assert len(hw.SpanExplanation.from_dict(json.loads(json.dumps(span.through(hops=2).to_dict()))).hops) == 2
    with pytest.raises(UsageError, match="no place"):
        span.through(found.tokens(), hops=1)
    with pytest.raises(UsageError, match="at least 0"):
        span.through(hops=-1)


@pytest.mark.parametrize("name", MODELS)
def test_prompts_that_are_read_together_are_read_as_alone(name):
    found = ask(name)
    texts = [[(0, 0)], [(0, 1)], [(2, None)], [(0, None), (2, 1)], [(2, 0)]]
    together = found._reader.read_without(texts)
    for sources, many in zip(texts, together, strict=True):
        alone = found._reader.read_without([sources])[0]
        assert torch.allclose(many, alone, rtol=0, atol=tolerance(name))
    assert not torch.allclose(together[0], together[2], rtol=0, atol=1e-3)


def test_few_logits_are_made_at_once(monkeypatch):
    found = ask()
    sizes = []
    plain = leave_out.read_batch
    monkeypatch.setattr(leave_out, "read_batch", lambda s, texts: sizes.append(len(texts)) or plain(s, texts))
    whole = leave_out.measure_logprobs(found._session, [found._text] * 3)
    monkeypatch.setattr(leave_out, "ROOM", 100)
    single = leave_out.measure_logprobs(found._session, [found._text] * 3)
    assert sizes == [3, 1, 1, 1]
    assert torch.allclose(torch.stack(whole), torch.stack(single), rtol=0, atol=1e-10)


def test_several_sources_are_left_out_at_once():
    found = ask()
    left = found.without_all([(0, 1), (2, None)])
    assert left.name == "Document 1, sentence 2 and Document 3"
    assert left.sources == ((0, 1), (2, None))
    again = ask(documents=["the capital of France is Paris. ", ""])
    assert left.after != approx(left.before)
    assert found.without(0, 1).name == "Document 1, sentence 2"
    assert found.without(0, -1).after == approx(found.without(0, 1).after)
    assert again.whole().log_probability == approx(left.after, abs=1e-9)
    for wrong in ([(0, 2)], [(1, 0)], [(3, None)], []):
        with pytest.raises(UsageError):
            found.without_all(wrong)
