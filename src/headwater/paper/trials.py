"""The measurements behind the tables: every dataset's test part, every method, by the paper's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.data import Table, experiment
from headwater.errors import HeadwaterError, UsageError
from headwater.measures.evaluation import evaluate
from headwater.measures.results import Evaluation
from headwater.methods import resolve
from headwater.models.bundled import load_classifier

from . import graph_data, graph_trials
from .checkpoints import find, kept
from .published import GRAPHS, OURS, ROWS, TEXTS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FLOW, FLOW_ROWS = graph_trials.FLOW, graph_trials.FLOW_ROWS
CHUNK, FLOW_CHUNK = graph_trials.CHUNK, graph_trials.FLOW_CHUNK
GRAPH = "graph"  # the kind of the models of graphs
METHODS = tuple(name for name in (*ROWS, *OURS) if name != FLOW)


@dataclass(frozen=True)
class Size:
    """How much is measured: `rows` samples of a dataset, `digits` of MNIST, drawn with the seed; None takes all.

    Maximum flow takes seconds for a sentence and half an hour for a review, so `flow_rows` texts of at most
    `flow_tokens` tokens stand for the dataset, except where a dataset is named in `flow_whole`. A
    digit takes it 8 seconds, so `flow_digits` of them are enough.
    """

    rows: int | None = None
    flow_rows: int = 200
    flow_tokens: int = 64
    flow_whole: tuple[str, ...] = ("sst2", "bace")
    max_length: int | None = None
    seed: int = 0
    digits: int | None = 1000
    flow_digits: int = 50


FULL = Size()
QUICK = Size(rows=16, flow_rows=4, flow_tokens=20, flow_whole=(), max_length=48, digits=4, flow_digits=1)


@dataclass(frozen=True)
class Trial:
    """One dataset and one model: the evaluation of all methods but A-Flow, and that of A-Flow.

    Of graphs, `main` takes nodes out and `masked` masks them; `roc_auc` is that of the whole test part, where the
    paper gives this of its model.
    """

    dataset: str
    kind: str
    main: Evaluation
    flow: Evaluation | None
    masked: Evaluation | None = None
    roc_auc: float | None = None

    @property
    def title(self) -> str:
        return graph_data.title(self.dataset)


def kind_of(kind: str, dataset: str) -> str:
    """The kind of the model that stands for a dataset in the tables of `kind`: graphs have one of their own."""
    graph_data.check_known(dataset)
    if dataset not in GRAPHS:
        return kind
    if kind != "small":
        raise UsageError(f"{kind} reads texts, and {dataset} has graphs. Leave it out, or ask for --model small.")
    return GRAPH


def available(kind: str, leave_out: Callable[[str], None] | None = None) -> list[str]:
    """The seven texts, and beside the small models the graphs whose model is there.

    Graphs that cannot be measured here, for want of data or a library, are left out, and `leave_out` is told why.
    """
    graphs = [name for name in GRAPHS if kind == "small" and kept(GRAPH, name)]
    for name in list(graphs):
        try:
            graph_trials.check(name, find(GRAPH, name))
        except HeadwaterError as error:
            graphs.remove(name)
            if leave_out is not None:
                leave_out(f"{name} is left out: {error}")
    return [*TEXTS, *graphs]


def trials(
    kind: str,
    datasets: Sequence[str],
    out: Path,
    *,
    methods: Sequence[str] = METHODS,
    flow: bool = True,
    size: Size = FULL,
    device: str | None = None,
    batch_size: int = 32,
    workers: int = 1,
) -> Iterator[Trial]:
    """Measure one dataset after the other. What lies finished in `out` is not measured again.

    A dataset or method that does not exist, a model that was not trained and graphs that cannot be read are errors
    before any work.
    """
    places = {name: find(kind_of(kind, name), name) for name in datasets}
    for method in methods:
        resolve(method)
    for name in (name for name in places if name in GRAPHS):
        graph_trials.check(name, places[name])
    for name, path in places.items():
        if name in GRAPHS:
            place = out / GRAPH / name
            shared = {"device": device, "batch_size": batch_size, "workers": workers}
            yield Trial(name, GRAPH, *graph_trials.measured(name, path, place, methods, flow, size, **shared))
            continue
        model, tokenizer = load_classifier(path)
        table = experiment(name).test
        protocol = "ali2022" if size.max_length is None else f"ali2022(max_length={size.max_length})"
        place = out / kind / name
        options = {"tokenizer": tokenizer, "protocol": protocol, "device": device, "runtime": False, "seed": size.seed}
        options |= {"workers": workers, "limit": size.rows, "batch_size": batch_size, "chunk_size": CHUNK}
        main = evaluate(model, table, methods=methods, out=place, **options)
        found = None
        if flow:
            part, limit = flow_part(table, name, size, tokenizer)
            options |= {"limit": limit, "batch_size": 1, "chunk_size": FLOW_CHUNK}
            found = evaluate(model, part, methods=FLOW_ROWS, out=place / FLOW, **options)
        yield Trial(name, kind, main, found)


def flow_part(table: Table, name: str, size: Size, tokenizer: PreTrainedTokenizerBase) -> tuple[Table, int | None]:
    """The texts that A-Flow is measured on, and how many of them are drawn."""
    if name in size.flow_whole and size.rows is None:
        return table, None
    lengths = [
        len(ids) for ids in tokenizer(table.texts, truncation=True, max_length=size.flow_tokens + 1)["input_ids"]
    ]
    return table.rows([i for i, n in enumerate(lengths) if n <= size.flow_tokens]), size.flow_rows
