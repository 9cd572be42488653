"""An engine without processes, so that what does not concern processes can be tested quickly; and rows to run it on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import tiny
import torch
from pyarrow import parquet

import headwater as hw
from headwater.jobs import running
from headwater.jobs.explaining import Place
from headwater.jobs.payload import Payload
from headwater.jobs.reading.sources import find_sources
from headwater.jobs.settings import JobSettings
from headwater.jobs.worker import report_failures
from headwater.jobs.writing import make_footer
from headwater.methods.registry import _METHODS, register, resolve_method
from headwater.store.manifest import FOOTER, MANIFEST, SHARDS, read_footer
from headwater.store.runs import StoredRun
from headwater.store.seal import SEAL, seal, seal_json


class Here:
    """Explains in this process, a chunk after the other; `order` may change their order, as processes do."""

    name = "here"
    order = staticmethod(list)
    chunks: ClassVar[list[Any]] = []

    def device(self, asked):
        return asked or "cpu"

    def staff(self, payload):
        return 1

    def results(self, payload, workers, chunks, tick):
        explainer = payload.open(payload.model)
        for chunk in self.order(chunks):
            type(self).chunks.append(chunk)
            yield explainer.chunk(chunk, lambda place, rows, tokens: tick(rows, tokens))


def here(monkeypatch) -> type[Here]:
    """`hw.run` without processes, from now on; what it hands out is remembered."""
    engine = type("HereNow", (Here,), {"chunks": []})
    monkeypatch.setattr(running, "LocalEngine", engine)
    return engine


def pack_job_of_a_plug_in(data: Path) -> bytes:
    """A job by the method `theirs`, which is known while the job is packed, and no longer."""
    register(replace(resolve_method("gi"), name="theirs"))
    try:
        settings = JobSettings(method="theirs")
        return Payload.of(Slow(), tiny.tokenizer(), settings, find_sources(data, ["text"])).pack()
    finally:
        _METHODS.pop("theirs")


def sentences(count: int, seed: int = 0) -> list[str]:
    """Of one to twenty words, so that a batch by length is not a batch by row."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(tiny.WORDS[:18], k=draw.randint(1, 20))) for _ in range(count)]


def write(path: Path, **columns: list[Any]) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def run(data: Any, out: Path, **options: Any):
    model = options.pop("model", None) or tiny.tiny("bert", torch.float32)
    given = {"tokenizer": tiny.tokenizer(), "columns": ["text"], "shard_rows": 40, "batch_tokens": 128, **options}
    return hw.run(model, data, out, **given)


def made(out: Path, columns: dict[str, list[Any]], model: Any = None, **options: Any) -> StoredRun:
    """A run of the bundled model, or of another, over a few rows: begun and ended in this process."""
    data = write(out.with_name(f"{out.name}.parquet"), **columns)
    with pytest.MonkeyPatch.context() as patch:
        here(patch)
        return hw.run(model, data, out, columns=list(columns), progress=False, **options)


def rewritten(file: Path, change: Callable[[pa.Table], pa.Table], **footer: Any) -> None:
    """A shard as somebody else may have left it: its rows changed, or what it says of itself."""
    said = read_footer(parquet.read_metadata(file)) | footer
    table = change(parquet.read_table(file))
    with file.open("w+b") as opened:
        with parquet.ParquetWriter(opened, table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(make_footer(said))
        seal(opened)


def retold(out: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A manifest as somebody may have changed it who also put its checksum right."""
    said = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    change(said)
    (out / MANIFEST).write_bytes(seal_json({name: value for name, value in said.items() if name != SEAL}))


def unsealed(out: Path) -> None:
    """A run as it was written before files had checksums."""
    for file in [*(out / SHARDS).iterdir(), out / "errors.parquet", *(out / ".work").glob("errors-*.parquet")]:
        if file.is_file():
            strip_seal(file)
    said = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    said = {**said, "format": 1}
    del said[SEAL]
    (out / MANIFEST).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    (out / ".work" / "input.json").write_text(json.dumps({"files": [], "columns": ["text"]}), encoding="utf-8")


def strip_seal(file: Path) -> None:
    said = {name: value for name, value in read_footer(parquet.read_metadata(file)).items() if name != SEAL}
    table = parquet.read_table(file)
    with parquet.ParquetWriter(file, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER.decode(): json.dumps(said)})


def results(out: Path) -> pa.Table:
    """All rows as they lie there, without saying in which order the shards were read."""
    files = sorted((out / SHARDS).glob("*.parquet"))
    return pa.concat_tables([parquet.read_table(file) for file in files])


def contents(out: Path) -> dict[str, bytes]:
    """The shards byte by byte."""
    return {file.name: file.read_bytes() for file in sorted((out / SHARDS).iterdir())}


class Slow(tiny.TorchEncoder):
    """Takes its time for every batch, so that something can happen meanwhile.

    `gate`: a file without which it does not get past the word "mary". A job with that word in its last row is not over
    before something has happened, however busy the machine is.
    """

    seconds = 0.02
    gate: str | None = None

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(batch_first=True)
        tiny.randomised(self)

    def forward(self, input_ids, attention_mask=None, **_):
        time.sleep(self.seconds)
        if self.gate is not None and (input_ids == word("mary")).any():
            await_file(Path(self.gate))
        return super().forward(input_ids, attention_mask)


def await_file(path: Path, seconds: float = 240.0) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} never came")
        time.sleep(0.02)


class Deadly(Slow):
    """A word that kills the process which explains it, as a text does that wants more memory than there is."""

    seconds = 0.0

    def forward(self, input_ids, attention_mask=None, **_):
        if multiprocessing.parent_process() is not None and (input_ids == word("mary")).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(input_ids, attention_mask)


class Picky(Slow):
    """Cannot do with one word, and says so as Python does where nobody thought of it."""

    seconds = 0.0

    def forward(self, input_ids, attention_mask=None, **_):
        if (input_ids == word("mary")).any():
            raise KeyError("mary")
        return super().forward(input_ids, attention_mask)


def fails_at_the_end(pipe: Any, payload: Any, device: str) -> None:
    """A worker that explains all rows of its chunk, and then cannot hand them over."""
    with report_failures(pipe):
        pipe.send(("ready",))
        pipe.recv()
        pipe.send(("at", Place(-1), 0, 0))
        raise KeyError("what it made")


def word(name: str) -> int:
    return int(tiny.tokenizer().convert_tokens_to_ids(name))


def read_rows(out: Path) -> list[dict[str, Any]]:
    """All rows of a run, in their order."""
    return [row for shard in sorted((out / "shards").iterdir()) for row in parquet.read_table(shard).to_pylist()]


@contextmanager
def small_files(most: int = 20_000) -> Iterator[None]:
    """Inside, no file may grow beyond so many bytes: a limit of the system in place of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
