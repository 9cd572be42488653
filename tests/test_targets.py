"""Which scalar is explained: every kind of model and target, each read off the model's own output."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from tiny import BART, ENCODER_DECODER, GROUPED, SMALL, randomised, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.errors import EmptyInput, ModelError, TargetError, UnknownName
from headwater.inputs.batch import Batch
from headwater.inputs.readouts import read_out
from headwater.inputs.targets import Reader

TEXT = "a gripping, beautifully acted film"
LABELS = ("negative", "neutral", "positive")
NAMES = {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}


def built(kind: Any, **config: Any) -> nn.Module:
    return randomised(kind(tf.BertConfig(**SMALL, **config)).double())


SENTIMENT = built(tf.BertForSequenceClassification, num_labels=3, **NAMES)


def outputs(model: nn.Module, text: Any = TEXT) -> Any:
    with torch.no_grad():
        return model(**tokenizer()(text, return_tensors="pt"))


def explain(model: nn.Module = SENTIMENT, text: Any = TEXT, **options: Any) -> hw.Explanation:
    e = hw.explain(model, text, tokenizer=tokenizer(), **options)
    assert e.ledger.closed
    return e


def test_predicted_class_is_the_default() -> None:
    logits = outputs(SENTIMENT).logits[0]
    e = explain()
    assert e.score == float(logits.max())
    assert e.target == e.prediction == LABELS[int(logits.argmax())]


@pytest.mark.parametrize("target", [2, "positive", "Positive", "POSITIVE", -1])
def test_class_by_index_or_name(target: int | str) -> None:
    e = explain(target=target)
    assert e.target == "positive"
    assert e.score == float(outputs(SENTIMENT).logits[0, 2])


def test_classes_of_one_name_are_told_apart_by_their_number() -> None:
    """One of them stood for all in `probabilities`."""
    model = built(tf.BertForSequenceClassification, num_labels=3, id2label={0: "other", 1: "good", 2: "other"})
    e = explain(model, target=2)
    assert e.target == "other (2)"
    assert e.probability == pytest.approx(float(outputs(model).logits[0].softmax(-1)[2]))
    assert set(e.probabilities) == {"other (0)", "good", "other (2)"}
    with pytest.raises(UnknownName, match=r"Did you mean 'other \(\d\)'"):
        explain(model, target="other")


def test_difference_of_two() -> None:
    e = explain(target="positive - negative")
    logits = outputs(SENTIMENT).logits[0]
    assert e.score == pytest.approx(float(logits[2] - logits[0]))
    parts = explain(target="positive").relevance - explain(target="negative").relevance
    assert e.relevance == pytest.approx(parts, abs=1e-12)


@pytest.mark.parametrize("output", ["probability", "log-probability"])
@pytest.mark.parametrize("target", ["positive", "positive - negative"])
def test_curvature_of_a_probability_is_on_the_readout_line(output: str, target: str) -> None:
    logits = outputs(SENTIMENT).logits[0]
    read = logits.softmax(-1) if output == "probability" else logits.log_softmax(-1)
    e = explain(target=target, output=output)
    expected = read[2] if target == "positive" else read[2] - read[0]
    assert e.score == pytest.approx(float(expected))
    assert e.output == output
    if (output, target) == ("log-probability", "positive - negative"):
        assert e.ledger.readout == pytest.approx(0, abs=1e-12)  # the normaliser cancels: a difference of logits
    else:
        assert abs(e.ledger.readout) > 1e-3
    free = logits.clone().requires_grad_(True)
    score = free.softmax(-1) if output == "probability" else free.log_softmax(-1)
    score = score[2] if target == "positive" else score[2] - score[0]
    (gradient,) = torch.autograd.grad(score, free)
    assert e.ledger.readout == pytest.approx(float((score - (gradient * logits).sum()).detach()), abs=1e-12)


def test_multi_label() -> None:
    model = built(tf.BertForSequenceClassification, num_labels=3, problem_type="multi_label_classification", **NAMES)
    logits = outputs(model).logits[0]
    assert explain(model, target="neutral").score == float(logits[1])
    assert explain(model, target="neutral", output="probability").score == pytest.approx(float(logits[1].sigmoid()))
    said = explain(model).prediction
    assert said == (", ".join(LABELS[i] for i in range(3) if logits[i] > 0) or "none")


def test_regression() -> None:
    model = built(tf.BertForSequenceClassification, num_labels=1)
    e = explain(model)
    assert e.score == float(outputs(model).logits[0, 0])
    assert e.prediction is None


def test_regression_of_several_numbers_has_no_classes() -> None:
    model = built(tf.BertForSequenceClassification, num_labels=3, problem_type="regression", **NAMES)
    e = explain(model, target="neutral")
    assert e.score == float(outputs(model).logits[0, 1])
    assert (e.prediction, e.probabilities) == (None, {})
    assert "%" not in str(e.verdict())
    for output in ("probability", "log-probability", "advantage"):
        with pytest.raises(TargetError, match="a regression"):
            explain(model, output=output)


def test_a_model_of_several_choices_is_refused_and_one_choice_is_explained() -> None:
    model = built(tf.BertForMultipleChoice)
    with pytest.raises(ModelError, match="all choices of a question at once"):
        explain(model)

    class OneChoice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.config = model, model.config

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            logits: Tensor = self.model(input_ids.unsqueeze(1), attention_mask.unsqueeze(1)).logits
            return logits

    assert explain(OneChoice().eval(), method="lrp", inputs="model.bert.embeddings").ledger.closed


class Changed(nn.Module):
    """A classifier whose logits go through a last step."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.change, self.config = SENTIMENT, change, SENTIMENT.config

    def get_input_embeddings(self) -> nn.Module:
        found: nn.Module = self.model.get_input_embeddings()
        return found

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.change(self.model(input_ids=input_ids, attention_mask=attention_mask).logits)


@pytest.mark.parametrize("method", ["lrp", "lrp-difference"])
@pytest.mark.parametrize("output", ["logit", "advantage", "probability", "log-probability"])
def test_a_class_that_is_masked_has_no_part_in_the_score(method: str, output: str) -> None:
    """Its logit is -inf: times a gradient of 0, that was a line of the ledger that is not a number."""
    model = Changed(lambda logits: logits.masked_fill(torch.tensor([True, False, False]), -torch.inf)).eval()
    e = explain(model, method=method, output=output)
    two = outputs(SENTIMENT).logits[:, 1:]
    assert e.score == pytest.approx(float(read_out(two, output, False).max()))
    assert e.probabilities["negative"] == 0


def test_a_class_that_is_all_but_certain_has_a_log_probability_that_adds_up() -> None:
    """Its readout is small beside the logits, and no rounding of float64."""
    e = explain(Changed(lambda logits: 40 * logits).eval(), method="lrp", output="log-probability")
    assert -1e-6 < e.ledger.readout < e.score < 0


def test_classes_are_no_logits() -> None:
    with pytest.raises(TargetError, match="holds int64, which are no logits"):
        explain(Changed(lambda logits: logits.argmax(-1)).eval(), output="probability")


def test_token_class() -> None:
    model = built(tf.BertForTokenClassification, num_labels=3, **NAMES)
    logits = outputs(model).logits[0]
    e = explain(model, target=hw.Token(2))
    assert e.score == float(logits[2].max())
    assert explain(model, target=hw.Token(2, "neutral")).score == float(logits[2, 1])
    contrast = explain(model, target=hw.Token(2, "neutral", versus="positive"))
    assert contrast.score == pytest.approx(float(logits[2, 1] - logits[2, 2]))
    with pytest.raises(TargetError, match="say which position"):
        explain(model)


def test_answer_span() -> None:
    model = built(tf.BertForQuestionAnswering)
    out = outputs(model)
    starts, ends = out.start_logits[0], out.end_logits[0]
    assert explain(model, target=hw.Span(1, 3)).score == pytest.approx(float(starts[1] + ends[3]))
    pairs = {(i, j): float(starts[i] + ends[j]) for i in range(len(starts)) for j in range(i, len(ends))}
    best = max(pairs, key=lambda pair: pairs[pair])
    e = explain(model)
    assert e.score == pytest.approx(pairs[best])
    assert e.target == f"tokens {best[0]} to {best[1]}"
    with pytest.raises(TargetError, match="Span"):
        explain(model, target="positive")
    with pytest.raises(TargetError, match="1 stands before 3"):
        explain(model, target=hw.Span(3, 1))
    with pytest.raises(TargetError, match=r"a position is the number of a token, or a word of the text, not 1\.5"):
        explain(model, target=hw.Span(1.5, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("output", ["logit", "probability", "log-probability"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_answer_span_beside_padding(output: str, side: str) -> None:
    """Padding is no answer and takes no probability, and spans are counted in tokens of the text."""
    model = built(tf.BertForQuestionAnswering)
    text = "the film is good"
    alone = explain(model, text, method="lrp", output=output, target=hw.Span(1, 3))
    fields = tokenizer(side=side)([text, TEXT], return_tensors="pt", padding=True)
    fields["position_ids"] = (fields["attention_mask"].cumsum(1) - 1).clamp(min=0)
    options = {"tokenizer": tokenizer(), "method": "lrp", "output": output}
    e = hw.explain(model, dict(fields), target=hw.Span(1, 3), **options)[0]
    assert (e.target, e.prediction, e.tokens) == (alone.target, alone.prediction, alone.tokens)
    assert e.score == pytest.approx(alone.score, abs=1e-12)
    assert torch.allclose(e.relevance, alone.relevance, atol=1e-12)
    one = {name: values[:1] for name, values in fields.items()}
    c = hw.compare(model, one, methods=["lrp", "occlusion"], target=hw.Span(1, 3), tokenizer=tokenizer(), output=output)
    assert {found.target for found in c.explanations} == {"tokens 1 to 3"}


def test_masked_word() -> None:
    model = built(tf.BertForMaskedLM)
    text = "the [MASK] is good"
    logits = outputs(model, text).logits[0, 2]
    e = explain(model, text)
    assert e.score == float(logits.max())
    good = tokenizer().convert_tokens_to_ids("good")
    assert explain(model, text, target=hw.Token(2, "good")).score == float(logits[good])
    assert explain(model, text, target="good").score == float(logits[good])
    with pytest.raises(TargetError, match="mask"):
        explain(model)


def test_next_token_is_after_the_last_real_position() -> None:
    model = tiny("gpt2")
    texts = ["the capital of france is", "the movie"]
    found = hw.explain(model, texts, tokenizer=tokenizer(), output="logit")
    for e, text in zip(found, texts, strict=True):
        logits = outputs(model, text).logits[0, -1]
        assert e.score == pytest.approx(float(logits.max()), abs=1e-12)
        assert e.target == tokenizer().convert_ids_to_tokens(int(logits.argmax()))


@pytest.mark.parametrize("name", ["attention_mask", "decoder_attention_mask"])
def test_a_mask_that_leaves_no_token_is_refused(name: str) -> None:
    """No position is the last one of such a row, and the first one was read as if it were."""
    model = randomised(tf.BartForConditionalGeneration(tf.BartConfig(**ENCODER_DECODER, **BART)).double())
    ids = torch.tensor([[7, 8, 9], [9, 8, 7]])
    data = {"input_ids": ids, "decoder_input_ids": ids, name: torch.tensor([[1, 1, 0], [0, 0, 0]])}
    with pytest.raises(EmptyInput, match=f"row 1 of {name} leaves no token"):
        hw.explain(model, data)
    data[name][1, 0] = 1
    assert len(hw.explain(model, data)) == 2


@pytest.mark.parametrize("target", [None, 5, hw.Token(-1, 5, 6)])
def test_names_that_are_made_later_hold_nothing_of_the_run(target: Any) -> None:
    logits = torch.randn(2, 3, 120, requires_grad=True)
    batch = Batch(samples=2, items=[], kwargs={}, real=torch.ones(2, 3).bool(), places=[])
    reading = Reader(tiny("llama"), None, target, "log-probability")(logits * 1, batch)
    reading.score, gone = reading.score.detach(), weakref.ref(logits)
    del logits
    assert gone() is None
    assert len(reading.targets) == 2


def test_a_row_of_the_vocabulary_that_is_no_token_is_named_by_its_number() -> None:
    """Many models have more rows than their tokenizer has tokens, and each was called None."""
    beyond = [number for number in range(120) if tokenizer().convert_ids_to_tokens(number) is None]
    assert len(beyond) > 1
    e = explain(tiny("gpt2"), target=beyond[0], method="lrp")
    assert e.target == str(beyond[0])
    assert set(map(str, beyond)) < set(e.probabilities)
    assert sum(e.probabilities.values()) == pytest.approx(1)


def test_token_of_a_language_model_by_position_and_word() -> None:
    model = randomised(tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)))
    text = "the capital of france is"
    logits = outputs(model, text).logits[0]
    paris, london = (tokenizer().convert_tokens_to_ids(w) for w in ("paris", "london"))
    e = hw.explain(model, text, tokenizer=tokenizer(), target=hw.Token(3, "paris", versus="london"))
    assert e.score == pytest.approx(float(logits[3, paris] - logits[3, london]), abs=1e-6)
    assert e.target == "paris - london"
    same = hw.explain(model, text, tokenizer=tokenizer(), target="paris - london")
    assert same.score == pytest.approx(float(logits[-1, paris] - logits[-1, london]), abs=1e-6)
    assert bool((e.relevance[4:] == 0).all())  # what comes after a position has no part in it


def test_any_callable() -> None:
    e = explain(score=lambda out: out.logits[:, 1] * 2 + out.logits[:, 0])
    logits = outputs(SENTIMENT).logits[0]
    assert e.score == pytest.approx(float(logits[1] * 2 + logits[0]))
    square = explain(score=lambda out: out.logits[:, 1] ** 2)
    assert square.ledger.readout == pytest.approx(-square.score)


def test_wrong_targets_are_answered() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'positive'"):
        explain(target="postive")
    with pytest.raises(UnknownName, match="The one set against the other is 'positive - negative'"):
        explain(target="positive-negative")
    with pytest.raises(TargetError, match="no class 7"):
        explain(target=7)
    with pytest.raises(UnknownName, match="Did you mean 'probability'"):
        explain(output="probabilty")
    with pytest.raises(TargetError, match="one number a sample"):
        explain(score=lambda out: out.logits)
    with pytest.raises(TargetError, match="not a position"):
        explain(target=hw.Token(2))
    with pytest.raises(TargetError, match="no position 99"):
        explain(built(tf.BertForTokenClassification), target=hw.Token(99))
    with pytest.raises(TargetError, match="one by one"):
        explain(target=[1, 2])
    with pytest.raises(TargetError, match="not float"):
        explain(target=1.0)
    for empty in ("", " - "):
        with pytest.raises(TargetError, match="empty text"):
            explain(tiny("gpt2"), target=empty)


@pytest.mark.parametrize("number", [np.int64(1), torch.tensor(1), -2])
def test_an_index_may_be_a_number_of_numpy_or_torch(number: Any) -> None:
    """As `logits.argmax()` gives it."""
    assert explain(target=number).target == "neutral"


def test_an_advantage_is_the_logit_above_the_mean_at_temperature_two() -> None:
    model, text = tiny("gpt2"), "the capital of france is"
    logits = outputs(model, text).logits[0, -1]
    weights = (logits / 2).softmax(-1)
    e = hw.explain(model, text, tokenizer=tokenizer())
    assert e.output == "advantage"
    assert e.score == pytest.approx(float(logits.max() - (weights * logits).sum()), abs=1e-12)
    assert e.ledger.closed
    assert e.ledger.readout == pytest.approx(0, abs=1e-10)


def test_an_advantage_has_the_gradient_of_the_log_probability_at_temperature_two() -> None:
    logits = torch.randn(3, 11, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(read_out(logits, "advantage", False)[:, 4].sum(), logits)
    (wanted,) = torch.autograd.grad(2 * (logits / 2).log_softmax(-1)[:, 4].sum(), logits)
    torch.testing.assert_close(found, wanted)


def test_what_all_logits_share_is_in_no_advantage() -> None:
    logits = torch.randn(3, 11, dtype=torch.float64)
    torch.testing.assert_close(read_out(logits + 7, "advantage", False), read_out(logits, "advantage", False))
    assert not torch.allclose(read_out(logits + 7, "logit", False), read_out(logits, "logit", False))


def test_an_advantage_of_a_logit_that_stands_alone_is_the_logit() -> None:
    logits = torch.randn(3, 2)
    assert torch.equal(read_out(logits, "advantage", True), logits)


def test_an_advantage_in_half_precision_is_summed_in_single() -> None:
    logits = torch.randn(2, 50_000).bfloat16()
    wide = read_out(logits.float(), "advantage", False)
    torch.testing.assert_close(read_out(logits, "advantage", False).float(), wide, rtol=0, atol=0.04)


@pytest.mark.parametrize(("model", "output"), [("bert", "logit"), ("gpt2", "advantage")])
def test_what_is_explained_by_default_depends_on_the_kind_of_model(model: str, output: str) -> None:
    assert hw.explain(tiny(model), "the movie", tokenizer=tokenizer()).output == output
    own = hw.explain(tiny(model), "the movie", tokenizer=tokenizer(), score=lambda out: out.logits.flatten(1)[:, 0])
    assert own.output == "logit"


def test_a_token_that_cannot_be_said_has_no_part_in_an_advantage() -> None:
    logits = torch.tensor([[1.0, 2.0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    found = read_out(logits, "advantage", False)[:, 1]
    torch.testing.assert_close(found, read_out(logits[:, :2], "advantage", False)[:, 1])
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert gradient[0, 2] == 0


# What a language model computes for a score of its last token


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many positions a small Llama was asked to predict, every time that it was called."""
    asked: list[int] = []
    forward = tf.LlamaForCausalLM.forward

    @functools.wraps(forward)
    def note(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs.get("logits_to_keep", 0))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(tf.LlamaForCausalLM, "forward", note)
    return asked


def test_only_the_prediction_that_is_read_is_made(kept: list[int]) -> None:
    llama = tiny("llama")
    e = explain(llama, method="lrp", output="logit", plans=False)
    every = hw.explain(
        llama, TEXT, tokenizer=tokenizer(), method="lrp", score=lambda out: out.logits[:, -1].amax(-1), plans=False
    )
    assert set(kept) == {1, 0}
    assert e.score == pytest.approx(every.score, abs=1e-12)
    assert torch.allclose(e.relevance, every.relevance, rtol=0, atol=1e-6)  # it casts to float32 inside


@pytest.mark.parametrize("target", [hw.Token(2), lambda out: out.logits[:, 1, 5]])
def test_other_positions_are_predicted_where_they_are_read(kept: list[int], target: Any) -> None:
    options = {"score": target} if callable(target) else {"target": target}
    explain(tiny("llama"), method="lrp", plans=False, **options)
    assert set(kept) == {0}


def test_behind_padding_every_prediction_is_made(kept: list[int]) -> None:
    """On the right there is none of the text's own at the last place; on the left there is."""
    for side, expected in (("right", 0), ("left", 1)):
        kept.clear()
        found = hw.explain(tiny("llama"), [TEXT, "a film"], tokenizer=tokenizer(side=side), method="lrp", plans=False)
        alone = explain(tiny("llama"), "a film", method="lrp")
        assert expected in kept
        assert found[1].score == pytest.approx(alone.score, abs=1e-6)
