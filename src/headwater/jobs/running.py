"""`run`: a dataset explained from files to files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ..api.requests import Model, take_model
from ..engine.kind import choose_method, choose_output, choose_sinks
from ..engine.model import describe_model, prepare_model, where_it_is
from ..errors import BadRow, HeadwaterError, JobStopped, ModelError, UnknownName, UsageError, check_least
from ..evaluation.progress import show_progress
from ..evaluation.provenance import machine, model_sha256, now, versions
from ..inputs.restoring import restores
from ..store.columns import need_arrow
from ..store.manifest import Counts, Manifest
from ..store.runs import StoredRun, open_run
from .explaining import Explainer, Finished, describe_error
from .failures import RetryState
from .local import LocalEngine, Tick
from .machines import peak_memory
from .payload import Payload, relevant_versions
from .place import RunDirectory, job_of, open_run_directory
from .planning import Chunk, Layout
from .reading.sources import InputFiles, find_sources
from .settings import BATCH_TOKENS, SHARD_ROWS, JobSettings, Target
from .similar_rows import find_pooling
from .writing import Writer

ENGINES = ("local", "ray")
PROBED = 512  # rows that are looked at for one to try the model on


@restores
def run(
    model: Model | None,
    data: Any,
    out: str | Path,
    *,
    tokenizer: Any = None,
    method: str | None = None,
    columns: Sequence[str] = ("text",),
    documents: str | Sequence[str] | None = None,
    answer: str | None = None,
    max_new_tokens: int = 100,
    similar: str | None = None,
    pooling: str | Sequence[str] | None = None,
    normalise: bool = True,
    rank: int | None = None,
    target: Target = None,
    output: str | None = None,
    at: str = "embeddings",
    sinks: str | None = None,
    inside: str | Sequence[str] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    shard_rows: int = SHARD_ROWS,
    batch_tokens: int | None = None,
    max_tokens: int | None = None,
    truncate: bool = False,
    window: bool = False,
    threads: int = 1,
    device: str | None = None,
    dtype: str | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: bool | None = None,
) -> StoredRun:
    r"""Explains every row of `data` into the directory `out`, and gives back what lies there.

    Results are parquet shards of `shard_rows` rows of the input, each whole or not there, and a manifest. The same call
    again goes on where it stopped, also with another number of `workers` or another `engine`; a changed model, method
    or input is refused. Rows that cannot be explained land in `errors.parquet`, with the reason.

    Args:
        model: a model with its `tokenizer`, a directory or hub name, a pipeline of transformers, or None for the
            bundled one.
        data: a path, a pattern such as `in/*.parquet`, a directory, or a list of those: parquet, csv, tsv, jsonl, or
            what `datasets.save_to_disk` wrote.
        out: the directory.
        tokenizer: as for `explain`.
        method: as for `explain`; None takes the default for the kind of model, and the manifest names what was taken.
        columns: the first holds the texts, the others go along into the results.
        documents: names one or more further columns. The first column then holds questions, and each is asked and
            explained as `explain_answer` does. A column of documents holds a text, a list of texts or {name: text},
            also as JSON; several columns hold a text each. The results then have the answer, its sentences with their
            sources, and what happens without each document.
        answer: names a column of answers, as for `documents`. Where its cell is empty the model answers.
        max_new_tokens: the model answers with at most so many.
        similar: the name of a second column: every row is a pair of texts, and the first column's is compared with that
            one's, as `explain_similarity` does. Relevance is then that of the first text's tokens; `other_tokens` and
            `other_relevance` have those of the second, `pairs` the strongest pairs of words.
        pooling: as for `explain_similarity`.
        normalise: as for `explain_similarity`.
        rank: as for `explain_similarity`.
        target: as for `explain`.
        output: as for `explain`.
        at: as for `explain`.
        sinks: as for `explain`.
        inside: as for `explain`: heads, neurons, layers or modules by name. Each kind has a column of its own, with the
            relevance of every unit summed over tokens, the token at which it has most, and the ledger of the cut.
        engine: "local", worker processes on this machine, or "ray", a Ray cluster.
        address: of the Ray cluster; None starts one here.
        workers: how many; None is what the machine has.
        shard_rows: so many rows of the input make a file.
        batch_tokens: batches of so many tokens; None is chosen by the device.
        max_tokens: a row with more tokens, or more than the model takes, is an error of that row.
        truncate: cuts such a row.
        window: explains such a row in windows.
        threads: each worker computes with so many.
        device: where workers compute; None is GPUs if there are any.
        dtype: as for `explain`.
        seed: as for `explain`.
        strict: stops at the first row that cannot be explained.
        progress: shows a bar; None does so on a terminal.

    Returns:
        A `StoredRun`.

    Raises:
        UsageError: an option is wrong, or `out` holds another run.
        DataError: the data is missing; with `strict`, `BadRow` for the first row that cannot be explained.
        ModelError: as for `explain`.
        JobStopped: the run had to stop in the middle; what is done is kept, and the same call goes on.
        MissingExtra: the files or the cluster need a package that is not installed.

    Example:
        >>> with open("reviews.csv", "w") as file:
        ...     written = file.write("text\na warm film\ndull and lifeless\n")
        >>> stored = hw.run("headwater/sentiment", "reviews.csv", "explained", workers=1, progress=False)
        >>> len(stored), stored.finished
        (2, True)
    """
    need_arrow("writing a run")
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise UsageError("an address is that of a Ray cluster: engine='ray' (--engine ray).")
    if similar is not None and (output is not None or sinks is not None):
        raise UsageError("a similarity is explained as it is: it takes no output= and no sinks=.")
    check_least("workers", workers)
    if isinstance(columns, str):
        columns = [columns]
    with open_run_directory(Path(out)) as place, open_engine(engine, address) as staff:
        if similar is not None and pooling is None and isinstance(model, (str, PathLike)):
            pooling, max_tokens = find_pooling(model, max_tokens)
        given, tokenizer = load_model(model, tokenizer)
        ready, kind = prepare_model(given, None, dtype), staff.device(device)
        chosen = choose_method(method, ready, plain=inside is None and similar is None)
        settings = JobSettings(
            columns=join_columns(columns, documents, answer, similar),
            documents=None if documents is None else as_names(documents),
            answer=answer,
            max_new_tokens=max_new_tokens,
            similar=similar,
            pooling=None if pooling is None else as_names(pooling),
            normalise=normalise,
            rank=rank,
            method=chosen.name,
            sinks=choose_sinks(sinks, chosen, ready),
            inside=None if inside is None else as_names(inside),
            target=target,
            output=choose_output(output, ready),
            at=at,
            dtype=str(where_it_is(ready)[1] or torch.get_default_dtype()).removeprefix("torch."),
            device=kind,
            seed=seed,
            truncate=truncate,
            window=window,
            max_tokens=max_tokens,
            batch_tokens=batch_tokens if batch_tokens is not None else BATCH_TOKENS["cpu" if kind == "cpu" else "cuda"],
            shard_rows=shard_rows,
            threads=threads,
        )
        sources = find_sources(data, settings.columns, place.read_known_sources(), settings.texts)
        job = RunJob(Payload.of(ready, tokenizer, settings, sources), model_sha256(given), place, staff, strict)
        job.go(workers, progress)
    return open_run(out)


def as_names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def join_columns(columns: Sequence[str], documents: str | Sequence[str] | None, *single: str | None) -> tuple[str, ...]:
    """The columns that are read: the texts or questions first, then all that go along, each once."""
    more = [*as_names(documents or ()), *(name for name in single if name is not None)]
    return (*columns, *(name for name in dict.fromkeys(more) if name not in columns))


class Engine(Protocol):
    """Who explains chunks: processes of this machine, or actors of a cluster."""

    name: str

    def device(self, asked: str | None) -> str: ...

    def staff(self, payload: Payload) -> int: ...

    def results(self, payload: Payload, workers: int, chunks: Sequence[Chunk], tick: Tick) -> Iterator[Finished]: ...


@contextmanager
def open_engine(name: str, address: str | None) -> Iterator[Engine]:
    if name == "local":
        yield LocalEngine()
    elif name == "ray":
        from .cluster import connect

        with connect(address) as engine:
            yield engine
    else:
        raise UnknownName("engine", name, ENGINES)


def load_model(model: Model | None, tokenizer: Any) -> tuple[nn.Module, Any]:
    """The model that was given, named, or, without a name, the bundled one."""
    from ..models.bundled import NAME

    loaded, readers = take_model(NAME if model is None else model, {"tokenizer": tokenizer})
    if readers["tokenizer"] is None and isinstance(model, nn.Module):
        raise UsageError("a model needs its tokenizer: hw.run(model, data, out, tokenizer=tokenizer).")
    if readers["tokenizer"] is None:
        raise UsageError(f"{model} has no tokenizer, so it takes no texts. Save one beside the model.")
    return loaded, readers["tokenizer"]


class RunJob:
    """One job in its directory, from where it stands to its end."""

    def __init__(self, payload: Payload, weights: str, place: RunDirectory, engine: Engine, strict: bool) -> None:
        self.payload = payload
        self.place = place
        self.engine = engine
        self.strict = strict
        self.settings: JobSettings = payload.settings
        self.sources: InputFiles = payload.sources
        self.layout: Layout = Layout(self.sources.rows, self.settings.shard_rows)
        self.began: float = time.perf_counter()
        asked = {"model_sha256": weights, **describe_request(payload)}
        wanted = Manifest(
            job=job_of(asked),
            asked=asked,
            provenance=job_provenance(payload),
            input={"rows": self.sources.rows, "files": [file.to_manifest() for file in self.sources.files]},
            columns=self.settings.result_names,
            shard_rows=self.settings.shard_rows,
            started=now(),
        )
        if place.found is None:
            wanted = replace(wanted, rules_met=dict(try_rows(payload)))
        self.manifest: Manifest = place.take_up(wanted, self.sources)
        self.before: Manifest = self.manifest

    def go(self, workers: int | None, progress: bool | None) -> None:
        """To the end, or to where it must stop; either way the directory says how far it came."""
        self.check_strict()
        if self.manifest.finished:
            return
        chunks = list(self.layout.left(self.manifest.done))
        number = min(workers or self.engine.staff(self.payload), max(1, len(chunks)))
        done = self.sources.rows - sum(chunk.stop - chunk.start for chunk in chunks)
        writer = Writer(self.place.path, self.manifest.job, self.note_shard)
        try:
            with (
                show_progress(self.sources.rows, done, progress, "explaining", "rows", tokens=True) as tick,
                closing(self.results(number, chunks, tick)) as found,
            ):
                for finished in found:
                    self.check_strict(finished)
                    writer.add(finished)
            self.check_input()
        except BaseException:
            writer.close()
            self.place.stop(self.with_session(number))
            raise
        self.place.finish(self.with_session(number))

    def results(self, workers: int, chunks: Sequence[Chunk], tick: Tick) -> Generator[Finished, None, None]:
        """Nobody is started where only the end was left to be written."""
        if chunks:
            yield from self.engine.results(self.payload, workers, chunks, tick)

    def note_shard(self, number: int, counts: Counts) -> None:
        self.manifest = self.place.write(self.manifest.with_shard(number, counts))

    def check_strict(self, finished: Finished | None = None) -> None:
        """With `strict` the first bad row that is met is the end."""
        if not self.strict:
            return
        if finished is not None and finished.errors.num_rows:
            first = finished.errors.slice(0, 1).to_pylist()[0]
            raise BadRow(f"row {first['row']} of {first['file']}: {first['message']} ({first['reason']}).")
        if finished is None and self.manifest.counts.errors:
            raise BadRow(f"{self.place.path} holds {self.manifest.counts.errors} bad rows already, see its errors.")

    def check_input(self) -> None:
        """What was explained is what was looked through at the start."""
        if (changed := self.sources.find_changed()) is not None:
            raise JobStopped(f"the input {changed} was changed while the job read it; begin anew in another directory.")

    def with_session(self, workers: int) -> Manifest:
        """The manifest with what this call of the command did."""
        seconds = time.perf_counter() - self.began
        session = {
            "engine": self.engine.name,
            "workers": workers,
            "rows": self.manifest.counts.rows - self.before.counts.rows,
            "tokens": self.manifest.counts.tokens - self.before.counts.tokens,
            "seconds": round(seconds, 3),
            **peak_memory(),
        }
        return replace(
            self.manifest, sessions=(*self.manifest.sessions, session), seconds=self.before.seconds + seconds
        )


def describe_request(payload: Payload) -> dict[str, Any]:
    """Everything beside the weights that results depend on."""
    return {
        "tokenizer_sha256": tokenizer_sha256(payload.tokenizer),
        "input_sha256": payload.sources.sha256,
        **payload.settings.to_dict(),
        **relevant_versions(),
    }


def tokenizer_sha256(tokenizer: Any) -> str:
    """Of what it is, not of how it was last called: a fast one remembers where it was told to cut."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    found = json.loads(fast.to_str()) if fast is not None else {"vocabulary": tokenizer.get_vocab()}
    kept = {name: part for name, part in found.items() if name not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode(errors="replace")).hexdigest()


def job_provenance(payload: Payload) -> dict[str, Any]:
    """What is needed to repeat the results, and what an explanation says of itself."""
    device, dtype = where_it_is(payload.model)
    about = describe_model(payload.model, device, dtype, payload.settings.seed)
    kind = payload.settings.device
    here = torch.device(kind if torch.cuda.is_available() else "cpu")  # a cluster may have GPUs that we do not see
    return {
        "model": about.model,
        "model_class": type(payload.model).__name__,
        "headwater": about.headwater,
        "torch": about.torch,
        "transformers": about.transformers,
        "dtype": payload.settings.dtype,
        "seed": payload.settings.seed,
        "versions": versions(),
        **machine(here),
        "device": kind,
        "threads": payload.settings.threads,
    }


def try_rows(payload: Payload) -> tuple[tuple[str, int], ...]:
    """The rules that a row meets. Three rows are tried: what fails on all of them is refused before any work."""
    with closing(payload.open(payload.model)) as explainer:
        return try_rows_with(explainer)


def try_rows_with(explainer: Explainer) -> tuple[tuple[str, int], ...]:
    rows = explainer.reading.read(0, min(PROBED, explainer.reading.sources.rows))
    usable, _ = explainer.usable(0, rows.texts, RetryState(), rows.carried)
    usable.sort(key=lambda row: row.length)
    failure: Exception | None = None
    for row in {row.id: row for row in (*usable[:1], *usable[len(usable) // 2 :][:1], *usable[-1:])}.values():
        try:
            return explainer.explain_batch([row])[0].rules_met
        except Exception as error:  # a model is anybody's code
            failure = failure or error
    if isinstance(failure, HeadwaterError):
        raise failure
    if failure is not None:
        raise ModelError(f"the model fails on these texts: {describe_error(failure)}.") from failure
    return ()
