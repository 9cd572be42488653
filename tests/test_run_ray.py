"""The same job on a Ray cluster: an actor is killed, a node is taken away, and the shards are the same to the byte."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("ray")

from jobs_here import Slow, contents, here, run, sentences, write
from ray_nodes import actors, kill

from headwater.errors import UsageError
from headwater.jobs.planning import Chunk
from headwater.jobs.trouble import DEATHS, STARTS, History, Place

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of files and processes that it leaves to the system


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
    yield made
    made.shutdown()


def test_an_actor_is_killed_and_a_node_is_taken_away(cluster, tmp_path, monkeypatch):
    data = write(tmp_path / "in.parquet", text=sentences(400))
    with monkeypatch.context() as patch:
        here(patch)
        patch.setattr(Slow, "seconds", 0.0)
        run(data, tmp_path / "undisturbed", model=Slow())
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    out, events = tmp_path / "out", []

    def disturb() -> None:
        when(lambda: shards(out) >= 1)
        kill(actors()[0])
        events.append(("actor", shards(out)))
        before = shards(out)
        when(lambda: shards(out) > before)
        cluster.remove_node(node)
        events.append(("node", shards(out)))

    vandal = threading.Thread(target=disturb)
    vandal.start()
    model = Slow()
    model.seconds = 0.05
    stored = run(data, out, model=model, engine="ray", address=cluster.address, workers=2)
    vandal.join()
    assert [what for what, _ in events] == ["actor", "node"]
    assert max(done for _, done in events) < 10, "the job was over before anything happened"
    assert stored.finished
    assert len(stored) == 400
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert stored.manifest.sessions[-1]["engine"] == "ray"


def shards(out) -> int:
    return len(list((out / "shards").glob("*.parquet")))


def when(happened, seconds=90.0) -> None:
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(0.02)


def test_a_cluster_that_is_not_there(tmp_path):
    data = write(tmp_path / "in.parquet", text=["good"])
    with pytest.raises(UsageError, match=r"no Ray cluster at '127.0.0.1:1'"):
        run(data, tmp_path / "out", engine="ray", address="127.0.0.1:1")


def test_what_kills_actors_again_and_again_is_left_out():
    """Without a cluster: the history says what to do when a chunk begins again."""
    chunk, history = Chunk(0, 0, 1, 0, 10), History()
    for number in range(DEATHS):
        care, tells = history.begins(chunk)
        assert care.alone == frozenset()
        assert tells == (number > 0)  # at first nobody expects trouble
        history.at(chunk, Place(3))
    for _ in range(DEATHS):
        care, _ = history.begins(chunk)
        assert (care.alone, care.left_out) == (frozenset({3}), {})
        history.at(chunk, Place(3, row=7))
    assert list(history.begins(chunk)[0].left_out) == [7]
    for _ in range(STARTS):
        begun = history.begins(chunk)
    assert begun is None
