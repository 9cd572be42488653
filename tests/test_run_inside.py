"""`run` with `inside=`: heads, neurons, layers and modules in columns, equal to `explain`, also after a kill."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import tiny
import torch
from jobs_here import contents, here, made, results, run, sentences, write
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.jobs import writing
from headwater.jobs.explaining import Explainer
from headwater.store.inside_columns import inside_columns

ALL = ("heads", "neurons", "layers")
TEXTS = sentences(30)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "in.parquet", text=TEXTS, heads=list(range(30)))


def explain(text: str, **options) -> hw.Explanation:
    return hw.explain(tiny.tiny("bert"), text, tokenizer=tiny.tokenizer(), method="lrp", inside=[*ALL], **options)


def test_columns_hold_what_explain_gives(data, tmp_path, monkeypatch):
    here(monkeypatch)
    stored = run(data, tmp_path / "out", model=tiny.tiny("bert"), method="lrp", inside=ALL)
    rows = results(tmp_path / "out").to_pylist()
    assert len(rows) == len(TEXTS)
    for row, found in zip(rows, stored.explanations(), strict=True):
        alone = explain(row["text"]).inside
        for kind in ALL:
            torch.testing.assert_close(getattr(found.inside, kind), getattr(alone, kind), rtol=1e-9, atol=1e-10)
            by_token = getattr(alone.positions, kind)
            cells = [cell for cell in row[kind] if cell["layer"] is not None]
            for cell, amounts in zip(cells, by_token.reshape(len(by_token), len(row["tokens"]), -1), strict=True):
                assert cell["at_peaks"] == pytest.approx([float(amounts[p, i]) for i, p in enumerate(cell["peaks"])])
                assert [abs(one) for one in cell["at_peaks"]] == pytest.approx(amounts.abs().amax(0).tolist())
                whole = cell["nodes"] + cell["by_passing"] + cell["sources"] + row["readout"]
                assert whole == pytest.approx(row["score"], abs=1e-9)
                assert cell["closed"]
        assert str(found.inside.ledger("layer 1")) == str(alone.ledger("layer 1"))
        assert [node.name for node in found.inside.top(5)] == [node.name for node in alone.top(5)]


def test_modules_have_a_column_and_a_column_of_the_input_is_renamed(data, tmp_path, monkeypatch):
    here(monkeypatch)
    stored = run(data, tmp_path / "out", columns=["text", "heads"], inside=["heads", "*.intermediate"])
    row = stored.row(3)
    assert row["input_heads"] == 3
    assert [cell["module"] for cell in row["modules"]] == [f"bert.encoder.layer.{i}.intermediate" for i in (0, 1)]
    assert stored.explanation(3).inside["*.1.intermediate"].shape == (1,)
    plain = run(data, tmp_path / "plain", columns=["text", "heads"])
    assert plain.row(3)["heads"] == 3
    assert plain.explanation(3).inside is None
    assert inside_columns(["*.mlp", "layers", "heads"]) == ("heads", "layers", "modules")


def test_a_run_that_stopped_goes_on_and_another_part_is_another_job(data, tmp_path, monkeypatch):
    here(monkeypatch)
    whole = tmp_path / "whole"
    run(data, whole, shard_rows=10, inside="heads")
    explain_chunk, calls = Explainer.chunk, []

    def fail_at_the_second(self, chunk, *rest):
        calls.append(chunk)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return explain_chunk(self, chunk, *rest)

    monkeypatch.setattr(Explainer, "chunk", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "out", shard_rows=10, inside="heads")
    assert len(list((tmp_path / "out" / "shards").iterdir())) == 1
    with pytest.raises(UsageError, match="inside was"):
        run(data, tmp_path / "out", shard_rows=10, inside="layers")
    run(data, tmp_path / "out", shard_rows=10, inside="heads")
    assert contents(tmp_path / "out") == contents(whole)


def test_a_last_chunk_that_fills_a_group_of_rows_ends_its_shard(data, tmp_path, monkeypatch):
    here(monkeypatch)
    monkeypatch.setattr(writing, "GROUP_BYTES", 1)
    stored = run(data, tmp_path / "out", inside="neurons")
    assert stored.finished
    assert len(list(stored.rows(["row_id"]))) == len(TEXTS)


@pytest.mark.slow
def test_worker_processes_write_the_same_bytes(data, tmp_path, monkeypatch):
    run(data, tmp_path / "workers", shard_rows=10, inside=ALL, workers=2, progress=False)
    here(monkeypatch)
    run(data, tmp_path / "here", shard_rows=10, inside=ALL)
    assert contents(tmp_path / "workers") == contents(tmp_path / "here")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"inside": "haeds"}, UnknownName, "heads"),
        ({"inside": []}, UsageError, "names no part"),
        ({"inside": "heads", "window": True}, UsageError, "truncate"),
        ({"inside": "heads", "answer": "heads"}, UsageError, "questions"),
        ({"inside": "heads", "method": "occlusion"}, NotApplicable, "rules"),
    ],
)
def test_what_cannot_be_noted_is_refused_before_anything_is_written(data, tmp_path, monkeypatch, options, error, said):
    here(monkeypatch)
    with pytest.raises(error, match=said):
        run(data, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_command_takes_names_in_one_text(tmp_path, monkeypatch):
    here(monkeypatch)
    write(tmp_path / "in.parquet", text=["a gripping film", "a boring film"])
    found = CliRunner().invoke(
        app,
        ["run", "--data", str(tmp_path / "in.parquet"), "--out", str(tmp_path / "out"), "--inside", "heads,layers"],
    )
    assert found.exit_code == 0, found.output
    row = hw.open_run(tmp_path / "out").row(0)
    assert [len(cell["relevance"]) for cell in row["heads"]] == [6] * 4
    assert len(row["layers"]) == 4


def test_a_question_in_sql(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    stored = made(tmp_path / "out", {"text": ["a gripping film", "a boring film"]}, inside="heads")
    query = f"""
        SELECT cell.layer, head - 1 AS head, sum(abs(cell.relevance[head])) AS size
        FROM (SELECT unnest(heads) AS cell FROM '{tmp_path}/out/shards/*.parquet'), range(1, 7) AS r(head)
        GROUP BY ALL ORDER BY size DESC LIMIT 1
    """
    ((layer, head, size),) = duckdb.sql(query).fetchall()
    heads = sum(e.inside.heads.abs() for e in stored.explanations())
    assert (layer, head) == divmod(int(heads.argmax()), 6)
    assert size == pytest.approx(float(heads.max()), rel=1e-5)
