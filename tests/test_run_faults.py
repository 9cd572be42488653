"""A run whose disk fails at every single operation that writes, and one whose files are damaged afterwards.

After each fault the same command goes on: every row is there once, and every file equal to the undisturbed run's, byte
for byte. After each damage the file is named where it is read, and made again where the run goes on.
"""

from __future__ import annotations

import errno
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyarrow")

from faulty_disk import FaultyDisk, Killed
from jobs_here import Here, sentences, write
from jobs_here import run as run_tiny

import headwater as hw
from headwater.errors import DataError, HeadwaterError
from headwater.jobs import running

TEXTS = ["", *sentences(14), " ", *sentences(4, seed=1)]
ROWS = list(range(len(TEXTS)))
FLIPS = 20  # bits of each file
FILES = ("manifest.json", "errors.parquet", "shards/*", ".work/input.json", ".work/errors-*", ".work/lock")


class Remembering(Here):
    """Explains every chunk once, so that hundreds of runs take no longer than their writing."""

    known: ClassVar[dict[Any, Any]] = {}

    def results(self, payload, workers, chunks, tick):
        for chunk in chunks:
            if chunk not in self.known:
                (self.known[chunk],) = super().results(payload, workers, [chunk], tick)
            yield self.known[chunk]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write(tmp_path_factory.mktemp("faults") / "in.parquet", text=TEXTS)


@pytest.fixture(autouse=True)
def engine(data, monkeypatch):
    tried = running.try_rows
    known = Remembering.known
    monkeypatch.setattr(running, "LocalEngine", Remembering)
    monkeypatch.setattr(
        running, "try_rows", lambda payload: known.get("tried") or known.setdefault("tried", tried(payload))
    )


def run(data, out, shard_rows=10):
    return run_tiny(data, out, shard_rows=shard_rows, progress=False)


@pytest.fixture
def whole(data, engine, tmp_path):
    assert run(data, tmp_path / "whole").finished
    return tmp_path / "whole"


def written(out: Path) -> dict[str, bytes]:
    files = [*(out / "shards").glob("*"), *out.glob("errors.parquet")]
    return {file.name: file.read_bytes() for file in files}


def rows_of(stored) -> list[int]:
    return sorted([row["row_id"] for row in stored.rows(["row_id"])] + [row["row_id"] for row in stored.errors()])


def disturbed(disk: FaultyDisk, data: Path, out: Path, shard_rows: int = 10) -> None:
    """Ends well, or as a run ends: never by an exception that is not ours."""
    with pytest.MonkeyPatch.context() as patch, suppress(HeadwaterError, Killed):
        disk.patch(patch)
        run(data, out, shard_rows)


def check_readable(out: Path) -> None:
    """What a run has left at any moment can be read, and no row is there twice."""
    if (out / "manifest.json").is_file():
        stored = hw.open_run(out)
        rows = [row["row_id"] for row in stored.rows(["row_id"])]
        assert len(set(rows)) == len(rows) == len(stored)


MODES = {
    "once": {"error": errno.EIO},
    "full": {"error": errno.ENOSPC, "lasting": True},
    "killed": {"error": 0, "lasting": True},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that a dead process leaves open
@pytest.mark.parametrize("mode", MODES)
def test_a_fault_at_every_write_of_a_run_loses_nothing(data, whole, tmp_path, mode):
    counted = FaultyDisk(tmp_path / "counted")
    disturbed(counted, data, tmp_path / "counted")
    assert {"create", "write", "fsync", "replace", "mkdir"} <= set(counted.done)
    out = tmp_path / "out"
    for at in range(1, len(counted.done) + 1):
        disk = FaultyDisk(out, at, **MODES[mode])
        disturbed(disk, data, out)
        assert len(disk.done) >= at
        check_readable(out)
        stored = run(data, out)
        assert stored.finished, at
        assert rows_of(stored) == ROWS, at
        assert written(out) == written(whole), (at, disk.done[-1])
        shutil.rmtree(out)


@pytest.mark.slow
def test_a_fault_at_every_write_of_a_run_that_goes_on_loses_nothing(data, tmp_path):
    """From the middle: a shard is there, another is damaged, a third is missing."""
    whole, begun, out = tmp_path / "whole", tmp_path / "begun", tmp_path / "out"
    run(data, whole, shard_rows=7)
    shutil.copytree(whole, begun)
    (begun / "shards" / "shard-000001.parquet").write_bytes(b"damaged")
    (begun / "shards" / "shard-000002.parquet").unlink()
    at, more = 0, True
    while more:
        at += 1
        shutil.copytree(begun, out)
        disk = FaultyDisk(out, at, errno.EIO)
        disturbed(disk, data, out, shard_rows=7)
        more = len(disk.done) >= at
        check_readable_or_named(out)
        assert run(data, out, shard_rows=7).finished
        assert written(out) == written(whole), at
        shutil.rmtree(out)
    assert at > 30


def check_readable_or_named(out: Path) -> None:
    with suppress(DataError):
        check_readable(out)


def files_of(out: Path) -> list[Path]:
    found = [file for pattern in FILES for file in sorted(out.glob(pattern))]
    assert {file for file in out.rglob("*") if file.is_file()} == set(found)
    return found


def damages(draw: random.Random) -> list[tuple[str, float]]:
    """At the edges and anywhere in a file: bits that are flipped, and lengths to which it is cut."""
    return [("flip", part) for part in (0.0, 1.0, *(draw.random() for _ in range(FLIPS)))] + [
        ("cut", part) for part in (0.0, 0.5, 1.0)
    ]


def harm(file: Path, how: str, part: float) -> None:
    content = bytearray(file.read_bytes())
    if how == "cut":
        del content[int(part * (len(content) - 1)) :]
    else:
        bit = int(part * (8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


@pytest.mark.slow
def test_damage_to_any_file_is_named_on_reading_and_mended_by_going_on(data, whole, tmp_path):
    draw, out = random.Random(0), tmp_path / "out"
    shutil.copytree(whole, out)
    for file in files_of(out):
        before = file.read_bytes()
        for how, part in damages(draw):
            harm(file, how, part)
            if ".work" not in file.parts:
                with pytest.raises(DataError, match=file.name):
                    rows_of(hw.open_run(out))
            stored = run(data, out)
            assert stored.finished, (file.name, how, part)
            assert written(out) == written(whole), (file.name, how, part)
            assert rows_of(stored) == ROWS
            assert file.suffix != ".parquet" or file.read_bytes() == before, (file.name, how, part)
