"""The same job on a Ray cluster: an actor is killed, a node is taken away, and the shards are the same to the byte."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("ray")

from jobs_here import Slow, contents, here, pack_job_of_a_plug_in, run, sentences, write
from ray_nodes import actors, kill

from headwater.errors import MissingExtra, UsageError
from headwater.jobs.cluster import Actor, connect, keep_token_private
from headwater.jobs.failures import DEATHS, STARTS, History, Place
from headwater.jobs.planning import Chunk

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of files and processes that it leaves to the system


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
    yield made
    made.shutdown()


@pytest.mark.slow
def test_an_actor_is_killed_and_a_node_is_taken_away(cluster, tmp_path, monkeypatch):
    data = write(tmp_path / "in.parquet", text=[*sentences(200), "mary"])
    with monkeypatch.context() as patch:
        here(patch)
        patch.setattr(Slow, "seconds", 0.0)
        run(data, tmp_path / "undisturbed", model=Slow())
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    out, gate, events = tmp_path / "out", tmp_path / "gate", []

    def disturb() -> None:
        when(lambda: shards(out) >= 1)
        kill(actors()[0])
        events.append(("actor", shards(out)))
        before = shards(out)
        when(lambda: shards(out) > before)
        cluster.remove_node(node)
        events.append(("node", shards(out)))
        gate.touch()

    vandal = threading.Thread(target=disturb)
    vandal.start()
    model = Slow()
    model.seconds, model.gate = 0.05, str(gate)
    stored = run(data, out, model=model, engine="ray", address=cluster.address, workers=2)
    vandal.join()
    assert [what for what, _ in events] == ["actor", "node"]
    assert max(done for _, done in events) < 6, "the job was over before anything happened"
    assert stored.finished
    assert len(stored) == 201
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert stored.manifest.sessions[-1]["engine"] == "ray"


def shards(out) -> int:
    return len(list((out / "shards").glob("*.parquet")))


def when(happened, seconds=90.0) -> None:
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(0.02)


def listeners() -> set[str]:
    """The addresses that this process, and all that it started, listen on."""
    psutil = pytest.importorskip("psutil")
    me = psutil.Process()
    found = [c for p in (me, *me.children(recursive=True)) for c in p.net_connections(kind="inet")]
    return {c.laddr.ip.removeprefix("::ffff:") for c in found if c.status == psutil.CONN_LISTEN}


JOIN = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(ray.get(ray.remote(lambda: "ran").remote()))
"""


def joined(address: str, **environment: str) -> str:
    """What somebody else on this machine gets from a cluster: where it lets them, `ran`."""
    known = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    known["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray takes 127.0.0.1 to be the machine's other address
    words = [sys.executable, "-c", JOIN, address]
    done = subprocess.run(words, env={**known, **environment}, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_cluster_of_its_own_is_for_this_machine_and_user_alone(tmp_path, monkeypatch):
    import ray

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = listeners()
    with connect(None):
        assert listeners() - before <= {"127.0.0.1"}
        assert os.environ["RAY_AUTH_MODE"] == "token"
        address = ray.get_runtime_context().gcs_address
        assert "ran" in joined(address, RAY_AUTH_MODE="token").splitlines()
        refused = joined(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
        assert "ran" not in refused.splitlines()
        assert "auth" in refused.lower()


def test_a_token_is_readable_by_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    keep_token_private()
    path = tmp_path / ".ray" / "auth_token"
    assert path.stat().st_mode & 0o077 == 0
    made = path.read_text()
    assert len(made) == 64
    keep_token_private()
    assert path.read_text() == made


def test_a_ray_without_tokens_is_not_started(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "__version__", "2.51.1")
    with pytest.raises(MissingExtra, match=r"headwater\[cluster\]"), connect(None):
        pass
    assert not ray.is_initialized()


def test_a_cluster_that_others_would_reach_is_not_used(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeManagerAddress": "192.0.2.7"}])
    with pytest.raises(UsageError, match=r"would listen on 192\.0\.2\.7"), connect(None):
        pass


@pytest.mark.slow
def test_a_cluster_that_is_not_there(tmp_path):
    data = write(tmp_path / "in.parquet", text=["good"])
    with pytest.raises(UsageError, match=r"no Ray cluster at '127.0.0.1:1'"):
        run(data, tmp_path / "out", engine="ray", address="127.0.0.1:1")


def test_what_an_actor_refuses_when_it_is_made_is_its_answer(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "get", lambda content: content)
    content = pack_job_of_a_plug_in(write(tmp_path / "in.parquet", text=["good"]))
    found = Actor([content], "cpu", None)({"chunk": [pickle.dumps(Chunk(0, 0, 1, 0, 1))]})["finished"]
    assert "no method called 'theirs'" in str(pickle.loads(found[0]))


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
