"""Passages by their similarity to a query: the order, the words, and differences that sum."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers as tf
from tiny import SMALL, randomised, tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater.api.text_pairs import VectorComparer
from headwater.cli import app
from headwater.errors import DataError, EmptyInput, NotFinite, TooLong, UsageError

QUERY = "the film was not good"
PASSAGES = [
    "a gripping movie",
    "paris is the capital of france",
    "very dull , bad acting",
    "john and mary play in london",
]


@pytest.fixture
def ranking():
    return hw.rank(tiny("bert").base_model, QUERY, PASSAGES, tokenizer=tokenizer(), batch_size=2)


def similar(text: str):
    return hw.explain_similarity(tiny("bert").base_model, QUERY, text, tokenizer=tokenizer())


def test_the_order_is_that_of_the_similarities(ranking):
    scores = [similar(text).score for text in PASSAGES]
    assert list(ranking.scores) == pytest.approx(scores, abs=1e-10)
    assert list(ranking.order) == sorted(range(4), key=lambda i: -scores[i])
    assert ranking.top(1) == [(PASSAGES[ranking.order[0]], max(ranking.scores))]


def test_only_what_is_asked_for_is_explained(ranking):
    assert ranking.known == {}
    s = ranking.explain(1)
    assert list(ranking.known) == [ranking.order[1]]
    assert ranking.explain(1) is s
    assert torch.equal(s.matrix, similar(PASSAGES[ranking.order[1]]).matrix)
    assert sum(word.relevance for word in ranking.words(1)) == pytest.approx(float(s.column_relevance.sum()), abs=1e-12)


def test_why_one_stands_above_another_sums(ranking):
    why = ranking.why(0, 2)
    assert why.score == pytest.approx(ranking.scores[ranking.order[0]] - ranking.scores[ranking.order[2]], abs=1e-10)
    assert why.score > 0
    assert abs(why.ledger.unaccounted) < 1e-10
    assert why.ledger.score == pytest.approx(why.score, abs=1e-12)
    assert sum(word.relevance for word in why.query_words()) + why.query_rest == pytest.approx(why.score, abs=1e-12)
    biases = sum(group.total for group in why.ledger.groups.values()) + why.ledger.inputs
    assert biases == pytest.approx(why.score, abs=1e-10)
    above, below = why.passage_words()
    assert [word.text for word in above] != [word.text for word in below]


def test_many_passages_go_in_chunks(monkeypatch):
    monkeypatch.setattr("headwater.api.rank.CHUNK", 3)
    told: list[int] = []
    few = hw.rank(tiny("bert").base_model, QUERY, PASSAGES * 2, tokenizer=tokenizer(), tell=told.append)
    assert told == [3, 3, 2]
    assert list(few.scores[:4]) == pytest.approx(list(few.scores[4:]), abs=1e-10)
    with pytest.raises(UsageError, match=r"from number 3 on.*82 tokens"):
        hw.rank(tiny("bert").base_model, QUERY, [*PASSAGES, "film " * 80], tokenizer=tokenizer())


def rank_with(keep, passages=PASSAGES, query=QUERY, **options):
    return hw.rank(tiny("bert").base_model, query, passages, tokenizer=tokenizer(), keep=keep, **options)


def test_a_ranking_that_was_interrupted_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr("headwater.api.rank.CHUNK", 1)
    keep, computed = tmp_path / "scores", []
    score = VectorComparer.score

    def note(self, query, passages):
        if len(computed) == 3:  # the first ones, to tell the model by, and two chunks
            raise KeyboardInterrupt
        computed.append(list(passages))
        return score(self, query, passages)

    monkeypatch.setattr(VectorComparer, "score", note)
    with pytest.raises(KeyboardInterrupt):
        rank_with(keep)
    assert computed[1:] == [PASSAGES[:1], PASSAGES[1:2]]
    with keep.open("a") as file:
        file.write('{"passages": "broken off')
    computed.clear()
    found = rank_with(keep)
    assert computed[1:] == [PASSAGES[2:3], PASSAGES[3:]]
    monkeypatch.setattr(VectorComparer, "score", score)
    assert found.scores == rank_with(None).scores
    assert len(keep.read_text().splitlines()) == 1 + len(PASSAGES)
    assert found.explain(0).score == pytest.approx(found.top(1)[0][1], abs=1e-10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": "a dull film"}, "another query"),
        ({"passages": PASSAGES[::-1]}, "other passages"),
        ({"pooling": "cls"}, "another model"),
        ({"passages": [b"no text"]}, "are texts"),
    ],
)
def test_scores_of_another_ranking_are_refused(tmp_path, change, said):
    rank_with(tmp_path / "scores")
    with pytest.raises(UsageError, match=said):
        rank_with(tmp_path / "scores", **change)


def test_a_file_of_something_else_is_refused_and_stays(tmp_path):
    (tmp_path / "mine").write_text("my own notes\n")
    with pytest.raises(DataError, match="mine"):
        rank_with(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "my own notes\n"


def test_a_copy_has_no_model(ranking):
    with pytest.raises(UsageError, match="no model"):
        copy.deepcopy(ranking).explain(0)
    with pytest.raises(UsageError, match="no place 4"):
        ranking.explain(4)


def test_what_is_empty_is_named_before_anything_is_compared():
    told: list[int] = []
    options = {"tokenizer": tokenizer(), "tell": told.append}
    with pytest.raises(EmptyInput, match="passage 300 is empty"):
        hw.rank(tiny("bert").base_model, QUERY, ["film"] * 300 + [" "], **options)
    with pytest.raises(EmptyInput, match="the query is empty"):
        hw.rank(tiny("bert").base_model, "", PASSAGES, **options)
    with pytest.raises(EmptyInput, match="the second text is empty"):
        hw.explain_similarity(tiny("bert").base_model, QUERY, "", tokenizer=tokenizer())
    assert told == []


def test_a_similarity_that_is_no_number_has_no_place():
    broken = copy.deepcopy(tiny("bert").base_model)
    with torch.no_grad():
        broken.embeddings.word_embeddings.weight[tokenizer().convert_tokens_to_ids("paris")] = torch.nan
    with pytest.raises(NotFinite, match="'paris'"):
        hw.rank(broken, QUERY, ["a gripping movie", "paris"], tokenizer=tokenizer())


def test_passages_of_a_classifier_are_in_the_order_of_one_class():
    """The predicted one was that of the first passage of each chunk, and an explanation had that of its own."""
    with pytest.raises(UsageError, match=r"3 classes \(.*2\).*target="):
        hw.rank(classifier(), QUERY, PASSAGES, tokenizer=tokenizer())
    found = hw.rank(classifier(), QUERY, PASSAGES, tokenizer=tokenizer(), target=2)
    for place, number in enumerate(found.order):
        assert found.explain(place).score == pytest.approx(found.scores[number], abs=1e-10)


def classifier():
    return randomised(tf.BertForSequenceClassification(tf.BertConfig(**SMALL, num_labels=3)).double())


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_says_how_to_go_on(monkeypatch, tmp_path, kept):
    def stops(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(hw, "rank", stops)
    (tmp_path / "passages.txt").write_text("one\ntwo\n")
    more = ["--keep", str(tmp_path / "scores")] if kept else []
    found = CliRunner().invoke(app, ["rank", "one", str(tmp_path / "passages.txt"), *more])
    assert found.exit_code == 130
    assert ("scores, and the same command goes on" in found.stderr) == kept
    assert ("nothing was kept: with --keep" in found.stderr) != kept


def test_scores_that_cannot_be_kept(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        rank_with(tmp_path / "nowhere" / "scores")


def test_places_that_there_are_not_are_refused_before_anything_is_loaded(tmp_path):
    (tmp_path / "passages.txt").write_text("one\n\ntwo\n")
    found = CliRunner().invoke(app, ["rank", "one", str(tmp_path / "passages.txt"), "--model", "none", "--why", "0,2"])
    assert found.exit_code == 2
    assert "the file has 2 passages" in found.stderr


@pytest.mark.parametrize("nothing", [[], "a text is no list"])
def test_no_passages(nothing):
    with pytest.raises(EmptyInput, match="no passages"):
        hw.rank(tiny("bert").base_model, QUERY, nothing, tokenizer=tokenizer())


def test_a_passage_that_is_too_long():
    with pytest.raises(TooLong):
        hw.rank(tiny("bert").base_model, QUERY, ["film " * 80], tokenizer=tokenizer())
