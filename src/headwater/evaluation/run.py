"""`evaluate`: how faithful methods are to a model, on labelled texts, graphs or images, by a named protocol."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import methods as registry
from ..api.requests import Model, take_model
from ..engine.model import describe_model, prepare_model, where_it_is
from ..engine.session import answer_request
from ..errors import UsageError, check_least
from ..inputs.classes import Names, class_names
from ..inputs.restoring import restores
from ..memory.estimate import parse_bytes
from ..memory.policy import MemoryPolicy
from ..memory.recompute import Count
from ..names import split_names
from . import (
    notebook,  # noqa: F401 - an Evaluation is shown by it
    protocols,
)
from .bounds import Bounds, budget, model_bytes, share_limit
from .cost import Cost, measure_costs
from .files import EvaluationDirectory, load_evaluation
from .fitting import fit_bounds
from .graphs import GraphSource, read_graphs, takes_graphs, with_reading
from .images import ImageSource, read_images, takes_images, with_replacement
from .job import EvaluationJob
from .measures import DEFAULT, RANDOMISATION, Measure, resolve_measures, scrambles
from .protocols import Protocol
from .provenance import describe_work
from .results import Evaluation, summarise
from .sanity import scramble_and_compare
from .sources import Labelled, read_labelled
from .stored import Stored, check_run, open_given_run, read_labelled_rows
from .tokens import TokenSource, check_says_embeddings, check_takes_ids

CHUNK = 128
ROUNDS, TIMED = 3, 8


@restores
def evaluate(
    model: Model,
    data: Any,
    *,
    methods: str | Iterable[str],
    tokenizer: Any = None,
    processor: Any = None,
    protocol: str | Protocol = "ali2022",
    measures: str | Measure | Iterable[str | Measure] = DEFAULT,
    text_column: str = "text",
    label_column: str = "label",
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    batch_tokens: int | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    runtime: bool = True,
    progress: bool | None = None,
    chunk_size: int = CHUNK,
    workers: int = 1,
    patch: int | None = None,
    keep: str = "device",
    recompute: Count = None,
    memory_limit: int | str | None = None,
) -> Evaluation:
    """How faithful each method's explanations are: `r["lrp"].auac`, `.aumse`, `.interval()`, `r.compare("lrp", "gi")`.

    A row that cannot be used is named before any work is done. Samples are worked off in chunks, and only their numbers
    are kept, some hundred bytes a sample and method. Conservation is always measured.

    Args:
        model: a module, a directory or hub name (`headwater.load`), or a pipeline of transformers.
        data: a path (parquet, csv, tsv, jsonl), a `Table`, a list or generator of (text, label), or anything with
            columns by name (a dict, pandas, datasets). Labels are class indices or names. The directory of a run
            (`hw.run`) is such data, too: what it has explained, for the class that is asked for, is not explained
            again. For a Graphormer it holds graphs where others hold texts: a list of (graph, label), of graphs that
            know their label, or a table whose `text_column` has SMILES strings. With `processor` it holds images: a
            list of (image, label), or a table whose `text_column` has paths.
        methods: names of methods, in a list or between commas.
        tokenizer: as for `explain`.
        processor: as for `explain`. Patches are added to an empty image or taken out; a missing one has the processor's
            mean colour: `ali2022(replacement=mean)`.
        protocol: how it is measured. Its name says what taking a node out of a graph means: `ali2022(removal=induced)`,
            or `ali2022(removal=masked)`.
        measures: what is measured: "activation" and "pruning" (the paper's), "insertion", "deletion",
            "comprehensiveness", "sufficiency", "randomisation", all those as "all"; "infidelity" and "sensitivity"
            through captum; one that a plug-in adds, or a `Measure`.
        text_column: the column of the texts.
        label_column: the column of the labels.
        limit: draws at most so many rows, by the seed.
        seed: of all that is drawn.
        batch_size: so many texts are explained at once.
        batch_tokens: perturbed inputs run in batches of so many tokens.
        device: as for `explain`.
        dtype: as for `explain`.
        out: a directory for the results; an interrupted run takes up there where it stopped.
        resume: False begins anew in `out`.
        runtime: measures the cost against a forward pass, too.
        progress: shows a bar; None does so on a terminal.
        chunk_size: so many samples are worked off, and kept, at a time.
        workers: so many processes share the chunks, each with a copy of the model: worth it on a GPU, which one process
            keeps waiting.
        patch: squares of so many pixels in place of the model's own patches.
        keep: as for `explain`.
        recompute: as for `explain`, for methods that are made of rules.
        memory_limit: "24GiB", or bytes, all copies of the model included. It picks `keep` and `recompute`, and bounds
            the batches of texts that are explained and of perturbed inputs.

    Returns:
        An `Evaluation`.

    Raises:
        UsageError: an option is wrong, or `out` holds another evaluation.
        DataError: the data is missing, or a row cannot be used.
        ModelError: as for `explain`.
        MissingExtra: reading a file or keeping results needs a package that is not installed.

    Example:
        >>> texts = [("The plot is thin, but the cast is wonderful.", "positive"), ("a dull film", "negative")]
        >>> r = hw.evaluate("headwater/sentiment", texts, methods=["random", "lrp"], runtime=False, progress=False)
        >>> r["lrp"].auac > r["random"].auac
        True
    """
    chosen, scramble = resolve_measures(measures), scrambles(measures)
    methods = split_names(methods) if isinstance(methods, str) else methods
    names = tuple(dict.fromkeys(registry.resolve_method(name).name for name in methods))
    if not names:
        raise UsageError("no methods to evaluate; pass methods=['gi', 'lrp'].")
    check_least("chunk_size", chunk_size)
    check_least("workers", workers)
    rule = protocols.resolve_protocol(protocol)
    model, readers = take_model(model, {"tokenizer": tokenizer, "processor": processor, "device": device})
    tokenizer, processor = readers["tokenizer"], readers["processor"]
    data = list(data) if isinstance(data, Iterator) else data
    ready = prepare_model(model, device, dtype)
    source: TokenSource | GraphSource | ImageSource
    if takes_images(processor, data):
        rule = with_replacement(rule)
        needs_label = rule.target == "true"
        table = read_images(ready, processor, data, text_column, label_column, needs_label).draw(limit, seed)
        source = ImageSource(ready, table.texts, batch_size, patch)
    elif takes_graphs(ready):
        rule = with_reading(rule)
        table = read_graphs(ready, data, text_column, label_column, rule.target == "true").draw(limit, seed)
        source = GraphSource(ready, table.texts, rule, batch_size)
    else:
        run = open_given_run(data, model)
        if run is None:
            check_takes_ids(ready)
            check_says_embeddings(ready)
            table = read_labelled_texts(ready, tokenizer, data, text_column, label_column, rule).draw(limit, seed)
            source = TokenSource(ready, tokenizer, table.texts, rule, batch_size)
        else:
            check_run(run, names, describe_model(ready, *where_it_is(ready), seed).dtype, seed)
            classes = read_classes(ready, tokenizer, rule)
            table = read_labelled_rows(run, label_column, classes, rule.target == "true").draw(limit, seed)
            source = TokenSource(
                ready,
                tokenizer,
                table.texts,
                rule,
                batch_size,
                Stored(run, table.rows, tuple(map(classes, range(classes.size)))),
            )
    asked = {"measures": [m.name for m in chosen] + [RANDOMISATION] * scramble, "seed": seed}
    about = describe_evaluation(model, ready, table, names, source, seed)
    if isinstance(source, TokenSource) and source.stored is not None:
        about["run"] = asked["run"] = source.stored.run.manifest.job
    place = open_directory(out, about, rule, {**asked, "chunk": chunk_size}, resume)
    if out is not None and place is not None and place.finished:
        return load_evaluation(out, chosen)
    began = time.perf_counter()
    room, at_once = MemoryPolicy(keep, recompute), budget(ready, batch_tokens)
    source.bounds = Bounds(room)
    if memory_limit is not None:
        limit = share_limit(parse_bytes(memory_limit), model_bytes(ready), workers)
        source.bounds = fit_bounds(source, names, limit, seed, others=int(scramble))
        at_once = source.bounds.within(at_once)
    job = EvaluationJob(source, table.rows, table.labels, names, chosen, rule, at_once, seed)
    samples = job.run(chunk_size, place, progress, workers)
    runtimes = measure_runtimes(source, names, seed) if runtime else {}
    random = scramble_and_compare(source, samples.common["predicted"], names, seed) if scramble else {}
    about["seconds"] = round(time.perf_counter() - began, 3)
    evaluation = summarise(samples, chosen, rule, about, runtimes, random)
    if place is not None:
        place.finish(evaluation)
    return evaluation


def read_labelled_texts(
    model: nn.Module, tokenizer: Any, data: Any, text_column: str, label_column: str, rule: Protocol
) -> Labelled:
    """The data, checked row by row against the classes of the model."""
    names = read_classes(model, tokenizer, rule)
    return read_labelled(data, text_column, label_column, names, rule.target == "true", tokenizer)


def read_classes(model: nn.Module, tokenizer: Any, rule: Protocol) -> Names:
    return class_names(getattr(model, "config", None), TokenSource(model, tokenizer, ["a"], rule).classes())


def describe_evaluation(
    given: nn.Module,
    ready: nn.Module,
    table: Labelled,
    names: Sequence[str],
    source: TokenSource | GraphSource | ImageSource,
    seed: int,
) -> dict[str, Any]:
    """What is needed to repeat the result."""
    found = {
        "data": table.source,
        "data_sha256": table.sha256,
        "samples": len(table),
        "methods": list(names),
        **source.describe(),
        "batch_size": source.batch_size,
    }
    return describe_work(given, ready, seed, found)


def open_directory(
    out: str | Path | None, about: Mapping[str, Any], rule: Protocol, asked: Mapping[str, Any], resume: bool
) -> EvaluationDirectory | None:
    """The directory, once it is sure that what lies there belongs to the same evaluation."""
    if out is None:
        return None
    told = ("model_sha256", "data_sha256", "methods", "replacement", "patch", "dtype")
    same = {name: about[name] for name in told if name in about}
    version = about["versions"]["headwater"]
    return EvaluationDirectory(out, {**same, "protocol": rule.to_dict(), **asked, "headwater": version}, resume)


def measure_runtimes(
    source: TokenSource | GraphSource | ImageSource, names: Sequence[str], seed: int
) -> dict[str, Cost]:
    """Each method's cost on a batch of the first samples, as a ratio to the forward pass."""
    most = min(source.bounds.samples_of(name, source.batch_size) for name in names)
    count = min(TIMED, most, len(source)) if source.mixes else 1
    part = source.part(range(count))
    jobs = {name: partial(answer_request, part.request(range(count), name, None, seed)) for name in names}
    found = measure_costs(source.model, part.fields(range(count)), (), ROUNDS, others=jobs)
    return {cost.name: cost for cost in found if cost.name in names}
