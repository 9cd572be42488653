"""Kinds of models beside one vector per text: a vector per token, images, both texts at once, any function."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as tf
from test_sentence_parts import Dense, sentence_model
from test_similarity import A, B, MeanModule, closes, embed, encoder, similar
from tiny import randomised, tiny, tokenizer
from torch import nn

import headwater as hw
from headwater.errors import EmptyInput, InputError, NotApplicable, TargetError, TooLong, UsageError
from headwater.results.similarity import Similarity


def token_vectors(model, text):
    fields = tokenizer()(text, return_tensors="pt")
    with torch.no_grad():
        states = model(**fields).last_hidden_state[0]
    return states / states.norm(dim=1, keepdim=True)


# ---- late interaction


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2"])
def test_maxsim_sums(name):
    s = similar(encoder(name), pooling="maxsim")
    products = token_vectors(encoder(name), A) @ token_vectors(encoder(name), B).T
    assert closes(s)
    assert s.score == pytest.approx(float(products.max(1).values.sum()), abs=1e-10)
    assert s.measure == "maxsim"
    assert s.matches == tuple(products.argmax(1).tolist())


def test_maxsim_without_the_rules_does_not_close():
    assert abs(similar(pooling="maxsim", method="gi").ledger.unaccounted) > 1e-3


@pytest.mark.parametrize("rank", [2, 6])
def test_maxsim_at_a_cut_rank_keeps_every_token(rank):
    whole, s = similar(pooling="maxsim"), similar(pooling="maxsim", rank=rank)
    assert closes(s)
    assert (s.rank, s.dimensions) == (rank, 32)
    assert torch.allclose(s.row_relevance, whole.row_relevance, atol=1e-10)
    assert torch.allclose(s.column_relevance, whole.column_relevance, atol=1e-10)
    assert not torch.allclose(s.matrix, whole.matrix, atol=1e-6)


def test_maxsim_equals_a_slow_version_token_by_token():
    """For every token of a, three dimensions of its state and of the chosen token's by `explain`."""

    def explain_dimension(text, place, k):
        score = {"score": lambda out: out.last_hidden_state[:, place, k]}
        return hw.explain(encoder(), text, tokenizer=tokenizer(), method="lrp", **score).relevance.double()

    s = similar(b="a film", pooling="maxsim", normalise=False, dimensions=3)
    slow = sum(
        torch.outer(explain_dimension(A, i, k), explain_dimension("a film", j, k))
        for i, j in enumerate(s.matches)
        for k in range(3)
    )
    assert torch.allclose(s.matrix, slow, atol=1e-12)


def test_a_sentence_model_without_pooling_keeps_its_tokens():
    model = sentence_model(Dense())
    s = hw.explain_similarity(model, A, B)
    assert closes(s)
    assert (s.measure, s.dimensions) == ("maxsim", 12)


def test_maxsim_ranks_as_it_explains():
    passages = [B, "very dull", "john and mary play in london"]
    ranking = hw.rank(encoder(), A, passages, tokenizer=tokenizer(), pooling="maxsim", batch_size=2, directions=2)
    assert list(ranking.scores) == pytest.approx([similar(b=b, pooling="maxsim", rank=2).score for b in passages])
    assert abs(ranking.why(0, 1).ledger.unaccounted) < 1e-10


def test_maxsim_needs_states():
    with pytest.raises(TargetError, match="no vector per token"):
        similar(own(), pooling="maxsim")
    with pytest.raises(UsageError, match="no other pooling"):
        similar(pooling=("maxsim", "cls"))


def own() -> nn.Module:
    return randomised(MeanModule().double())


# ---- images and texts


@cache
def two_towers(kind: str) -> nn.Module:
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    text = {**small, "vocab_size": 120, "max_position_embeddings": 64}
    vision = {**small, "image_size": 32, "patch_size": 8}
    if kind == "clip":
        config = tf.CLIPConfig(text_config={**text, "eos_token_id": 3}, vision_config=vision, projection_dim=24)
        model = tf.CLIPModel(config)
    else:
        config = tf.SiglipConfig(text_config={**text, "projection_size": 32}, vision_config=vision)
        model = tf.SiglipModel(config)
    return randomised(model.double()).eval()


def picture(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (40, 32, 3), dtype=np.uint8)


def processor():
    return tf.ViTImageProcessorPil(size={"height": 32, "width": 32})


def seen(seed: int = 0):
    from PIL import Image

    return Image.fromarray(picture(seed))


def vectors_by_hand(model, image, text):
    pixels = processor()(images=image, return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        found = (
            model.get_image_features(pixel_values=pixels),
            model.get_text_features(
                **{k: v for k, v in tokenizer()(text, return_tensors="pt").items() if k != "token_type_ids"}
            ),
        )
    return [getattr(one, "pooler_output", one)[0] for one in found]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_patches_and_tokens_sum(kind):
    model = two_towers(kind)
    s = similar(model, seen(), A, processor=processor())
    x, y = vectors_by_hand(model, seen(), A)
    assert closes(s)
    assert s.score == pytest.approx(float(torch.cosine_similarity(x, y, 0)), abs=1e-10)
    assert s.a.grid == (4, 4)
    assert s.matrix.shape == (16, len(s.columns))
    assert [word.text for word in s.row_words()][:2] == ["[0, 0]", "[0, 1]"]
    assert s.words().matrix.shape[0] == 16
    assert abs(similar(model, seen(), A, processor=processor(), method="gi").ledger.unaccounted) > 1e-6


def test_an_image_may_stand_second_and_both_may_be_images():
    model = two_towers("clip")
    s = similar(model, A, seen(), processor=processor())
    assert torch.allclose(s.matrix.T, similar(model, seen(), A, processor=processor()).matrix, atol=1e-12)
    both = similar(model, seen(), seen(1), processor=processor(), rank=4)
    assert closes(both)
    assert both.b.grid == (4, 4)


def test_images_are_ranked_by_a_text(tmp_path):
    model = two_towers("clip")
    ranking = hw.rank(model, A, [seen(n) for n in range(3)], tokenizer=tokenizer(), processor=processor())
    assert ranking.explain(0).score == pytest.approx(max(ranking.scores), abs=1e-10)
    ranking.explain(0).save(tmp_path / "s.json")
    assert Similarity.load(tmp_path / "s.json").b.grid == (4, 4)


def test_an_image_needs_a_processor():
    with pytest.raises(InputError, match="needs a processor"):
        similar(two_towers("clip"), seen(), A)
    with pytest.raises(UsageError, match="one vector"):
        similar(two_towers("clip"), seen(), A, processor=processor(), pooling="maxsim")


# ---- both texts at once


class CrossEncoder:
    """What sentence-transformers gives: a classifier with one output, its tokenizer, a length."""

    def __init__(self, model, length=None):
        self.model, self.tokenizer, self.max_length = model, tokenizer(), length


@cache
def classifier(labels: int = 1) -> nn.Module:
    return randomised(tf.BertForSequenceClassification(tiny("bert").config.__class__(**small_bert(labels))).double())


def small_bert(labels: int) -> dict:
    return {**tiny("bert").config.to_dict(), "num_labels": labels, "id2label": None, "label2id": None}


def logit(model, a, b, place=0):
    with torch.no_grad():
        return float(model(**tokenizer()(a, b, return_tensors="pt")).logits[0, place])


def test_a_cross_encoder_has_one_sides_words_against_the_others():
    model = classifier()
    s = hw.explain_similarity(CrossEncoder(model), A, B)
    assert closes(s)
    assert s.score == pytest.approx(logit(model, A, B), abs=1e-10)
    assert s.rows == tuple(tokenizer().tokenize(A))
    assert s.columns == tuple(tokenizer().tokenize(B))
    e = hw.explain(model, (A, B), tokenizer=tokenizer(), sinks="show")
    mine = [i for i, owner in enumerate(e.sequence_ids) if owner == 0]
    assert torch.allclose(s.row_relevance, e.relevance[mine].double(), atol=1e-12)
    assert float(s.matrix.abs().max()) > 1e-6
    assert torch.allclose(hw.explain(CrossEncoder(model), (A, B), sinks="show").relevance, e.relevance)


def test_a_pair_is_what_either_loses_when_the_other_is_masked():
    model, reader = classifier(), tokenizer()
    s = hw.explain_similarity(CrossEncoder(model), A, B)
    fields = reader(A, B, return_tensors="pt")
    masked = {**fields, "input_ids": fields["input_ids"].clone()}
    masked["input_ids"][0, 2] = reader.unk_token_id  # the second word of a
    other = {**fields, "input_ids": fields["input_ids"].clone()}
    at = len(s.rows) + 2 + 3  # the fourth of b
    other["input_ids"][0, at] = reader.unk_token_id
    whole, first, second = (
        hw.explain(model, one, tokenizer=reader, target=0, sinks="show")[0].relevance for one in (fields, masked, other)
    )
    expected = (whole[at] - first[at] + whole[2] - second[2]) / 2
    assert float(s.matrix[1, 3]) == pytest.approx(float(expected), abs=1e-12)


def test_a_classifier_of_pairs_has_a_target():
    model = tiny("bert")
    s = similar(model, target=2)
    assert closes(s)
    assert s.score == pytest.approx(logit(model, A, B, 2), abs=1e-10)
    assert "LABEL_2" in s.measure
    assert "dimensions" not in str(s).splitlines()[0]


def test_a_cross_encoder_ranks():
    model = CrossEncoder(classifier())
    passages = [B, "very dull", "john and mary play in london"]
    ranking = hw.rank(model, A, passages, batch_size=2)
    assert list(ranking.scores) == pytest.approx([logit(classifier(), A, b) for b in passages], abs=1e-10)
    why = ranking.why(0, 2)
    assert abs(why.ledger.unaccounted) < 1e-10
    assert why.score > 0


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"a": " "}, EmptyInput, "empty"),
        ({"rank": 4}, NotApplicable, "no directions"),
        ({"pooling": "mean"}, UsageError, "gives no vectors"),
        ({"normalise": False}, UsageError, "gives no vectors: leave out normalise"),
        ({"model": CrossEncoder(tiny("bert"), length=8)}, TooLong, "at most 8"),
        ({"b": 3}, UsageError, "must be a string"),
    ],
)
def test_what_a_cross_encoder_refuses(change, error, said):
    with pytest.raises(error, match=said):
        similar(**{"model": tiny("bert"), **change})


# ---- any function


def vectors_of(texts):
    """A model behind a function, as an interface over a network would be."""
    return [embed(encoder(), text).tolist() for text in texts]


def test_a_function_is_asked_without_each_word():
    s = hw.explain_similarity(vectors_of, "not good", "a gripping film")
    full = {text: embed(encoder(), text) for text in ("not good", "good", "a gripping film", "a gripping", "not")}
    length = full["not good"].norm() * full["a gripping film"].norm()
    one = (full["not good"] - full["good"]) @ (full["a gripping film"] - full["a gripping"]) / length
    assert closes(s)
    assert (s.rows, s.columns, s.method) == (("not", "good"), ("a", "gripping", "film"), "leave-one-out")
    assert float(s.matrix[0, 2]) == pytest.approx(float(one), abs=1e-10)
    assert s.words().rows == s.rows


@pytest.mark.parametrize("options", [{"normalise": False}, {"dimensions": 5}, {"prompts": ("play", None)}])
def test_a_function_with_options(options):
    assert closes(hw.explain_similarity(vectors_of, "not good", "good", **options))


def test_a_function_ranks():
    ranking = hw.rank(vectors_of, A, ["good", "bad film"], batch_size=1)
    assert ranking.explain(0).score == pytest.approx(max(ranking.scores), abs=1e-10)


@pytest.mark.parametrize(
    ("function", "options", "error", "said"),
    [
        (lambda texts: [1.0, 2.0], {}, TargetError, r"\(2,\) for"),
        (lambda texts: None, {}, TargetError, "no vector per text|for 6 texts"),
        (lambda texts: [[1.0], [1.0, 2.0]], {}, TargetError, "no vector per text"),
        (lambda texts: [[float("nan")]] * len(texts), {}, TargetError, "not finite"),
        (vectors_of, {"method": "lrp"}, NotApplicable, "leave-one-out"),
        (vectors_of, {"rank": 2}, NotApplicable, "leave out rank="),
        (vectors_of, {"tokenizer": SimpleNamespace()}, UsageError, "no place"),
        (vectors_of, {"truncate": True}, UsageError, "leave out truncate="),
        (vectors_of, {"device": "cpu"}, UsageError, "leave out device="),
        (vectors_of, {"dtype": "float32"}, UsageError, "leave out dtype="),
        (vectors_of, {"dimensions": -1}, UsageError, "dimensions must be at least 1"),
        (vectors_of, {"dimensions": 99}, UsageError, "dimensions=99"),
    ],
)
def test_what_a_function_cannot_give(function, options, error, said):
    with pytest.raises(error, match=said):
        hw.explain_similarity(function, A, B, **options)


def test_a_function_of_an_empty_text():
    with pytest.raises(EmptyInput, match="empty"):
        hw.explain_similarity(vectors_of, " ", B)
