"""The API of whole answers: its numbers are the library's, files are complete, and what is too much is said."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

pytest.importorskip("fastapi")
from browsing import make_state
from fastapi.testclient import TestClient
from hostile import HOSTILE
from making_pdfs import make_pdf
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


def send_file(client, name, content):
    sent = {"name": name, "content": base64.b64encode(content).decode()}
    return client.post("/api/answer/document", json=sent)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", "zw\xf6lf".encode("utf-16"), "zw\xf6lf"),
        ("a.md", b"# Paris\n", "# Paris"),
        ("A.HTML", b"<script>no</script><p>one<p hidden>no<p>&lt;b>two", "one\n<b>two"),
        ("a.pdf", make_pdf("The tower was fin-\nished.", "It is high."), "The tower was finished.\n\nIt is high."),
        ("empty.txt", b"", ""),
    ],
)
def test_a_file_is_read_as_the_command_line_reads_it(client, name, content, text):
    if name.endswith("pdf"):
        pytest.importorskip("pypdf")
    found = send_file(client, name, content)
    assert (found.status_code, found.json()) == (200, {"name": name, "text": text})


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"\x00\x01", "bytes of zero"),
        ("a.docx", b"PK", "does not end in .txt"),
        ("/etc/passwd", b"x", "does not end in .txt"),
        ("a.pdf", b"%PDF-1.4", "cannot be read as a PDF"),
        ("a.md", b"x" * 20_001, "more than 20,000 characters"),
        ("a.pdf", make_pdf(*["long " * 900] * 6), "more than 20,000 characters"),
    ],
)
def test_a_file_that_is_no_document_is_refused_in_words(client, name, content, says):
    found = send_file(client, name, content)
    assert found.status_code == 400
    assert says in found.json()["message"]


def test_a_file_may_be_larger_than_a_text_and_has_a_bound(client):
    page = b"<!-- " + b"x" * 2_000_000 + b" --><p>seen"
    assert send_file(client, "a.html", page).json()["text"] == "seen"
    assert send_file(client, "a.html", b"x" * 8_400_000).status_code == 422
    assert send_file(client, "a.html", b"x" * 9_500_000).status_code == 413
    assert client.post("/api/answer/document", json={"name": "a.txt", "content": "no base64!"}).status_code == 400


def test_a_page_that_opens_very_many_elements_is_read_in_time(client):
    deep = b"<svg>" * 60_000 + b"</b>" * 60_000 + b"</svg>" * 60_000
    assert send_file(client, "a.html", deep + b"<p>seen").json()["text"] == "seen"


def test_a_pdf_that_swells_when_it_is_unpacked_is_refused(client):
    pytest.importorskip("pypdf")
    packed = zlib.compress(b" " * 100_000_000, 9)
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    plain = make_pdf("x")
    start = plain.index(b"<< /Length")
    end = plain.index(b"endstream") + len(b"endstream")
    found = send_file(client, "a.pdf", plain[:start] + stream + plain[end:])
    assert found.status_code == 400
    assert "cannot be read as a PDF" in found.json()["message"]


def test_hostile_markup_in_a_file_stays_text(client):
    for text in HOSTILE:
        if "\x00" not in text and text.encode("utf-8", "ignore").decode() == text:
            assert send_file(client, "a.txt", text.encode()).json()["text"] == text.strip()
