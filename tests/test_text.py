"""Text in, tokens and words out: pairs, lists, padding, lengths, windows, places."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers as tf
from tiny import SMALL, arguments, randomised, tiny, tokenizer

import headwater as hw
from headwater.inputs.text import encode

TEXTS = [
    "a gripping, beautifully acted film",
    "the movie is not good",
    "dull",
    "mary was unable to act in it and it was bad",
]


def explain(text: object, name: str = "bert", **options: object) -> hw.Explanation:
    side = "left" if name == "xlnet" else "right"  # XLNet reads its answer off the last position
    return hw.explain(tiny(name), text, tokenizer=tokenizer(side=side), **options)


def test_one_text_one_explanation() -> None:
    e = explain(TEXTS[0])
    assert e.tokens == ("[CLS]", "a", "gripping", ",", "beautifully", "acted", "film", "[SEP]")
    assert e.relevance.shape == (8,)
    assert e.text == TEXTS[0]
    assert e.special == (True, *[False] * 6, True)
    assert e.ledger.closed
    assert e.prediction == e.target


PAIRS = [("the movie", "is it good"), ("a", "dull film"), ("john", "mary")]


@pytest.mark.parametrize("texts", [TEXTS, PAIRS, [*TEXTS, *PAIRS]], ids=["texts", "pairs", "both"])
@pytest.mark.parametrize(("limit", "truncate"), [(None, False), (64, False), (6, True)])
def test_asked_about_all_at_once_the_tokenizer_says_the_same(texts: list, limit: int | None, truncate: bool) -> None:
    together = encode(texts, tokenizer(), limit, truncate)
    assert together == [one for text in texts for one in encode([text], tokenizer(), limit, truncate)]
    assert any(one.length == 6 for one in together) or not truncate


def test_a_tokenizer_is_asked_once() -> None:
    class Counted:
        is_fast, questions = True, 0

        def __call__(self, *args: object, **options: object) -> object:
            self.questions += 1
            return tokenizer()(*args, **options)

        def __getattr__(self, name: str) -> object:
            return getattr(tokenizer(), name)

    counted = Counted()
    encode(TEXTS, counted, None, False)
    assert counted.questions == 1


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "torch-encoder", "modernbert", "xlnet", "roberta"])
def test_list_and_batches_give_what_each_text_gives_alone(name: str) -> None:
    together = explain(TEXTS, name, batch_size=3)
    assert [e.text for e in together] == TEXTS
    for e, text in zip(together, TEXTS, strict=True):
        alone = explain(text, name)
        assert e.tokens == alone.tokens
        assert e.score == pytest.approx(alone.score, abs=1e-6)
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-6)
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-6)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_padding_on_the_left_moves_no_text(name: str) -> None:
    """Its positions and its first token would be others: texts go with those of their own length, then."""
    texts = [TEXTS[1], "dull", "the movie is bad", "good"]
    together = hw.explain(tiny(name), texts, tokenizer=tokenizer(side="left"), method="lrp")
    for e, text in zip(together, texts, strict=True):
        alone = hw.explain(tiny(name), text, tokenizer=tokenizer(), method="lrp")
        assert e.score == pytest.approx(alone.score, abs=1e-12)
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-12)
        assert "padding" not in e.ledger.constants


def test_without_a_mask_texts_go_one_by_one() -> None:
    """FNet has none, and mixes padding with words; its tokenizer says so."""
    sizes = {name: size for name, size in SMALL.items() if name != "num_attention_heads"}
    model = randomised(tf.FNetForSequenceClassification(tf.FNetConfig(**sizes)).double())
    reader = copy.deepcopy(tokenizer())
    reader.model_input_names = ["input_ids", "token_type_ids"]
    for e, text in zip(hw.explain(model, TEXTS, tokenizer=reader), TEXTS, strict=True):
        assert e.score == pytest.approx(hw.explain(model, text, tokenizer=reader).score, abs=1e-12)


def test_no_text_no_explanation() -> None:
    assert explain([]) == []


def test_without_padding_token_texts_go_one_by_one() -> None:
    model = tiny("gpt2")
    found = hw.explain(model, TEXTS, tokenizer=tokenizer(pad=False))
    for e, text in zip(found, TEXTS, strict=True):
        assert torch.equal(e.relevance, hw.explain(model, text, tokenizer=tokenizer(pad=False)).relevance)


def test_pair() -> None:
    e = explain(("the movie", "a film"))
    assert e.tokens == ("[CLS]", "the", "movie", "[SEP]", "a", "film", "[SEP]")
    assert [w.text for w in e.words()] == ["[CLS]", "the", "movie", "[SEP]", "a", "film", "[SEP]"]
    (same,) = explain([("the movie", "a film")])
    assert torch.equal(e.relevance, same.relevance)


def test_a_pair_whose_second_text_is_empty_is_one() -> None:
    """A fast tokenizer that is asked about one pair takes it for a text, and in a list for a pair."""
    alone, (_, listed) = explain(("the movie", "")), explain([("a", "film"), ("the movie", "")])
    assert alone.tokens == listed.tokens == ("[CLS]", "the", "movie", "[SEP]", "[SEP]")
    assert alone.score == pytest.approx(listed.score)


def test_words_sum_subwords() -> None:
    e = explain("Mary was unable to act.")
    assert "##able" in e.tokens
    words = e.words()
    assert [w.text for w in words] == ["[CLS]", "Mary", "was", "unable", "to", "act", ".", "[SEP]"]
    at = e.tokens.index("##able")
    assert words[3].relevance == pytest.approx(float(e.relevance[at - 1] + e.relevance[at]))
    assert (words[3].start, words[3].end) == (9, 15)
    assert sum(w.relevance for w in words) == pytest.approx(e.ledger.inputs)


def test_what_a_tokenizer_returned() -> None:
    fields = tokenizer()(TEXTS, padding=True, return_tensors="pt")
    found = hw.explain(tiny("bert"), fields, tokenizer=tokenizer())
    for e, alone in zip(found, explain(TEXTS), strict=True):
        assert e.tokens == alone.tokens
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-9)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_places(name: str) -> None:
    """At the words, positions and types have their own lines; the prediction is the same."""
    outer, inner = (explain(TEXTS[0], name, method="lrp", at=at) for at in ("embeddings", "words"))
    assert outer.score == inner.score
    if name == "bert":
        assert {n.split(".")[-2] for n in inner.ledger.constants} == {"position_embeddings", "token_type_embeddings"}
        assert not outer.ledger.constants
    if name == "gpt2":
        assert list(outer.ledger.constants) == ["transformer.wpe.weight"] == list(inner.ledger.constants)
    if name == "llama":
        assert torch.equal(outer.relevance, inner.relevance)


def test_place_is_where_the_paper_takes_it() -> None:
    """BERT: gradient times input by hand at the output of model.bert.embeddings."""
    model, fields = tiny("bert"), tokenizer()(TEXTS[0], return_tensors="pt")
    x = model.bert.embeddings(fields["input_ids"]).detach().requires_grad_(True)
    score = model.classifier(model.bert.pooler(model.bert.encoder(x)[0]))[0].max()
    (gradient,) = torch.autograd.grad(score, x)
    assert explain(TEXTS[0], method="gi").relevance == pytest.approx((gradient * x).sum(-1)[0].detach(), abs=1e-9)


LONG = " ".join(TEXTS * 12)


def test_too_long_is_refused_and_the_limit_said() -> None:
    with pytest.raises(hw.errors.TooLong, match="at most 64") as caught:
        explain(LONG)
    assert caught.value.limit == 64


def test_truncate() -> None:
    e = explain(LONG, truncate=True)
    assert len(e.tokens) == 64
    assert e.tokens[-1] == "[SEP]"
    assert e.ledger.closed


def test_roberta_counts_positions_after_padding() -> None:
    """64 rows in the position table, of which two lie before the first token."""
    model = randomised(tf.RobertaForSequenceClassification(tf.RobertaConfig(**SMALL, pad_token_id=1)).double())
    with pytest.raises(hw.errors.TooLong, match="at most 62"):
        hw.explain(model, LONG, tokenizer=tokenizer())


def test_windows_cover_the_text_and_add_up() -> None:
    e = explain(LONG, window=True, stride=10)
    assert e.windows > 2
    assert len(e.tokens) == len(tokenizer()(LONG)["input_ids"])
    assert e.ledger.closed
    assert e.ledger.inputs == pytest.approx(float(e.relevance.sum()))
    assert bool((e.relevance != 0).all())


def test_windows_are_the_mean_of_their_parts() -> None:
    ids = tokenizer()(LONG)["input_ids"]
    body, room = ids[1:-1], 62
    starts = range(0, max(1, len(body) - 10), room - 10)
    scores = []
    for start in starts:
        window = torch.tensor([[ids[0], *body[start : start + room], ids[-1]]])
        with torch.no_grad():
            scores.append(tiny("bert")(input_ids=window).logits[0])
    mean = torch.stack(scores).mean(0)
    assert explain(LONG, window=True, stride=10).score == pytest.approx(float(mean.max()))


def test_windows_that_predict_different_things_predict_the_class_of_their_mean() -> None:
    """Whatever the target is: it stood in the place of the prediction."""
    model = randomised(tf.BertForSequenceClassification(tf.BertConfig(**SMALL, num_labels=3)).double(), seed=7)
    options = {"tokenizer": tokenizer(), "method": "lrp", "window": True, "stride": 0}
    parts = "dull " * 62, "paris great " * 31
    assert len({hw.explain(model, part, tokenizer=tokenizer()).prediction for part in parts}) == 2
    predicted = hw.explain(model, "".join(parts), **options)
    assert predicted.prediction == predicted.target
    for target in (0, 1, 2, "LABEL_1 - LABEL_0"):
        assert hw.explain(model, "".join(parts), target=target, **options).prediction == predicted.target
    model.config.problem_type = "multi_label_classification"
    assert hw.explain(model, "".join(parts), target=0, **options).prediction != "LABEL_0"


def test_short_text_needs_no_window() -> None:
    assert explain(TEXTS[0], window=True).windows == 1


def test_half_precision_is_computed_in_float32() -> None:
    model = tiny("bert", torch.bfloat16)
    e = hw.explain(model, TEXTS[0], tokenizer=tokenizer())
    assert e.provenance.dtype == "float32"
    assert e.relevance.dtype is torch.float32
    assert next(model.parameters()).dtype is torch.bfloat16
    own = hw.explain(model, TEXTS[0], tokenizer=tokenizer(), dtype="bfloat16")
    assert own.provenance.dtype == "bfloat16"
    with torch.no_grad():
        plain = model(**tokenizer()(TEXTS[0], return_tensors="pt")).logits
    assert own.score == float(plain.max())


def test_bare_module_at_a_tensor_and_at_a_module() -> None:
    model, x = tiny("torch-encoder"), arguments("torch-encoder")["input_ids"]
    by_name = hw.explain(model, x, inputs="embed", score=lambda out: out[:, 1])
    by_module = hw.explain(model, (x,), inputs=model.embed, score=lambda out: out[:, 1])
    assert by_name[0].relevance.shape == (9,)
    assert torch.equal(by_name[0].relevance, by_module[0].relevance)
    embedded = model.embed(x).detach()
    inner = torch.nn.Sequential(model.encoder)
    found = hw.explain(inner.eval(), embedded, inputs=embedded, score=lambda out: out[:, 0, 3])
    assert found[0].relevance.shape == embedded[0].shape
    assert all(e.ledger.closed for e in found)
