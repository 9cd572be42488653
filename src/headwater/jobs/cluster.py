"""The Ray engine: the same chunks, explained by a pool of actors of a cluster.

Ray Data hands a chunk's description to an actor, which reads the rows itself: inputs must lie where every node finds
them. The model is not among these, it travels through the object store. Results come back to the one writer, here.

An actor or a node that is lost is Ray's to replace, and it tries a chunk again for ever; an actor that only counts sees
to it that what kills others again and again is found and left out, as the local engine does.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import HeadwaterError, JobStopped, MissingExtra, UsageError
from .explaining import Finished
from .local import Tick
from .machines import known_device
from .payload import Payload, unpacked
from .planning import Chunk
from .trouble import History

OBJECT_STORE = 512 * 2**20  # of a cluster that is started here: chunks are small, and its memory is the machine's


@contextmanager
def connected(address: str | None) -> Iterator[RayEngine]:
    """A cluster that is there already, the one at `address`, or one that is started here and ends with the block."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("the engine 'ray'", "cluster") from error
    if ray.is_initialized():
        yield RayEngine()
        return
    answers(address)
    here = {} if address else {"object_store_memory": OBJECT_STORE, "include_dashboard": False}
    try:
        with hushed():
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
    try:
        yield RayEngine()
    finally:
        ray.shutdown()


@contextmanager
def hushed() -> Iterator[None]:
    """Ray's core warns on standard error that actors can be restarted only while what they were made of is there."""
    name = "RAY_BACKEND_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ.setdefault(name, "fatal")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)


def answers(address: str | None) -> None:
    """Ray itself tries an address where nobody is for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address!r}: {error.strerror or error}.") from error


class RayEngine:
    """Actors of a cluster, on its GPUs if it has any."""

    name = "ray"

    def device(self, asked: str | None) -> str:
        if asked is not None:
            return known_device(asked)
        return "cuda" if self._resource("GPU") else "cpu"

    def staff(self, payload: Payload) -> int:
        if payload.settings.device.startswith("cuda"):
            return max(1, int(self._resource("GPU")))
        return max(1, int(self._resource("CPU")) // payload.settings.threads)

    def _resource(self, name: str) -> float:
        import ray

        return float(ray.cluster_resources().get(name, 0))

    def results(self, payload: Payload, workers: int, chunks: Sequence[Chunk], tick: Tick) -> Iterator[Finished]:
        """As they are done. An actor or node that is lost is Ray's to replace; the chunk is done again."""
        import ray
        from ray.data import ActorPoolStrategy
        from ray.exceptions import RayError

        quiet(ray)
        packed = ray.put(payload.packed())  # held here, so that it is there as long as actors may be started
        history = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(History).remote()
        gpu = payload.settings.device.startswith("cuda")
        rows = ray.data.from_items(
            [{"chunk": pickle.dumps(chunk)} for chunk in chunks], override_num_blocks=len(chunks)
        )
        explained = rows.map_batches(
            Actor,
            batch_size=1,
            compute=ActorPoolStrategy(min_size=1, initial_size=workers, max_size=workers),  # all start at once
            fn_constructor_kwargs={
                "payload": [packed],
                "device": "cuda" if gpu else payload.settings.device,
                "history": history,
            },
            num_cpus=payload.settings.threads,
            num_gpus=1 if gpu else None,
        )
        try:
            for row in explained.iter_rows():
                finished = pickle.loads(row["finished"])
                if isinstance(finished, HeadwaterError):
                    raise finished
                tick(finished.counts.rows + finished.counts.errors, finished.counts.tokens)
                yield finished
        except RayError as error:
            raise JobStopped(
                f"the Ray job ended: {str(error).strip().splitlines()[-1]}. What is done is kept; the same command "
                "goes on from there, with --engine local too."
            ) from error


class Actor:
    """A model on a node of the cluster. `payload` holds the reference in a list, or Ray would resolve it itself."""

    def __init__(self, payload: list[Any], device: str, history: Any) -> None:
        import ray

        self.explainer, self.history = unpacked(ray.get(payload[0]), device), history

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"finished": [pickle.dumps(self.answer(pickle.loads(chunk)), protocol=5) for chunk in batch["chunk"]]}

    def answer(self, chunk: Chunk) -> Finished | HeadwaterError:
        """What is refused is handed over as any result: an exception would make Ray try again."""
        import ray

        begun = ray.get(self.history.begins.remote(chunk))
        if begun is None:
            return JobStopped(
                f"actors are lost again and again before they explain rows {chunk.start} to {chunk.stop - 1}."
            )
        care, again = begun
        tell = (lambda place, *_: self.history.at.remote(chunk, place)) if again else (lambda *_: None)
        try:
            found = self.explainer.chunk(chunk, tell, care)
        except HeadwaterError as error:
            return error
        self.history.ends.remote(chunk)
        return found


def quiet(ray: Any) -> None:
    """Our own bar says how far it is."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.verbose_progress = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
