"""Targets said in words: the token of a word, the answer's text, all entities of a text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers as tf
from tiny import SMALL, randomised, tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater import errors
from headwater.cli import app
from headwater.inputs.batch import Batch, Item
from headwater.inputs.classes import class_names, token_names
from headwater.inputs.entities import find_entities
from headwater.inputs.targets import Reader
from headwater.inputs.word_positions import find_words

TEXT = "mary was unable to act in paris"
TAGS = {0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER", 4: "I-PER"}


@cache
def tagger() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    config = tf.BertConfig(**SMALL, id2label=TAGS, label2id={name: i for i, name in TAGS.items()})
    return randomised(tf.BertForTokenClassification(config).double(), 3)


@cache
def reader() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    return randomised(tf.BertForQuestionAnswering(tf.BertConfig(**SMALL)).double())


@cache
def masked() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    return randomised(tf.BertForMaskedLM(tf.BertConfig(**SMALL)).double())


def explain_word(position: int | str, text: str = TEXT, label: str | None = None) -> hw.Explanation:
    return hw.explain(tagger(), text, tokenizer=tokenizer(), target=hw.Token(position, label))


def test_a_word_stands_for_its_first_token() -> None:
    tokens = explain_word(1).tokens
    assert tokens[3:5] == ("un", "##able")
    for word, position in (("mary", 1), ("unable", 3), ("paris", 8), ("Paris", 8)):
        by_word, by_number = explain_word(word), explain_word(position)
        assert by_word.score == by_number.score
        assert torch.equal(by_word.relevance, by_number.relevance)
    with pytest.raises(errors.TargetError, match=r"'able' is not in the text"):  # a part of a word is none
        explain_word("able")


def test_in_a_batch_a_word_is_found_in_each_text() -> None:
    texts = ["mary was in paris", "paris is great"]
    found = hw.explain(tagger(), texts, tokenizer=tokenizer(), target=hw.Token("paris", "B-LOC"))
    assert [e.score for e in found] == pytest.approx(
        [explain_word(4, texts[0], "B-LOC").score, explain_word(1, texts[1], "B-LOC").score]
    )


def test_words_that_are_not_there_or_twice_are_refused() -> None:
    with pytest.raises(errors.TargetError, match=r"'pariss' is not in the text\. Did you mean 'paris'"):
        explain_word("pariss")
    with pytest.raises(errors.TargetError, match=r"several tokens \(2, 8\)"):
        explain_word("is", "it is what it is")
    with pytest.raises(errors.TargetError, match=r"hw\.explain_entities"):
        hw.explain(tagger(), TEXT, tokenizer=tokenizer())


def test_of_a_language_model_it_is_the_token_after_which_the_next_is_predicted() -> None:
    asked = {"tokenizer": tokenizer(), "method": "lrp", "output": "logit"}
    by_word = hw.explain(tiny("gpt2"), TEXT, target=hw.Token("unable"), **asked)
    assert by_word.score == hw.explain(tiny("gpt2"), TEXT, target=hw.Token(4), **asked).score


@pytest.mark.parametrize("name", ["gpt2", "bert-masked"])
def test_a_word_that_is_predicted_and_not_in_the_text_is_answered_with_the_line_to_write(name) -> None:
    """`hw.Token("great")` names a place; whoever means the word that is predicted there reads how to say it."""
    model = tiny(name) if name == "gpt2" else masked()
    text = TEXT if name == "gpt2" else f"{TEXT} [MASK]"
    asked = {"tokenizer": tokenizer(), "method": "lrp"}
    with pytest.raises(errors.TargetError, match=r"'great' is not in the text.*hw\.Token\(label='great'\)") as told:
        hw.explain(model, text, target=hw.Token("great"), **asked)
    assert "target='great'" in str(told.value)
    by_word = hw.explain(model, text, target="great", **asked)
    assert by_word.target == "great"
    if name == "gpt2":  # the last position is where the next token is predicted
        assert hw.explain(model, text, target=hw.Token(label="great"), **asked).score == by_word.score
    with pytest.raises(errors.TargetError) as plain:  # with a label beside it, it can only be a place
        hw.explain(model, text, target=hw.Token("great", "good"), **asked)
    assert "label=" not in str(plain.value)


class Spaced:
    """A tokenizer of GPT-2's kind: most words are one token only with the space before them."""

    unk_token_id = None
    words = ("ĠParis", "Par", "is", "Ġ", "London", "ĠLondon")

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        known = {
            " Paris": [0],
            "Paris": [1, 2],
            "Paris is": [1, 2, 3, 2],
            " Paris is": [0, 3, 2],
            " London": [5],
            " is": [3, 2],
        }
        return {"input_ids": known.get(text, [1, 2])}

    def convert_ids_to_tokens(self, index: int) -> str:
        return self.words[index]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[i] for i in ids)


def test_a_word_that_is_one_token_after_a_space_is_found_as_it_is_written() -> None:
    names = token_names(Spaced(), 6)
    assert names.index("Paris") == names.index("ĠParis") == 0
    assert names.index("London") == 4  # what stands in the vocabulary as it is written is taken so
    with pytest.raises(errors.TargetError, match=r"'Paris is' is 4 tokens .* such as its first, 'Par'"):
        names.index("Paris is")


def test_a_word_with_and_without_a_space_is_the_likelier_token() -> None:
    """After "The capital of France is" nobody means a token that goes on with the word before."""
    names = token_names(Spaced(), 6)
    rows = torch.tensor([[0.0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]])
    assert names.choose("London", rows) == [5, 4]
    assert names.choose("ĠLondon", rows) == names.choose(5, rows) == [5, 5]  # said exactly
    assert names.choose("Paris", rows) == [0, 0]
    assert names.choose("is", rows) == [2, 2]  # two tokens with a space


def test_a_target_in_words_is_fixed_for_changed_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out may make the other spelling likelier; the target stays."""
    reader = Reader(tiny("gpt2"), Spaced(), "London - Paris")
    monkeypatch.setattr(reader.model.config, "vocab_size", 6)
    batch = Batch(1, [Item(tokens=("a", "b"), special=(False, False))], ids=torch.tensor([[1, 2]]))
    fixed = reader.with_fixed_target(SimpleNamespace(logits=torch.tensor([[[0.0] * 6, [0, 1, 2, 3, 4, 5]]])), batch)
    assert fixed.target == hw.Token(1, 5, 0)


def test_words_are_found_without_offsets() -> None:
    item = Item(tokens=("<s>", "▁new", "▁york", "ers", "▁act"), special=(True, False, False, False, False))
    assert find_words(item, "yorkers") == (2, 3)
    assert find_words(item, "New Yorkers") == (1, 3)


QUESTION, CONTEXT = "what is the capital of france", "the capital is paris and it is great"


def answer(target: object) -> hw.Explanation:
    asked = {"question": QUESTION, "context": CONTEXT}
    return hw.explain(reader(), asked, tokenizer=tokenizer(), target=target)


def test_a_span_is_the_words_of_the_answer_in_the_context() -> None:
    whole = answer(hw.Span("the capital"))  # the question has these words as well
    first, last = (int(part) for part in whole.target.split() if part.isdigit())
    assert whole.tokens[first : last + 1] == ("the", "capital")
    assert whole.sequence_ids is not None
    assert whole.sequence_ids[first] == 1
    assert whole.score == answer(hw.Span(first, last)).score
    assert answer("paris").score == answer(hw.Span("paris")).score
    assert answer(hw.Span(first)).score == answer(hw.Span(first, first)).score
    for method in ("leave-one-out", "ig(steps=2)"):  # which change the input and read the same span
        e = hw.explain(reader(), (QUESTION, CONTEXT), tokenizer=tokenizer(), target=hw.Span("paris"), method=method)
        assert e.score == pytest.approx(answer("paris").score)


@pytest.mark.parametrize(
    ("target", "said"),
    [(hw.Span("is"), "several tokens"), (hw.Span("london"), "not in the text"), (3, "hw.Span")],
)
def test_an_answer_that_is_not_there_or_twice_is_refused(target: object, said: str) -> None:
    with pytest.raises(errors.TargetError, match=said):
        answer(target)
    with pytest.raises(errors.TargetError, match="no end beside it"):
        hw.Span("paris", 3)


def test_words_of_the_question_are_not_proposed_as_answers() -> None:
    word = next(word for word in QUESTION.split() if word not in CONTEXT.split())
    with pytest.raises(errors.TargetError, match="not in the text") as told:
        answer(word)
    assert str(told.value).count(f"'{word}'") == 1


def test_every_entity_has_an_explanation_of_its_own() -> None:
    text = "mary was in paris and john is in tokyo, unable to act"
    fields = tokenizer()(text, return_tensors="pt")
    logits = tagger()(**fields).logits[0].detach()
    found = hw.explain_entities(tagger(), text, tokenizer=tokenizer())
    assert len(found) > 2
    assert [entity.start for entity in found] == sorted(entity.start for entity in found)
    for entity in found:
        e = entity.explanation
        assert text[entity.start : entity.end] == entity.text
        assert e.target == f"{entity.label}: {entity.text}"
        assert {TAGS[int(logits[p].argmax())].split("-")[1] for p in entity.positions} == {entity.label}
        assert e.score == pytest.approx(logits[list(entity.positions)].max(-1).values.mean().item())
        assert e.ledger.closed
    assert json.loads(json.dumps(found[0].to_dict()))["label"] == found[0].label


def test_entities_of_several_texts_and_at_a_layer() -> None:
    texts = [TEXT, "dull"]
    asked = {"tokenizer": tokenizer(), "inputs": "bert.encoder.layer.0", "method": "lrp"}
    together = hw.explain_entities(tagger(), texts, **asked)
    assert len(together) == 2
    for part, text in zip(together, texts, strict=True):
        alone = hw.explain_entities(tagger(), text, **asked)
        assert [one.text for one in part] == [one.text for one in alone]
        for one, other in zip(part, alone, strict=True):
            assert one.explanation.at == "bert.encoder.layer.0"
            assert torch.allclose(one.explanation.relevance, other.explanation.relevance)


def item_of(*words: str) -> Item:
    return Item(tokens=words, special=(False,) * len(words), word_ids=tuple(range(len(words))))


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        (["B-LOC", "I-LOC", "O", "B-PER"], [("LOC", 2), ("PER", 1)]),
        (["B-LOC", "B-LOC", "I-LOC"], [("LOC", 1), ("LOC", 2)]),
        (["I-LOC", "I-PER", "I-PER"], [("LOC", 1), ("PER", 2)]),  # a scheme without B-
        (["O", "O"], []),
    ],
)
def test_entities_are_told_apart_by_their_tags(tags: list[str], entities: list[tuple[str, int]]) -> None:
    config = type("Config", (), {"id2label": TAGS})
    logits = torch.eye(5)[[list(TAGS.values()).index(tag) for tag in tags]]
    found = find_entities(logits, item_of(*"abcd"[: len(tags)]), class_names(config, 5))
    assert [(entity.label, len(entity.positions)) for entity in found] == entities


def test_where_no_class_is_outside_each_word_is_one() -> None:
    config = type("Config", (), {"id2label": {0: "NOUN", 1: "VERB"}})
    found = find_entities(torch.eye(2)[[0, 0, 1]], item_of(*"abc"), class_names(config, 2))
    assert [entity.label for entity in found] == ["NOUN", "NOUN", "VERB"]


def test_entities_are_of_token_classifiers_alone(tmp_path: Path) -> None:
    with pytest.raises(errors.TargetError, match="token classifier"):
        hw.explain_entities(tiny("bert"), TEXT, tokenizer=tokenizer())
    with pytest.raises(errors.UsageError, match="target="):
        hw.explain_entities(tagger(), TEXT, tokenizer=tokenizer(), target=1)
    for name, value in {"inside": "heads", "memory_limit": "1GiB", "stride": 2, "patch": 4}.items():
        with pytest.raises(errors.UsageError, match=f"leave out {name}="):
            hw.explain_entities(tagger(), TEXT, tokenizer=tokenizer(), **{name: value})
    tagger().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    lines = CliRunner().invoke(app, ["explain", TEXT, "--model", str(tmp_path), "--json"]).stdout.splitlines()
    expected = hw.explain_entities(tagger(), TEXT, tokenizer=tokenizer())
    assert [json.loads(line)["target"] for line in lines] == [entity.explanation.target for entity in expected]
