"""A whole dataset, explained into shards: what is written, what goes on, what is refused. Without processes."""

from __future__ import annotations

import copy
import errno
import fcntl
import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import tiny
import torch
from jobs_here import Picky, contents, here, results, retold, run, sentences, small_files, write
from pyarrow import parquet
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.defaults import TEXT_METHOD
from headwater.engine import run_plans, session
from headwater.errors import BadRow, DataError, JobStopped, ModelError, UnknownName, UsageError
from headwater.inputs.batch import group_by_length
from headwater.jobs import place, writing
from headwater.jobs.explaining import Explainer
from headwater.jobs.failures import RetryState
from headwater.jobs.planning import Layout
from headwater.jobs.reading.rows import EMPTY, FAILED
from headwater.jobs.reading.sources import find_sources
from headwater.jobs.settings import JobSettings
from headwater.store import manifest as manifests

TEXTS = sentences(100)


@pytest.fixture
def engine(monkeypatch):
    return here(monkeypatch)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "in.parquet", text=TEXTS, label=[i % 2 for i in range(len(TEXTS))])


def test_every_row_is_explained_as_explain_does(engine, data, tmp_path):
    stored = run(data, tmp_path / "out", columns=["text", "label"])
    assert len(stored) == len(TEXTS)
    assert stored.finished
    bert, tokenizer = tiny.tiny("bert", torch.float32), tiny.tokenizer()
    for row, (text, found) in enumerate(zip(TEXTS, stored.explanations(), strict=True)):
        alone = hw.explain(bert, text, tokenizer=tokenizer)
        assert found.tokens == alone.tokens
        assert found.text == text
        torch.testing.assert_close(found.relevance, alone.relevance, rtol=1e-4, atol=1e-5)
        assert found.prediction == alone.prediction
        assert found.ledger.closed
        same = {"offsets", "word_ids", "sequence_ids", "special", "target", "method", "output", "at", "provenance"}
        assert {name: getattr(found, name) for name in same} == {name: getattr(alone, name) for name in same}
        assert dict(found.rules_met) == dict(alone.rules_met)
        assert stored.row(row)["label"] == row % 2


def test_an_explanation_comes_back_as_it_was_written(engine, data, tmp_path):
    """To the last digit, in double precision too."""
    stored = run(data, tmp_path / "out", model=tiny.tiny("bert"), batch_tokens=1, target="LABEL_0 - LABEL_1")
    found = stored.explanation(17)
    alone = hw.explain(tiny.tiny("bert"), TEXTS[17], tokenizer=tiny.tokenizer(), target="LABEL_0 - LABEL_1")
    assert found.to_dict() == alone.to_dict()
    assert found.words() == alone.words()
    assert stored.explanation(len(TEXTS)) is None


def test_batches_are_bounded_by_tokens_and_hold_rows_of_like_length():
    lengths = [3, 9, 4, 20, 3, 9, 50]
    groups = group_by_length(lengths, budget=20)
    assert sorted(i for group in groups for i in group) == list(range(7))
    assert [[lengths[i] for i in group] for group in groups] == [[50], [20], [9, 9], [4, 3, 3]]
    assert group_by_length(lengths, budget=20, most=1) == [[6], [3], [1], [5], [2], [0], [4]]


def test_shards_cover_the_input_once():
    layout = Layout(rows=2100, shard_rows=1000)
    chunks = list(layout.left(done=()))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(2100))
    assert {chunk.shard for chunk in layout.left(done=[1])} == {0, 2}
    assert all(chunk.parts == sum(other.shard == chunk.shard for other in chunks) for chunk in chunks)


@pytest.mark.slow
def test_what_order_chunks_come_in_does_not_matter(engine, data, tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.jobs.planning.CHUNK_ROWS", 7)
    run(data, tmp_path / "straight")
    monkeypatch.setattr(engine, "order", staticmethod(lambda chunks: sorted(chunks, key=lambda c: -c.start)))
    run(data, tmp_path / "reversed")
    assert contents(tmp_path / "straight") == contents(tmp_path / "reversed")


def test_a_run_goes_on_where_it_stopped(engine, data, tmp_path, monkeypatch):
    run(data, tmp_path / "whole")
    add = writing.Writer.add

    def interrupted(self, finished):
        if finished.chunk.shard == 1:
            raise KeyboardInterrupt
        add(self, finished)

    monkeypatch.setattr(writing.Writer, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "out")
    assert hw.open_run(tmp_path / "out").manifest.state == "stopped"
    assert len(hw.open_run(tmp_path / "out")) == 40
    monkeypatch.setattr(writing.Writer, "add", add)
    engine.chunks.clear()
    again = run(data, tmp_path / "out")
    assert again.finished
    assert {chunk.shard for chunk in engine.chunks} == {1, 2}
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert [session["rows"] for session in again.manifest.sessions] == [40, 60]
    engine.chunks.clear()
    assert run(data, tmp_path / "out").finished
    assert engine.chunks == []


def test_killed_between_the_shard_and_the_manifest_the_shard_is_taken_as_done(engine, data, tmp_path, monkeypatch):
    """And one that the manifest calls done, but is damaged or gone, is made again."""
    run(data, tmp_path / "whole")
    out = tmp_path / "out"
    shutil.copytree(tmp_path / "whole", out)
    retold(out, lambda said: said.update(state="running", rows=40, shards={**said["shards"], "done": [[0, 0]]}))
    manifests.shard_path(out, 1).unlink()
    manifests.shard_path(out, 2).write_bytes(manifests.shard_path(out, 2).read_bytes()[:-20])
    (out / ".work" / "shard-000001.unfinished").write_bytes(b"half")
    engine.chunks.clear()
    stored = run(data, out)
    assert {chunk.shard for chunk in engine.chunks} == {1, 2}
    assert len(stored) == len(TEXTS)
    assert contents(out) == contents(tmp_path / "whole")
    assert sorted(file.name for file in (out / ".work").iterdir()) == ["input.json", "lock"]


def test_bad_rows_outlive_a_shard_that_is_made_again(engine, tmp_path):
    """Also if it is a finished run of which one is lost, and if what was known of its bad rows is lost."""
    data = write(tmp_path / "in.parquet", text=["", *TEXTS, ""])
    run(data, tmp_path / "out")
    for lost in (manifests.shard_path(tmp_path / "out", 1), writing.errors_path(tmp_path / "out", 2)):
        lost.unlink()
        engine.chunks.clear()
        assert [e["row_id"] for e in run(data, tmp_path / "out").errors()] == [0, 101]
        assert len(engine.chunks) == 1


def test_input_that_changes_under_the_job_is_noticed(engine, data, tmp_path, monkeypatch):
    add = writing.Writer.add

    def meddling(self, finished):
        add(self, finished)
        write(data, text=["other", *TEXTS[1:]], label=[0] * len(TEXTS))

    monkeypatch.setattr(writing.Writer, "add", meddling)
    with pytest.raises(JobStopped, match=r"in.parquet was changed while the job read it"):
        run(data, tmp_path / "out")
    assert not hw.open_run(tmp_path / "out").finished


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"method": "gi"}, f"method was {TEXT_METHOD}, is gi"),
        ({"columns": ["text", "label"]}, "columns was text, is text, label"),
        ({"model": "other"}, "the model's weights was .*, is "),
        ({"target": 1}, "target was None, is 1"),
        ({"shard_rows": 20}, "shard_rows was 40, is 20"),
        ({"data": "other"}, "in.parquet has changed since"),
    ],
)
def test_another_job_is_refused(engine, data, tmp_path, changed, said):
    run(data, tmp_path / "out")
    before = contents(tmp_path / "out")
    if changed.get("model"):
        changed = {"model": tiny.randomised(tiny.BUILD["bert"]().float(), seed=5)}
    if changed.get("data"):
        write(data, text=[*TEXTS[:-1], "good"], label=[0] * len(TEXTS))
        changed = {}
    with pytest.raises(UsageError, match=f"holds another job: .*{said}"):
        run(data, tmp_path / "out", **changed)
    assert contents(tmp_path / "out") == before


def test_input_that_was_only_copied_or_touched_is_the_same(engine, data, tmp_path):
    run(data, tmp_path / "out")
    engine.chunks.clear()
    (tmp_path / "elsewhere").mkdir()
    run(shutil.move(data, tmp_path / "elsewhere" / "moved.parquet"), tmp_path / "out")
    assert engine.chunks == []


def test_a_tokenizer_that_was_used_is_the_same(engine, data, tmp_path):
    """It remembers how it was last told to cut."""
    run(data, tmp_path / "out")
    used = copy.deepcopy(tiny.tokenizer())
    used("good " * 9, truncation=True, max_length=4)
    assert run(data, tmp_path / "out", tokenizer=used).finished


def test_a_directory_that_is_somebody_elses_is_left_alone(engine, data, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        run(data, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.parquet", "thesis.txt"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"name": "web app"}')
    with pytest.raises(DataError, match="is not of a run of headwater"):
        run(data, tmp_path / "other")


def test_what_is_refused_leaves_no_directory(engine, data, tmp_path):
    with pytest.raises(DataError, match="no column 'review'; it has 'text', 'label'"):
        run(data, tmp_path / "out", columns=["review"])
    with pytest.raises(UnknownName, match="Did you mean 'lrp'"):
        run(data, tmp_path / "out", method="lpr")
    with pytest.raises(UnknownName, match="no class called 'joy'"):
        run(data, tmp_path / "out", target="joy")
    with pytest.raises(UnknownName, match=r"no engine called 'rey'. Did you mean 'ray'"):
        run(data, tmp_path / "out", engine="rey")
    with pytest.raises(UsageError, match="engine='ray'"):
        run(data, tmp_path / "out", address="auto")
    assert not (tmp_path / "out").exists()


def test_what_concerns_every_row_is_refused_before_any(engine, data, tmp_path):
    with pytest.raises(ModelError, match="the model fails on these texts: never"):
        run(data, tmp_path / "out", model=Never(batch_first=True).eval())
    assert engine.chunks == []
    assert not (tmp_path / "out").exists()


class Never(tiny.TorchEncoder):
    def forward(self, input_ids, attention_mask=None, **_):
        raise ValueError("never")


def test_two_jobs_do_not_write_to_one_directory(engine, data, tmp_path):
    run(data, tmp_path / "out")
    with (tmp_path / "out" / ".work" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"is being written by process .* Wait for it"):
            run(data, tmp_path / "out")
    assert run(data, tmp_path / "out").finished


def test_no_permission_is_said(engine, data, tmp_path):
    """Root may write anywhere, so that another user is asked for where there is one."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if can_write(closed):
        (tmp_path / "file").write_text("")
        closed = tmp_path / "file"
    with pytest.raises(UsageError, match="cannot be written"):
        run(data, closed / "out")


def can_write(directory: Path) -> bool:
    try:
        (directory / "probe").write_text("")
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["shard", "manifest", "room"])
def test_a_full_disk_ends_the_job_in_order(engine, data, tmp_path, monkeypatch, failing):
    run(data, tmp_path / "whole")
    full = OSError(errno.ENOSPC, "No space left on device")
    calls = []

    def out_of_space(*_):
        calls.append(1)
        if len(calls) > 1:
            raise full

    with monkeypatch.context() as patch:
        if failing == "shard":
            patch.setattr(writing, "flush_to_disk", out_of_space)
        elif failing == "manifest":
            write_manifest = place.write_manifest
            patch.setattr(place, "write_manifest", lambda *a: (out_of_space(), write_manifest(*a)))
        else:
            usage = shutil.disk_usage(tmp_path)
            patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
        with pytest.raises(JobStopped, match=r"the disk is full .*run the same command again"):
            run(data, tmp_path / "out")
    assert run(data, tmp_path / "out").finished
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_file_that_may_not_grow_is_a_full_disk(engine, data, tmp_path):
    """The write itself fails, no stand-in for it."""
    with small_files(), pytest.raises(JobStopped, match="the disk is full"):
        run(data, tmp_path / "out", shard_rows=100)
    assert not list((tmp_path / "out" / "shards").iterdir())
    assert run(data, tmp_path / "out", shard_rows=100).finished


def test_bad_rows_are_told_apart_and_the_others_are_explained(engine, tmp_path):
    texts = [*TEXTS[:50], "", "   ", None, "good " * 200, "\x00\x01", *TEXTS[50:]]
    stored = run(write(tmp_path / "in.parquet", text=texts), tmp_path / "out")
    assert stored.finished
    assert {e["row_id"]: e["reason"] for e in stored.errors()} == {
        **dict.fromkeys((50, 51, 52, 54), "empty"),
        53: "too long",
    }
    told = next(e for e in stored.errors() if e["row_id"] == 53)
    assert told["message"].startswith("the text has 202 tokens, 64 at most")
    assert (told["file"], told["row"]) == (str(tmp_path / "in.parquet"), 53)
    assert told["text"].startswith("good good")
    assert [row["row_id"] for row in stored.rows(["row_id"])] == [*range(50), *range(55, 105)]
    assert len(stored) == 100
    assert stored.manifest.counts.errors == 5


def test_long_texts_are_cut_or_explained_in_windows(engine, tmp_path):
    data = write(tmp_path / "in.parquet", text=["good " * 200, "bad"])
    cut = run(data, tmp_path / "cut", truncate=True)
    assert [len(row["tokens"]) for row in cut.rows()] == [64, 3]
    windows = run(data, tmp_path / "windows", window=True)
    assert [len(row["tokens"]) for row in windows.rows()] == [202, 3]
    assert [row["windows"] for row in windows.rows()] == [4, 1]
    alone = hw.explain(tiny.tiny("bert", torch.float32), "good " * 200, tokenizer=tiny.tokenizer(), window=True)
    torch.testing.assert_close(windows.explanation(0).relevance, alone.relevance, rtol=1e-4, atol=1e-5)
    short = run(data, tmp_path / "short", max_tokens=2)
    assert [e["reason"] for e in short.errors()] == ["too long", "too long"]


def test_a_batch_that_fails_loses_only_the_row_at_fault(engine, tmp_path):
    stored = run(write(tmp_path / "in.parquet", text=[*TEXTS, "mary"]), tmp_path / "out", model=Touchy())
    assert [(e["row_id"], e["reason"], e["message"]) for e in stored.errors()] == [(100, "failed", "not mary")]
    assert len(stored) == 100


class Touchy(tiny.TorchEncoder):
    """Fails on a word, with whatever stands beside it in the batch."""

    def __init__(self):
        super().__init__(batch_first=True)
        tiny.randomised(self)

    def forward(self, input_ids, attention_mask=None, **_):
        if (input_ids == tiny.tokenizer().convert_tokens_to_ids("mary")).any():
            raise ValueError("not mary")
        return super().forward(input_ids, attention_mask)


def test_strict_stops_at_the_first_bad_row(engine, tmp_path):
    data = write(tmp_path / "in.parquet", text=[*TEXTS, ""])
    with pytest.raises(BadRow, match=r"row 100 of .*in.parquet: the text is empty.*\(empty\)"):
        run(data, tmp_path / "out", strict=True)
    assert run(data, tmp_path / "out").finished
    with pytest.raises(BadRow, match="holds 1 bad rows already"):
        run(data, tmp_path / "out", strict=True)


def test_columns_that_go_along_keep_their_type_and_ours_their_name(engine, tmp_path):
    data = write(tmp_path / "in.parquet", text=TEXTS[:3], score=[0.5, None, 2.0], tokens=["x", "y", "z"])
    stored = run(data, tmp_path / "out", columns=["text", "score", "tokens"])
    assert [(row["input_score"], row["input_tokens"]) for row in stored.rows()] == [(0.5, "x"), (None, "y"), (2.0, "z")]
    assert stored.manifest.columns == {"text": "text", "score": "input_score", "tokens": "input_tokens"}
    assert stored.carried("score") == "input_score"
    with pytest.raises(UsageError, match=r"without the column 'label'.*--columns text,score,tokens,label"):
        stored.carried("label")


def test_a_run_can_be_read_from_any_row_on(engine, data, tmp_path):
    stored = run(data, tmp_path / "out")
    assert [row["row_id"] for row in stored.rows(start=77)] == list(range(77, 100))
    assert next(stored.rows(["text"], start=5)) == {"text": TEXTS[5]}
    assert stored.table(["score"]).num_rows == 100
    with pytest.raises(DataError, match=r"holds no manifest.json; it is written by `headwater run"):
        hw.open_run(tmp_path)


def test_a_column_that_a_run_has_not_is_refused(engine, data, tmp_path):
    """pyarrow passes over such a name: rows came without it."""
    stored = run(data, tmp_path / "out")
    asked = (lambda c: next(stored.rows(c)), lambda c: next(stored.batches(c)), stored.table)
    for ask in (*asked, lambda c: stored.rows_by_id([3], c)):
        with pytest.raises(UsageError, match=r"no column of this run called 'relevanc'. Did you mean 'relevance'"):
            ask(["text", "relevanc"])


@pytest.fixture
def cli():
    return lambda *words: CliRunner().invoke(app, ["run", *map(str, words)])


def test_the_command_says_what_it_did_and_exits_by_it(engine, data, tmp_path, cli):
    done = cli("--data", data, "--out", tmp_path / "out", "--columns", "text,label")
    assert done.exit_code == 0, done.output
    assert "100 rows and" in done.stdout
    assert "every ledger is closed" in done.stdout
    none = write(tmp_path / "none.parquet", text=["", ""])
    done = cli("--data", none, "--out", tmp_path / "none")
    assert "no row was explained; rows that could not be explained: 2" in done.stdout
    bad = write(tmp_path / "bad.parquet", text=["good", ""])
    done = cli("--data", bad, "--out", tmp_path / "bad", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["errors"] == 1
    assert "errors.parquet says why" in done.stderr
    assert parquet.read_table(tmp_path / "bad" / "errors.parquet").num_rows == 1
    assert cli("--data", bad, "--out", tmp_path / "strict", "--strict").exit_code == 3
    refused = cli("--data", tmp_path / "none.csv", "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "there is no file" in refused.stderr


def test_stopping_the_command_says_how_to_go_on(engine, data, tmp_path, cli, monkeypatch):
    def stop(self, finished):
        raise KeyboardInterrupt

    monkeypatch.setattr(writing.Writer, "add", stop)
    done = cli("--data", data, "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "the same command goes on from there" in done.stderr


def test_all_rows_at_once(engine, data, tmp_path):
    run(data, tmp_path / "out")
    assert results(tmp_path / "out").column("row_id").to_pylist() == list(range(100))


def test_a_shard_without_a_good_row_keeps_its_columns(engine, tmp_path):
    """Its rows are all bad, and what goes along has its type all the same."""
    data = write(
        tmp_path / "in.parquet", text=["", " ", None, "the cat"], label=[1, 2, 3, 4], when=["a", "b", "c", "d"]
    )
    stored = run(data, tmp_path / "out", columns=["text", "label", "when"], shard_rows=2)
    assert [row["row_id"] for row in stored.errors()] == [0, 1, 2]
    empty, other = (parquet.read_schema(file) for file in stored.shard_files())
    assert empty.equals(other)
    assert stored.table(["label", "when"]).to_pylist() == [{"label": 4, "when": "d"}]


def test_what_a_model_raises_is_a_bad_row(engine, tmp_path):
    data = write(tmp_path / "in.parquet", text=["the cat", "mary", "the dog"])
    stored = run(data, tmp_path / "out", model=Picky())
    assert [(row["row_id"], row["reason"], row["message"]) for row in stored.errors()] == [
        (1, "failed", "KeyError: 'mary'")
    ]
    with pytest.raises(ModelError, match="fails on these texts"):
        run(write(tmp_path / "bad.parquet", text=["mary"]), tmp_path / "bad", model=Picky())


QUERY = """
SELECT token, count(*) AS n, sum(relevance) AS total
FROM (SELECT unnest(tokens) AS token, unnest(relevance) AS relevance FROM '{}/shards/*.parquet')
GROUP BY token ORDER BY token
"""


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:x", ""])
def test_a_device_that_is_none_is_refused_before_anything_is_written(data, tmp_path, device):
    with pytest.raises(UsageError, match="cpu"):
        run(data, tmp_path / "out", device=device)
    assert not (tmp_path / "out").exists()


def by_pandas(out):
    import pandas

    rows = pandas.read_parquet(out / "shards").explode(["tokens", "relevance"]).astype({"relevance": float})
    return rows.groupby("tokens").relevance.sum().to_dict()


def by_polars(out):
    import polars

    rows = polars.read_parquet(out / "shards" / "*.parquet").explode("tokens", "relevance")
    return dict(rows.group_by("tokens").agg(polars.col("relevance").sum()).iter_rows())


def by_duckdb(out):
    import duckdb

    return {token: total for token, _, total in duckdb.sql(QUERY.format(out)).fetchall()}


@pytest.mark.slow
@pytest.mark.parametrize("read", [by_pandas, by_polars, by_duckdb], ids=lambda read: read.__name__)
def test_others_read_it_as_it_is(engine, data, tmp_path, read):
    """They are installed with the tools of development: a promise of the docs is not skipped."""
    run(data, tmp_path / "out", columns=["text", "label"])
    expected = Counter()
    for row in hw.open_run(tmp_path / "out").rows(["tokens", "relevance"]):
        for token, relevance in zip(row["tokens"], row["relevance"], strict=True):
            expected[token] += relevance
    assert read(tmp_path / "out") == pytest.approx(expected, abs=1e-4)  # polars sums in float32


class Choosy:
    """A tokenizer that counts how often it is asked, and fails on a word."""

    is_fast, questions = True, 0

    def __call__(self, texts, **options):
        type(self).questions += 1
        if any("mary" in text for text in ([texts] if isinstance(texts, str) else texts)):
            raise ValueError("mary is not to be read")
        return tiny.tokenizer()(texts, **options)

    def __getattr__(self, name):
        return getattr(tiny.tokenizer(), name)


@pytest.mark.parametrize(("word", "failed", "questions"), [("film", {2: EMPTY}, 1), ("mary", {1: FAILED, 2: EMPTY}, 4)])
def test_a_tokenizer_is_asked_once_a_chunk_and_where_it_fails_once_a_text(tmp_path, word, failed, questions):
    explainer = explainer_of(write(tmp_path / "in.parquet", text=["a good film", f"a {word}", " ", "bad"]), Choosy())
    texts = explainer.reading.read(0, 4).texts
    Choosy.questions = 0
    rows, bad = explainer.usable(0, texts, RetryState())
    assert {i: found.reason for i, found in bad.items()} == failed
    assert Choosy.questions == questions
    plain = explainer_of(tmp_path / "in.parquet", tiny.tokenizer())
    alone = [row for i, text in enumerate(texts) for row in plain.usable(i, [text], RetryState())[0] if i not in failed]
    assert rows == alone


def explainer_of(data, tokenizer):
    settings = JobSettings()
    return Explainer(tiny.tiny("bert", torch.float32), tokenizer, settings, find_sources(data, settings.columns))


def test_a_job_learns_of_its_model_until_it_is_closed(tmp_path):
    data = write(tmp_path / "in.parquet", text=["good " * n for n in (9, 2, 5, 4, 7)])
    settings = JobSettings(batch_tokens=1)
    model = copy.deepcopy(tiny.tiny("bert", torch.float32))
    with closing(Explainer(model, tiny.tokenizer(), settings, find_sources(data, settings.columns))) as explainer:
        rows, _ = explainer.usable(0, explainer.reading.read(0, 5).texts, RetryState())
        ways = [explainer.explain_batch([row])[0].provenance.way for row in rows]
        assert model in run_plans.PLANS
    assert ways == ["plain", "plain", "plan", "plan", "plan"]
    assert model not in run_plans.PLANS


def test_what_rows_are_tried_with_is_let_go_of(tmp_path, monkeypatch):
    here(monkeypatch)
    forgotten = []
    monkeypatch.setattr(session, "forget_plans", forgotten.append)
    model = copy.deepcopy(tiny.tiny("bert", torch.float32))
    hw.run(model, write(tmp_path / "in.parquet", text=TEXTS[:5]), tmp_path / "out", tokenizer=tiny.tokenizer())
    assert forgotten == [model]
