"""The API of two texts: its numbers are the library's, files are complete, and what is too much or wrong is said."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient
from speaker import speaker, talker
from tiny import tiny, tokenizer

import headwater as hw
from headwater.errors import LoadError, ModelError
from headwater.web.app import create_app
from headwater.web.encoders import VectorParts
from headwater.web.models import NO_SENTENCE_MODEL, LazyModel, Loaded, Loading, models_of, sentence_model
from headwater.web.similar import quote_mark
from headwater.web.state import AppState

approx = pytest.approx
A, B = "the film was not good", "a gripping movie , very dull acting"
PASSAGES = ["a gripping movie", "paris is the capital of france", "very dull , bad acting", "john and mary play"]
ASK = {"first": A, "second": B, "rank": None}
RANK = {"query": A, "passages": PASSAGES}


def encoder() -> Loaded:
    return Loaded(tiny("bert").base_model, tokenizer(), None, VectorParts(limit=40))


def open_state(read: Callable[[], Loaded] | None) -> AppState:
    """A server that has read its encoder, and no other model."""
    made = AppState(replace(models_of(), sentence=LazyModel("sentence", "tiny", read, NO_SENTENCE_MODEL)))
    if read is not None:
        made.models.sentence.load()
    return made


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(open_state(encoder)), base_url="http://127.0.0.1")


def library(first: str = A, second: str = B, rank: int | None = None) -> hw.Similarity:
    return hw.explain_similarity(tiny("bert").base_model, first, second, tokenizer=tokenizer(), rank=rank)


def test_two_texts_are_the_librarys(client):
    found, own = client.post("/api/similar", json=ASK).json(), library()
    assert found["score"] == approx(own.score, abs=1e-10)
    assert found["measure"] == "cosine"
    assert [w["text"] for w in found["first"]["words"]] == list(own.words().rows)
    for shown, word in zip(found["second"]["words"], own.column_words(), strict=True):
        assert shown["relevance"] == approx(word.relevance, abs=1e-10)
    for line, row in zip(found["matrix"], own.words().matrix.tolist(), strict=True):
        assert line == approx(row, abs=1e-10)
    for i, word in enumerate(found["first"]["words"]):
        assert sum(found["matrix"][i]) + found["first"]["rest"][i] == approx(word["relevance"], abs=1e-10)
    assert found["ledger"]["closed"]
    assert found["ledger"]["inputs"] == approx(sum(map(sum, found["matrix"])), abs=1e-10)
    assert found["rank"] == found["dimensions"] == 32


@pytest.mark.parametrize(("word", "seen"), [(",", "“,”"), ("film", "film"), ("it's", "it's")])
def test_a_mark_is_not_taken_for_one_of_the_sentence(word, seen):
    assert quote_mark(word) == seen


def test_fewer_directions_leave_score_and_words_as_they_are(client):
    few, own = client.post("/api/similar", json=ASK | {"rank": 3}).json(), library()
    assert (few["rank"], few["dimensions"]) == (3, 32)
    assert few["score"] == approx(own.score, abs=1e-10)
    assert [w["relevance"] for w in few["first"]["words"]] == approx([w.relevance for w in own.row_words()], abs=1e-9)
    assert few["matrix"][1] != approx(own.words().matrix[1].tolist(), abs=1e-6)
    many = client.post("/api/similar", json=ASK | {"rank": 64}).json()  # more than there are dimensions: all of them
    assert many["rank"] == 32


def test_words_that_are_left_out_are_read_again_without(client):
    moved = client.post("/api/similar/without", json=ASK | {"left_first": [4]}).json()
    assert moved["first"] == "the film was good"
    assert moved["second"] == B
    assert moved["before"] == approx(library().score, abs=1e-10)
    assert moved["after"] == approx(library("the film was good").score, abs=1e-10)
    assert moved["claim"] == approx(library().row_words()[4].relevance, abs=1e-10)
    both = client.post("/api/similar/without", json=ASK | {"left_first": [4], "left_second": [2, 1]}).json()
    assert both["second"] == "movie , very dull acting"
    assert both["name"] == "not, a, gripping"
    assert both["after"] == approx(library("the film was good", both["second"]).score, abs=1e-10)
    own = library()
    parts = own.row_words()[4].relevance + sum(own.column_words()[j].relevance for j in (1, 2))
    assert both["claim"] == approx(parts - float(own.words().matrix[4, 1:3].sum()), abs=1e-10)


def test_a_ranking_and_its_differences_are_the_librarys(client):
    found = client.post("/api/similar/rank", json=RANK | {"places": [0, 1]}).json()
    own = hw.rank(tiny("bert").base_model, A, PASSAGES, tokenizer=tokenizer())
    assert [one["number"] for one in found["passages"]] == list(own.order)
    assert [one["score"] for one in found["passages"]] == approx([own.scores[n] for n in own.order], abs=1e-10)
    assert [one["words"] is not None for one in found["passages"]] == [True, True, False, False]
    for shown, word in zip(found["passages"][1]["words"], own.words(1), strict=True):
        assert (shown["text"], shown["relevance"]) == (word.text, approx(word.relevance, abs=1e-9))
    why = client.post("/api/similar/rank/why", json=RANK | {"above": 0, "below": 2}).json()
    assert why["score"] == approx(own.why(0, 2).score, abs=1e-10)
    assert sum(word["relevance"] for word in why["query"]) + why["rest"] == approx(why["score"], abs=1e-10)
    assert why["closed"]


@pytest.mark.parametrize("form", ["html", "svg", "json"])
def test_two_texts_are_a_file(client, form):
    found = client.post(f"/api/similar/report?form={form}", json=ASK | {"left_first": [4]})
    assert found.headers["content-disposition"] == f'attachment; filename="headwater-similar.{form}"'
    if form == "html":
        assert "Content-Security-Policy" in found.text
        assert "Without <strong>not</strong> the cosine is" in found.text
    elif form == "json":
        assert hw.Similarity.from_dict(json.loads(found.text)).score == approx(library().score, abs=1e-10)
        assert json.loads(found.text)["left_out"]["first"] == "the film was good"
    else:
        assert found.text.startswith("<svg")


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_ranking_is_a_file(client, form):
    found = client.post(f"/api/similar/rank/report?form={form}", json=RANK | {"above": 1, "below": 3})
    assert found.headers["content-disposition"] == f'attachment; filename="headwater-rank.{form}"'
    if form == "html":
        assert "Why this above that?" in found.text
    else:
        record = json.loads(found.text)
        parts = [word["relevance"] for word in record["difference"]["query"]] + [record["difference"]["rest"]]
        assert sum(parts) == approx(record["difference"]["score"], abs=1e-10)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"first": ""}, "The first text must not be empty"),
        ("", {"second": " \n"}, "the second text is empty"),
        ("", {"first": "x" * 4001}, "The first text may have at most 4,000 characters"),
        ("", {"second": "film " * 60}, "the second text has 62 tokens, and this model takes at most 40"),
        ("", {"rank": 1}, "Rank must be at least 2"),
        ("", {"model": "another"}, "no model called 'another'"),
        ("/without", {}, "nothing is left out"),
        ("/without", {"left_first": [0]}, "word 0 of the first text cannot be left out"),
        ("/without", {"left_second": [99]}, "word 99 of the second text cannot be left out"),
        ("/without", {"left_first": [1, 2, 3, 4, 5]}, "nothing is left of the first text"),
    ],
)
def test_what_is_wrong_with_two_texts_is_said(client, path, body, said):
    found = client.post(f"/api/similar{path}", json=ASK | body)
    assert found.status_code in (400, 404, 422)
    assert said in found.json()["message"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"query": ""}, "The query must not be empty"),
        ("", {"passages": []}, "the passages"),
        ("", {"passages": ["a film", " "]}, "passage 2 is empty"),
        ("", {"passages": ["a film", "film " * 60]}, "passage 2 has 62 tokens"),
        ("", {"passages": ["x"] * 1001}, "At most 1000 passages are taken at once, and there are 1001"),
        ("", {"passages": ["film " * 700] * 80}, "200,000 characters, and these have 280,000"),
        ("/why", {"above": 1, "below": 1}, "does not stand above itself"),
        ("/why", {"below": 7}, "no place 7"),
    ],
)
def test_what_is_wrong_with_a_ranking_is_said(client, path, body, said):
    found = client.post(f"/api/similar/rank{path}", json=RANK | body)
    assert found.status_code in (400, 404, 422)
    assert said in found.json()["message"]


def test_without_an_encoder_it_is_said_what_kind_is_needed():
    client = TestClient(create_app(open_state(None)), base_url="http://127.0.0.1")
    found = client.post("/api/similar", json=ASK)
    assert found.status_code == 404
    assert "a sentence encoder, not a classifier" in found.json()["message"]
    assert "--sentence-model" in found.json()["message"]


@pytest.fixture
def directory(tmp_path):
    copy.deepcopy(tiny("bert").base_model).float().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_an_encoder_that_is_named_as_the_model_goes_to_its_own_place(directory):
    found = models_of(str(directory)).ready()
    assert found.sentence.name == str(directory)
    assert found.text.take().classes == ["negative", "positive"]
    assert "Its files do not say" in found.sentence.take().parts.describe()
    (directory / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": "1"}]))
    (directory / "1").mkdir()
    (directory / "1" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "do_lower_case": True}))
    parts = sentence_model(str(directory), Loading()).parts
    assert (parts.pooling, parts.limit, parts.lower) == (("cls",), 20, True)
    assert parts.describe() == "A text's vector is the state of its first token."


def test_a_second_model_that_is_an_encoder_is_sent_to_its_option(directory):
    named = models_of(["headwater/sentiment", str(directory)]).others[0]
    named.load()
    with pytest.raises(LoadError, match="--sentence-model"):
        named.take()


def test_of_a_classifier_the_encoder_is_taken_and_that_is_said():
    found = sentence_model("headwater/sentiment", Loading())
    assert type(found.model).__name__ == "BertModel"
    assert "BertForSequenceClassification, which may never have been trained" in found.parts.describe()


def test_a_model_that_generates_gives_no_vector(monkeypatch):
    monkeypatch.setattr("headwater.models.loading.load", lambda name, **_: (talker("gpt2"), speaker()))
    with pytest.raises(ModelError, match="gives no vector per text"):
        sentence_model("tiny", Loading())


def test_about_names_the_encoder_and_how_it_makes_vectors(client):
    (about,) = [one for one in client.get("/api/about").json()["models"] if one["kind"] == "sentence"]
    assert about["name"] == "tiny"
    assert about["vector"] == "A text's vector is the mean of its tokens' states."
    assert about["classes"] == []


def test_a_prompt_stands_in_front_and_cannot_be_left_out():
    made = open_state(lambda: Loaded(tiny("bert").base_model, tokenizer(), None, VectorParts(prompt="query: ")))
    found = ask_state(made, "", ASK)
    own = hw.explain_similarity(tiny("bert").base_model, A, B, tokenizer=tokenizer(), prompts="query: ")
    assert found["score"] == approx(own.score, abs=1e-10)
    count = found["first"]["prompt"]
    assert found["first"]["words"][count]["text"] == "the"
    moved = ask_state(made, "/without", ASK | {"left_first": [count + 3]})
    assert moved["first"] == "the film was good"
    assert "cannot be left out" in ask_state(made, "/without", ASK | {"left_first": [count - 1]})["message"]


def test_where_the_files_name_no_length_the_models_own_counts():
    made = open_state(lambda: Loaded(tiny("bert").base_model, tokenizer(), None, VectorParts()))
    said = "a text has 72 tokens, and this model takes at most 64."
    assert ask_state(made, "", ASK | {"first": "film " * 70})["message"] == said
    assert ask_state(made, "/rank", RANK | {"passages": ["film " * 70]})["message"] == said


def ask_state(made: AppState, path: str, body: dict) -> dict:
    return TestClient(create_app(made), base_url="http://127.0.0.1").post(f"/api/similar{path}", json=body).json()
