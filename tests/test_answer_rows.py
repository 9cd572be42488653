"""A table of questions and documents in, a table of answers and their sources out."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

pytest.importorskip("pyarrow")
from jobs_here import here, read_rows, write
from pyarrow import parquet
from speaker import speaker, talker
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import UsageError
from headwater.jobs.answer_rows import read_row_documents

approx = pytest.approx
DOCUMENTS = ["the capital of France is Paris. it was a good film.", "she said London!"]
QUESTIONS = ["the capital is", "it was", "", "she said", "the film"]
GIVEN = [DOCUMENTS, DOCUMENTS[:1], DOCUMENTS, None, []]
ANSWERS = ["Paris is good. it was London.", "Paris.", "Paris.", "London.", "it is good."]


def run(folder, monkeypatch, **options):
    here(monkeypatch)
    data = options.pop("data", None) or write(
        folder / "asked.parquet", question=QUESTIONS, documents=GIVEN, answer=ANSWERS, id=list(range(5))
    )
    given = {"columns": ["question", "id"], "documents": "documents", "answer": "answer", "dtype": "float64"}
    return hw.run(
        talker("gpt2"), data, folder / "out", tokenizer=speaker(), shard_rows=3, progress=False, **(given | options)
    )


def ask(number: int, **options) -> hw.AnswerExplainer:
    given = {"documents": GIVEN[number], "answer": ANSWERS[number], "tokenizer": speaker()} | options
    return hw.explain_answer(talker("gpt2"), QUESTIONS[number], **given)


def test_every_row_has_its_answer_its_sentences_and_their_sources(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch)
    rows = read_rows(tmp_path / "out")
    assert [row["id"] for row in rows] == [0, 1, 3, 4]
    assert [row["answer"].strip() for row in rows] == [ANSWERS[i] for i in (0, 1, 3, 4)]
    assert [row["input_answer"] for row in rows] == [ANSWERS[i] for i in (0, 1, 3, 4)]
    for row, number in zip(rows, (0, 1, 3, 4), strict=True):
        report = ask(number).report()
        assert [one["text"] for one in row["sentences"]] == [span.text for span in report.spans]
        for one, span, cited in zip(row["sentences"], report.spans, report.citations, strict=True):
            assert one["score"] == approx(span.score, abs=1e-9)
            assert dict(one["by_role"]) == approx(span.by_role(), abs=1e-9)
            assert [c["text"] for c in one["citations"]] == [c.text for c in cited]
            assert [c["share"] for c in one["citations"]] == approx([c.share for c in cited], abs=1e-9)
            assert [c["drop"] for c in one["citations"]] == approx([c.drop for c in cited], abs=1e-9)
        assert row["score"] == approx(ask(number).whole().score, abs=1e-9)
        assert row["closed"]
        assert dict(row["without"]) == approx({one.name: one.drop for one in report.without}, abs=1e-9)
    bad = parquet.read_table(tmp_path / "out" / "errors.parquet").to_pylist()
    assert [(row["row_id"], row["reason"]) for row in bad] == [(2, "empty")]


def test_the_model_answers_where_no_answer_is_given_and_the_run_can_be_opened(tmp_path, monkeypatch):
    found = run(tmp_path, monkeypatch, answer=None, max_new_tokens=3)
    rows = read_rows(tmp_path / "out")
    assert [row["answer"] for row in rows] == [ask(i, answer=None, max_new_tokens=3).text for i in (0, 1, 3, 4)]
    first = next(found.explanations())
    assert first.ledger.closed
    assert float(first.relevance.sum()) == approx(first.ledger.inputs, abs=1e-9)
    assert found.manifest.asked["max_new_tokens"] == 3
    again = run(tmp_path, monkeypatch, answer=None, max_new_tokens=3)  # nothing is left to be done
    assert again.manifest.counts == found.manifest.counts


def test_a_run_over_texts_is_described_as_before():
    from headwater.jobs.settings import JobSettings

    assert not {"documents", "answer", "max_new_tokens"} & set(JobSettings().to_dict())


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (["a", "b"], ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('{"one": "a"}', {"one": "a"}),
        ({"one": "a", "two": None}, {"one": "a"}),
        ("one text", ["one text"]),
        ("[1] is a note", ["[1] is a note"]),
        ("", []),
        (None, []),
    ],
)
def test_documents_of_a_cell(cell, found):
    assert read_row_documents({"d": cell}, ["d"]) == found


def test_several_columns_are_a_document_each_and_other_cells_are_refused(tmp_path, monkeypatch):
    assert read_row_documents({"a": "x", "b": None}, ["a", "b"]) == {"a": "x", "b": ""}
    data = tmp_path / "asked.jsonl"
    lines = [{"question": "it was", "documents": [1]}, {"question": "it was", "documents": ["good film " * 400]}]
    lines.append({"question": "it was", "documents": {"x": "London."}})
    data.write_text("\n".join(map(json.dumps, lines)))
    found = run(tmp_path, monkeypatch, data=data, columns=["question"], answer=None, max_new_tokens=2)
    bad = parquet.read_table(tmp_path / "out" / "errors.parquet").to_pylist()
    assert [row["reason"] for row in bad] == ["not text", "too long"]
    assert "longest document" in bad[1]["message"]
    assert found.manifest.counts.rows == 1
    cells = [("London.", "Paris."), ("London.", ["Paris."]), (["London."], None)]
    data.write_text("\n".join(json.dumps({"question": "it was", "a": a, "b": b, "c": "x"}) for a, b in cells))
    given = {"columns": ["question"], "documents": ["a", "c"], "answer": "b", "max_new_tokens": 2}
    assert run(tmp_path / "more", monkeypatch, data=data, **given).manifest.counts.errors == 2
    bad = parquet.read_table(tmp_path / "more" / "out" / "errors.parquet").to_pylist()
    assert [row["message"][:15] for row in bad] == ["in the column '"] * 2


@pytest.mark.parametrize(
    "options",
    [{"truncate": True}, {"target": "a"}, {"documents": "question"}, {"max_new_tokens": 0}, {"output": "probability"}],
)
def test_what_an_answer_cannot_have_is_refused(tmp_path, monkeypatch, options):
    with pytest.raises((UsageError, ValueError)):
        run(tmp_path, monkeypatch, **options)


def test_several_questions_give_a_list():
    model = talker("gpt2")
    found = hw.explain_answer(model, QUESTIONS[:2], tokenizer=speaker(), documents=DOCUMENTS, answer=ANSWERS[:2])
    assert [one.text.strip() for one in found] == ANSWERS[:2]
    each = hw.explain_answer(
        model, QUESTIONS[:2], tokenizer=speaker(), documents=[DOCUMENTS, {"x": "London."}], answer="Paris."
    )
    assert [one.documents for one in each] == [("Document 1", "Document 2"), ("x",)]
    assert each[0].whole().score == approx(ask(0, answer="Paris.").whole().score)
    for wrong in ({"documents": [["a"]]}, {"answer": ["a"]}, {"prompt": "a"}):
        with pytest.raises(UsageError):
            hw.explain_answer(model, QUESTIONS[:2], tokenizer=speaker(), **wrong)


@pytest.mark.slow
def test_the_command_takes_questions_and_documents_from_columns(tmp_path):
    model = deepcopy(talker("gpt2"))
    model.save_pretrained(tmp_path / "model")
    speaker().save_pretrained(tmp_path / "model")
    data = tmp_path / "asked.csv"
    data.write_text("question,one,two\nthe capital is,Paris is good.,London.\n")
    given = ["run", "--data", str(data), "--out", str(tmp_path / "out"), "-m", str(tmp_path / "model"), "--columns"]
    found = CliRunner().invoke(app, [*given, "question", "--documents", "one,two", "--max-new-tokens", "3"])
    assert found.exit_code == 0, found.output
    (row,) = read_rows(tmp_path / "out")
    assert dict(row["without"]).keys() == {"one", "two"}
    assert row["sentences"]
