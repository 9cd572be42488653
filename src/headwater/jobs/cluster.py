"""The Ray engine: the same chunks, explained by a pool of actors of a cluster.

Ray Data hands a chunk's description to an actor, which reads the rows itself: inputs must lie where every node finds
them. The model is not among these, it travels through the object store. Results come back to the one writer, here.

Ray replaces an actor or a node that is lost, and tries its chunk again without end. So one more actor counts. It
finds the row that kills others again and again, and has it left out, as the local engine does.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import pickle
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import HeadwaterError, JobStopped, MissingExtra, UsageError, require_extra
from .explaining import Explainer, Finished
from .failures import History
from .local import Tick
from .machines import check_device_name
from .payload import Payload, unpack_payload
from .planning import Chunk

RELEASE = (2, 59)  # from here on a cluster that is started on one machine asks for a token by default
OBJECT_STORE = 512 * 2**20  # of a cluster that is started here: chunks are small, and its memory is the machine's


@contextmanager
def connect(address: str | None) -> Iterator[RayEngine]:
    """A cluster that is there already, the one at `address`, or one that is started here and ends with the block."""
    with require_extra("the engine 'ray'", "cluster"):
        import ray
        import ray.data
    if ray.is_initialized():
        yield RayEngine()
        return
    answers(address)
    try:
        with silence_warnings():
            if address is None:
                start_alone(ray)
            else:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"no Ray cluster at {address or 'this machine'}: {said}") from error
    try:
        yield RayEngine()
    finally:
        ray.shutdown()


def start_alone(ray: Any) -> None:
    """A cluster of this machine alone. It listens on loopback and asks for a token, for who reaches Ray can run code.

    RAY_AUTH_MODE and RAY_AUTH_TOKEN count where they are set. A cluster that can be reached from outside all the same
    is ended and not used.
    """
    if release(ray.__version__) < RELEASE:
        raise MissingExtra(f"a cluster that asks for a token (Ray {ray.__version__} has none by default)", "cluster")
    keep_token_private()
    here = {"object_store_memory": OBJECT_STORE, "include_dashboard": False}
    with on_loopback():
        ray.init(address="local", log_to_driver=False, logging_level=logging.ERROR, **here)
    reached_at = [node["NodeManagerAddress"] for node in ray.nodes()]
    if not all(ipaddress.ip_address(one).is_loopback for one in reached_at) or "RAY_AUTH_MODE" not in os.environ:
        ray.shutdown()
        raise UsageError(
            f"Ray {ray.__version__} would listen on {', '.join(reached_at)}, or without a token. Start a cluster "
            "yourself, and give its --address."
        )


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


@contextmanager
def on_loopback() -> Iterator[None]:
    """Inside, Ray takes this machine's address to be 127.0.0.1, as it does by itself on macOS and Windows.

    Asked for 127.0.0.1 it would take the address by which others reach the machine, and listen on all of them.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def keep_token_private() -> None:
    """Makes the file of Ray's token where there is none, for this user alone: Ray's own could be read by others."""
    path = Path.home() / ".ray" / "auth_token"
    if any(os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        return
    with suppress(OSError):  # there is one, or there is no home to write to, which Ray then says
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))


@contextmanager
def silence_warnings() -> Iterator[None]:
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
            return check_device_name(asked)
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

        hide_progress(ray)
        packed = ray.put(payload.pack())  # held here, so that it is there as long as actors may be started
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

        self.history = history
        self.refusal: HeadwaterError | None = None
        try:
            self.explainer: Explainer = unpack_payload(ray.get(payload[0]), device)
        except HeadwaterError as error:
            self.refusal = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"finished": [pickle.dumps(self.answer(pickle.loads(chunk)), protocol=5) for chunk in batch["chunk"]]}

    def answer(self, chunk: Chunk) -> Finished | HeadwaterError:
        """What is refused is handed over as any result: an exception would make Ray try again."""
        import ray

        if self.refusal is not None:
            return self.refusal
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


def hide_progress(ray: Any) -> None:
    """Our own bar says how far it is."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.verbose_progress = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
