"""Worker processes of a run: they give what one process gives, they may be killed, and they end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import tiny
from jobs_here import Deadly, Slow, contents, fails_at_the_end, here, pack_job_of_a_plug_in, run, sentences, write

import headwater as hw
from headwater.errors import JobStopped
from headwater.jobs import failures, local, payload
from headwater.jobs.reading.sources import find_sources
from headwater.jobs.settings import JobSettings
from headwater.jobs.worker import report_failures

TEXTS = [*sentences(200), "mary"]  # the last row waits where there is a gate: `Slow`


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "in.parquet", text=TEXTS)


@pytest.fixture
def undisturbed(data, tmp_path, monkeypatch):
    """What the job gives when nothing happens, computed without processes."""
    with monkeypatch.context() as patch:
        here(patch)
        patch.setattr(Slow, "seconds", 0.0)
        run(data, tmp_path / "undisturbed", model=Slow())
    return contents(tmp_path / "undisturbed")


def gated(gate: Path) -> Slow:
    model = Slow()
    model.gate = str(gate)
    return model


@pytest.mark.slow
def test_workers_that_are_killed_change_nothing(data, tmp_path, undisturbed):
    """Two workers, of which somebody is killed three times: the shards are equal byte for byte."""
    killed: list[int] = []
    stop, gate = threading.Event(), tmp_path / "gate"

    def kill() -> None:
        draw = random.Random(3)
        while not stop.is_set() and len(killed) < 3:
            time.sleep(0.05)
            begun = list((tmp_path / "out" / ".work").glob("*.unfinished")) or list((tmp_path / "out").glob("shards/*"))
            found = multiprocessing.active_children()
            if begun and found:
                victim = draw.choice(found)
                os.kill(victim.pid, signal.SIGKILL)
                killed.append(victim.pid)
                time.sleep(draw.uniform(0, 1))
        gate.touch()

    murderer = threading.Thread(target=kill)
    murderer.start()
    try:
        stored = run(data, tmp_path / "out", model=gated(gate), workers=2)
    finally:
        stop.set()
        murderer.join()
    assert len(killed) == 3
    assert stored.finished
    assert contents(tmp_path / "out") == undisturbed
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_parent_that_is_killed_takes_its_workers_with_it_and_the_job_goes_on(
    data, tmp_path, undisturbed, monkeypatch
):
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from jobs_here import run\n"
        "from test_run_processes import gated\n"
        "if __name__ == '__main__':\n"
        "    run(sys.argv[1], Path(sys.argv[2]), model=gated(Path('never')), workers=2)\n"
    )
    out = tmp_path / "out"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    known = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)}
    parent = subprocess.Popen([sys.executable, script, data, out], env=known)
    until = time.monotonic() + 120
    while not list(out.glob("shards/*")) and time.monotonic() < until and parent.poll() is None:
        time.sleep(0.05)
    children = children_of(parent.pid)
    parent.kill()
    parent.wait()
    assert len(children) >= 2
    until = time.monotonic() + 120  # from here on: on a busy machine the start alone takes long
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, children))
    assert [file for file in temporary.rglob("*") if file.is_file()] == []  # nothing of the size of a model
    done = len(list(out.glob("shards/*")))
    assert 0 < done < 6
    assert hw.open_run(out).manifest.state == "running"
    here(monkeypatch)
    monkeypatch.setattr(Slow, "seconds", 0.0)
    assert run(data, out, model=Slow()).finished
    assert contents(out) == undisturbed


def children_of(pid: int) -> list[int]:
    """By what the system says of every process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_row_that_kills_its_worker_is_found_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "DEATHS", 1)
    texts = [*sentences(60), "mary"]
    data = write(tmp_path / "in.parquet", text=texts)
    stored = run(data, tmp_path / "out", model=Deadly(), workers=1)
    (bad,) = stored.errors()
    assert (bad["row_id"], bad["reason"]) == (60, "failed")
    assert "ended while they explained this row (SIGKILL)" in bad["message"]
    assert len(stored) == 60


@pytest.mark.slow
def test_workers_that_fail_at_no_row_end_the_job(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(failures, "DEATHS", 1)
    monkeypatch.setattr(local, "work", fails_at_the_end)
    data = write(tmp_path / "in.parquet", text=sentences(10))
    with pytest.raises(
        JobStopped, match=r"at rows 0 to 9 of the input, and no single row is .*KeyError: 'what it made'"
    ):
        run(data, tmp_path / "out", workers=1)
    assert "Traceback" not in capfd.readouterr().err
    assert hw.open_run(tmp_path / "out").manifest.state == "stopped"


def test_a_worker_whose_parent_has_closed_the_pipe_ends_without_a_word():
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    with pytest.raises(SystemExit), report_failures(theirs):
        theirs.send(("at", None, 0, 0))


def test_a_worker_of_another_version_is_no_worker(data, monkeypatch):
    sources = find_sources(data, ["text"])
    content = payload.Payload.of(Slow(), tiny.tokenizer(), JobSettings(), sources).pack()
    assert payload.unpack_payload(content, "cpu").settings == JobSettings()
    monkeypatch.setattr(payload, "relevant_versions", lambda: {"headwater": "0.0.1"})
    ours, theirs = multiprocessing.Pipe()
    with report_failures(theirs):
        payload.unpack_payload(content, "cpu")
    what, error = ours.recv()
    assert (what, type(error)) == ("refused", JobStopped)
    assert "this worker has {'headwater': '0.0.1'}, the job was started with" in str(error)


def test_a_worker_without_the_plug_in_says_so(data):
    content = pack_job_of_a_plug_in(data)
    with pytest.raises(JobStopped, match=r"no method called 'theirs'\..* install the plug-in on every node"):
        payload.unpack_payload(content, "cpu")
