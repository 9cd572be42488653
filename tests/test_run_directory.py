"""A run's directory among files of others: what it touches, what it believes, what it says where it cannot go on."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from jobs_here import contents, here, retold, run, sentences, small_files, unsealed, write
from pyarrow import parquet
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import DamagedRun, DataError, JobStopped, UsageError
from headwater.jobs import locking
from headwater.store import aside
from headwater.store.manifest import read_manifest, shard_path
from headwater.store.ranges import Ranges

TEXTS = [*sentences(98), "", " "]
MANY = 10**11


@pytest.fixture
def engine(monkeypatch):
    return here(monkeypatch)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "in.parquet", text=TEXTS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three shards, two rows bad."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        here(patch)
        run(write(folder / "in.parquet", text=TEXTS), folder / "out")
    return folder / "out"


@pytest.fixture
def out(engine, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def test_a_file_is_no_place_for_a_run(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("text\ngood\n")
    with pytest.raises(UsageError, match=r"data.csv is a file: a run is a directory of files\. Name another --out"):
        hw.run("headwater/sentiment", file, file, progress=False)
    assert file.read_text() == "text\ngood\n"


@pytest.mark.parametrize("data", [pa.table({"text": ["good"]}), {"text": ["good"]}, 3, None, [["good"]]], ids=str)
def test_what_is_in_memory_is_no_file(data, tmp_path):
    """The names of its columns were taken for those of files, or it ended in a `TypeError`."""
    with pytest.raises(DataError, match=f"a run reads files, and was given a {type(data).__name__}: write it into"):
        hw.run("headwater/sentiment", data, tmp_path / "out", progress=False)


def test_files_of_others_are_left_alone(data, out):
    ours = contents(out)
    foreign = {
        out / "notes.txt": b"mine",
        out / "shards" / "notes.txt": b"mine",
        out / "shards" / "shard-mine.parquet": b"mine",
        out / "shards" / "shard-000007.parquet": shard_path(out, 0).read_bytes(),
        out / ".work" / "mine.unfinished": b"mine",
        out / ".work" / "errors-mine.parquet": b"mine",
    }
    for file, content in foreign.items():
        file.write_bytes(content)
    (out / "shards" / "folder").mkdir()
    shard_path(out, 1).unlink()
    stored = run(data, out)
    assert stored.finished
    assert len(stored) == 98
    assert {file: file.read_bytes() for file in foreign} == foreign
    assert (out / "shards" / "folder").is_dir()
    assert {name: shard_path(out, n).read_bytes() for n, name in enumerate(sorted(ours))} == ours


def test_nothing_is_reached_through_a_link(data, out, tmp_path):
    """A link at the place of a file is replaced; what it leads to stays."""
    ours = contents(out)
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("mine")
    linked = [
        shard_path(out, 1),
        out / "manifest.json",
        out / "errors.parquet",
        out / ".work" / "input.json",
        out / ".work" / "manifest.json",
        out / ".work" / "shard-000001.unfinished",
        out / ".work" / "errors-000002.parquet",
    ]
    for file in linked:
        file.unlink(missing_ok=True)
        file.symlink_to(thesis)
    assert run(data, out).finished
    assert thesis.read_text() == "mine"
    assert not [file for file in linked if file.is_symlink()]
    assert contents(out) == ours


@pytest.mark.parametrize("name", ["shards", ".work"])
def test_a_link_in_place_of_a_directory_is_refused(data, out, tmp_path, name):
    away = tmp_path / "elsewhere"
    shutil.move(out / name, away)
    (away / "thesis.txt").write_text("mine")
    (out / name).symlink_to(away)
    before = {file.name: file.read_bytes() for file in away.iterdir()}
    with pytest.raises(UsageError, match=f"{name} is a symbolic link"):
        run(data, out)
    assert {file.name: file.read_bytes() for file in away.iterdir()} == before


def test_a_link_in_place_of_the_lock_is_refused(data, out, tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("mine")
    (out / ".work" / "lock").unlink()
    (out / ".work" / "lock").symlink_to(thesis)
    with pytest.raises(UsageError, match="lock is a symbolic link"):
        run(data, out)
    assert thesis.read_text() == "mine"


def test_an_empty_directory_that_was_there_stays(engine, data, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="no column 'review'"):
        run(data, tmp_path / "out", columns=["review"])
    assert list((tmp_path / "out").iterdir()) == []


def test_a_job_that_ended_before_its_manifest_can_be_begun_again(engine, data, tmp_path, monkeypatch):
    """The directory is not empty, and holds no run: but what is there is ours."""

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headwater.jobs.place.write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            run(data, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert run(data, tmp_path / "out").finished


@pytest.mark.parametrize("name", ["shards/shard-000001.parquet", "errors.parquet"])
def test_a_directory_where_a_file_goes_is_named(data, out, name):
    (out / name).unlink()
    (out / name).mkdir()
    with pytest.raises(UsageError, match=f"{name} is a directory, where a file of the run goes. Move it away"):
        run(data, out)
    stored = hw.open_run(out)
    with pytest.raises(DamagedRun, match=f"{name} is missing or damaged"):
        list(stored.rows() if "shard" in name else stored.errors())
    (out / name).rmdir()
    assert run(data, out).finished


@pytest.mark.parametrize("name", ["shards", ".work"])
def test_a_file_where_a_directory_goes_is_named(data, out, name):
    shutil.rmtree(out / name)
    (out / name).write_text("mine")
    with pytest.raises(UsageError, match=f"{name} is a file, where a run has a directory"):
        run(data, out)
    assert (out / name).read_text() == "mine"


def flipped(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def test_a_flipped_bit_in_the_numbers_of_a_shard_is_named_by_every_way_to_read(engine, data, out):
    """In the middle of a page, where parquet itself notices nothing, or only by luck."""
    stored = hw.open_run(out)
    flipped(shard_path(out, 1), 8 * 5000)
    ways = [
        lambda: list(stored.rows(["score"])),
        lambda: list(stored.explanations()),
        lambda: stored.row(50),
        lambda: stored.table(["score"]),
        lambda: list(stored.batches(["score"])),
    ]
    for way in ways:
        with pytest.raises(DamagedRun, match=r"shard-000001.parquet is missing or damaged: its checksum"):
            way()
    assert stored.row(3)["row_id"] == 3
    assert run(data, out).finished
    assert {chunk.shard for chunk in engine.chunks} == {1}
    assert hw.open_run(out).table().num_rows == 98


def test_a_shard_is_read_once_for_its_checksum(out, monkeypatch):
    stored, read = hw.open_run(out), []
    digest = "headwater.store.seal.digest"
    given = hw.store.seal.digest
    monkeypatch.setattr(digest, lambda file, place: (read.append(file.name), given(file, place))[1])
    for row in (3, 50, 4, 51, 5):
        assert stored.row(row)["row_id"] == row
    assert len(read) == 2


def test_a_run_without_checksums_can_be_read_and_gone_on_with(engine, data, out):
    """Written before files had any: format 1."""
    texts = hw.open_run(out).table(["text", "score"])
    unsealed(out)
    assert hw.open_run(out).table(["text", "score"]).equals(texts)
    assert len(list(hw.open_run(out).errors())) == 2
    shard_path(out, 1).unlink()
    stored = run(data, out)
    assert stored.finished
    assert {chunk.shard for chunk in engine.chunks} == {1}
    assert stored.table(["text", "score"]).equals(texts)
    flipped(shard_path(out, 1), 8 * 5000)  # the one that was made since has a checksum
    with pytest.raises(DamagedRun, match="shard-000001"):
        list(hw.open_run(out).rows())


def test_a_manifest_is_written_anew_only_where_the_shards_are_of_the_same_job(engine, data, out):
    (out / "manifest.json").write_bytes(b"")
    with pytest.raises(DamagedRun, match=r"manifest.json is missing or damaged"):
        hw.open_run(out)
    with pytest.raises(UsageError, match=r"shard-000000.parquet is of another job"):
        run(data, out, method="gi")
    assert run(data, out).finished
    assert engine.chunks == []


def claims(said, done=None, each=40, **counts):
    said["input"]["rows"] = MANY
    said["shards"] = {"count": -(-MANY // each), "rows_each": each, "done": done or [[0, -(-MANY // each) - 1]]}
    said |= counts


@pytest.mark.parametrize("sealed", [True, False])
def test_a_manifest_that_claims_more_than_there_is_takes_no_memory(data, out, sealed):
    if not sealed:
        unsealed(out)
    retold(out, lambda said: claims(said, each=1, rows=MANY - 2))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"manifest.json .*claims 99,999,999,998 rows in 100,000,000,000 shards"):
            hw.open_run(out)
        with pytest.raises(DataError, match=r"claims 100,000,000,000 rows in shards of 1; the input has 100"):
            run(data, out)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"done": [[0, MANY]]}, "are no ranges below"),
        ({"done": [[0, 2], [1, 3]], "rows": 98}, "are no ranges below"),
        ({"done": [[2, 0]]}, "are no ranges below"),
        ({"done": [[0, 1.5]]}, "is no whole number"),
        ({"each": 0}, "is no whole number"),
        ({"rows": -1}, "is no whole number"),
        ({"rows": 98}, "claims 98 rows and 2 errors in 2,500,000,000 shards"),
    ],
)
def test_claims_that_cannot_be_are_refused(out, said, why):
    counts = {name: said[name] for name in said if name not in ("done", "each")}
    if said.get("each") == 0:
        retold(out, lambda told: told["shards"].update(rows_each=0))
    else:
        retold(out, lambda told: claims(told, said.get("done"), **counts))
    with pytest.raises(DataError, match=rf"manifest.json is not as a run leaves it: .*{why}"):
        hw.open_run(out)


def test_ranges_are_the_numbers_they_are_made_of():
    made = Ranges()
    for number in (5, 0, 2, 1, 7, 6):
        made = made.with_number(number)
    assert made.spans == ((0, 2), (5, 7))
    assert made == Ranges.of([7, 0, 1, 2, 5, 6])
    assert list(made) == [0, 1, 2, 5, 6, 7]
    assert len(made) == 6
    assert [n in made for n in (0, 2, 3, 5, 8)] == [True, True, False, True, False]


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_input_of_the_same_size_and_time_is_noticed(engine, tmp_path, name):
    texts = ["a good film", "a dull film"]
    data = tmp_path / name
    written(data, texts)
    run(data, tmp_path / "out")
    before = data.stat()
    written(data, [texts[0], "a fine film"])
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (data.stat().st_size, data.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(UsageError, match=f"holds another job: the input .*{name} has changed since"):
        run(data, tmp_path / "out")


def written(path, texts):
    if path.suffix == ".parquet":
        parquet.write_table(pa.table({"text": texts}), path, compression=None)
    elif path.suffix == ".csv":
        path.write_text("\n".join(["text", *texts, ""]))
    else:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_input_that_is_edited_under_the_job_to_the_same_size_and_time_is_noticed(engine, tmp_path, monkeypatch):
    data = tmp_path / "in.csv"
    written(data, ["a good film", "a dull film"])
    meddle(monkeypatch, lambda: written(data, ["a good film", "a fine film"]), data)
    with pytest.raises(JobStopped, match=r"in.csv was changed while the job read it"):
        run(data, tmp_path / "out")


def test_input_that_is_only_touched_under_the_job_is_the_same(engine, data, tmp_path, monkeypatch):
    meddle(monkeypatch, lambda: data.chmod(0o600), data)
    assert run(data, tmp_path / "out").finished
    meddle(monkeypatch, data.touch, tmp_path / "other")
    assert run(data, tmp_path / "again").finished


def meddle(monkeypatch, change, kept):
    """When a shard is written, something happens to the input; its time is set back."""
    from headwater.jobs import writing

    add = writing.Writer.add

    def meddling(self, finished):
        before = kept.stat() if kept.exists() else None
        change()
        if before is not None:
            os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
        add(self, finished)

    monkeypatch.setattr(writing.Writer, "add", meddling)


@pytest.mark.slow
def test_what_is_known_of_the_input_is_used_only_if_it_is_whole(engine, tmp_path):
    """Where rows begin is written there: with another digit, other rows would be explained."""
    data = tmp_path / "in.csv"
    written(data, sentences(1200))
    run(data, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "out")
    shard_path(tmp_path / "out", 20).unlink()
    known = tmp_path / "out" / ".work" / "input.json"
    said = json.loads(known.read_text())
    assert len(said["files"][0]["offsets"]) == 3
    said["files"][0]["offsets"][1] += 200
    known.write_text(json.dumps(said, indent=1) + "\n")
    run(data, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.fixture
def cli(data, tmp_path):
    def ask(*words):
        return CliRunner().invoke(app, ["run", "--data", str(data), "--out", str(tmp_path / "out"), *words])

    return ask


def refused(done, code, *said):
    """A message and an exit code; no traceback."""
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit)
    for part in said:
        assert part in done.stderr


def test_a_file_system_without_locks_is_said(engine, cli, tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", cannot)
    refused(cli(), 2, "cannot lock files (No locks available)", "Choose an --out on a local disk")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_full_at_the_start_is_said(engine, cli, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for place, name in ((Path, "mkdir"), (locking.os, "open"), (locking.os, "write"), (aside, "open_anew")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            refused(cli(), 4, "the disk is full (No space left on device)", "run the same command again")
    refused(cli(), 3)


def test_a_temporary_folder_that_is_full_is_said(data, tmp_path):
    """Where workers find the model."""
    with small_files(), pytest.raises(JobStopped, match="the disk is full"):
        run(data, tmp_path / "out", workers=1)


def test_columns_that_would_have_one_name_are_refused(engine, tmp_path):
    data = write(tmp_path / "in.parquet", text=["good"], score=[1.0], input_score=[2.0])
    with pytest.raises(UsageError, match="'score' and 'input_score' would both be called 'input_score'"):
        run(data, tmp_path / "out", columns=["text", "score", "input_score"])
    assert run(data, tmp_path / "out", columns=["text", "score"]).finished


@pytest.mark.parametrize("name", ["in.parquet", "in.csv"])
def test_a_column_that_the_input_has_twice_is_refused(engine, tmp_path, name):
    data = tmp_path / name
    if name == "in.csv":
        data.write_text("text,text,label\ngood,bad,1\n")
    else:
        parquet.write_table(pa.table([["good"], ["bad"], [1]], names=["text", "text", "label"]), data)
    with pytest.raises(DataError, match="has 2 columns called 'text'"):
        run(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bad_rows_of_an_earlier_try_are_not_counted_with_the_rows(engine, out, data):
    """A row that killed its workers, and does so no more: it stands in one place only."""
    shutil.copy(out / ".work" / "errors-000002.parquet", out / ".work" / "errors-000001.parquet")
    shard_path(out, 1).unlink()
    stored = run(data, out)
    assert [row["row_id"] for row in stored.errors()] == [98, 99]
    assert read_manifest(out).counts.errors == 2
