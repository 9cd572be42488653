"""The API of whole answers: its numbers are the library's, files are complete, and what is too much is said."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi")
from browsing import make_state
from fastapi.testclient import TestClient
from speaker import speaker, talker

import headwater as hw
from headwater.web.app import create_app
from headwater.web.models import Loaded

approx = pytest.approx
TEXTS = {"one": "the capital of France is Paris. it was a good film.", "Document 2": "she said London!"}
ASK = {
    "question": "the capital is",
    "documents": [{"name": "one", "text": TEXTS["one"]}, {"text": TEXTS["Document 2"]}],
    "answer": "Paris is good. it was London.",
}


@pytest.fixture(scope="module")
def client() -> TestClient:
    made = make_state(language=lambda: Loaded(talker("gpt2"), speaker()))
    made.models.language.load()
    return TestClient(create_app(made), base_url="http://127.0.0.1")


def library() -> hw.AnswerExplainer:
    return hw.explain_answer(
        talker("gpt2"), ASK["question"], tokenizer=speaker(), documents=TEXTS, answer=ASK["answer"]
    )


def test_an_answer_is_the_librarys(client):
    found = client.post("/api/answer", json=ASK).json()
    own = library()
    assert found["text"] == own.text.strip()
    assert [one["name"] for one in found["documents"]] == list(TEXTS)
    assert [one["sentences"] for one in found["documents"]] == list(map(list, own.document_sentences))
    for one, span in zip(found["sentences"], own.all_sentences(), strict=True):
        assert one["score"] == approx(span.score, abs=1e-9)
        assert {name: sum(values) for name, values in zip(TEXTS, one["sources"], strict=True)} == approx(
            span.by_document(), abs=1e-9
        )
        assert {role["name"]: role["amount"] for role in one["roles"]} == approx(span.by_role(), abs=1e-9)
        assert one["ledger"]["closed"]


def test_sources_and_what_is_left_out_are_the_librarys(client):
    found, own = client.post("/api/answer/sources", json=ASK).json(), library()
    for one, cited in zip(found["sentences"], own.citations(), strict=True):
        assert [source["drop"] for source in one["citations"]] == approx([source.drop for source in cited], abs=1e-9)
        assert [source["text"] for source in one["citations"]] == [source.text for source in cited]
    left = {"left_out": [{"document": 0, "sentence": 1}, {"document": 1}]}
    moved = client.post("/api/answer/without", json=ASK | left).json()
    assert moved["after"] == approx(own.without_all([(0, 1), (1, None)]).after, abs=1e-9)
    assert moved["before"] == approx(own.whole().log_probability, abs=1e-9)
    assert len(moved["sentences"]) == 2


@pytest.mark.parametrize("form", ["html", "json"])
def test_the_answer_is_a_file(client, form):
    left = {"left_out": [{"document": 1, "sentence": 0}]}
    found = client.post(f"/api/answer/report?form={form}", json=ASK | left)
    assert found.headers["content-disposition"] == f'attachment; filename="headwater-answer.{form}"'
    if form == "html":
        assert "Content-Security-Policy" in found.text
        assert "Without <strong>Document 2, sentence 1</strong>" in found.text
    else:
        assert json.loads(found.text)["left_out"]["name"] == "Document 2, sentence 1"


def test_documents_of_one_name_are_told_apart(client):
    twice = {"documents": [{"name": "a", "text": "Paris."}, {"name": "a", "text": "London."}, {"text": "the film."}]}
    found = client.post("/api/answer", json=ASK | twice).json()
    assert [one["name"] for one in found["documents"]] == ["a", "a (2)", "Document 3"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"question": ""}, "The question must not be empty"),
        ("", {"question": " "}, "not empty"),
        ("", {"documents": [{"text": "x"}] * 201}, "200"),
        ("", {"documents": [{"text": "x" * 20_000}] * 3}, "40,000 characters, and these have 60,000"),
        ("", {"documents": [{"text": "good film " * 1900}]}, "longest document"),
        ("", {"new_tokens": 121}, "120"),
        ("", {"method": "lpr"}, "Did you mean"),
        ("/without", {}, "nothing is left out"),
        ("/without", {"left_out": [{"document": 1, "sentence": 5}]}, "no sentence 5"),
        ("/without", {"left_out": [{"document": 9}]}, "no document 9"),
    ],
)
def test_what_is_too_much_or_wrong_is_said(client, path, body, said):
    found = client.post(f"/api/answer{path}", json=ASK | body)
    assert found.status_code in (400, 404, 422)
    assert said in found.text


def test_two_hundred_short_documents_are_answered_or_refused_in_words(client):
    many = {"documents": [{"text": "good."}] * 200}
    found = client.post("/api/answer", json=ASK | many)
    assert found.status_code == 400
    assert "Give fewer or shorter documents" in found.text
