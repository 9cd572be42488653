"""The measurements behind the tables: every dataset's test part, every method, by the paper's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, UsageError
from headwater.evaluation.results import Evaluation
from headwater.evaluation.run import evaluate
from headwater.methods import resolve_method
from headwater.models.bundled import load_classifier
from headwater_experiments.data import LabelledTexts, experiment
from headwater_experiments.paper.checkpoints import RECIPES, find, seeds

from . import graph_data, graph_trials
from .published import GRAPHS, OURS, ROWS, TEXTS
from .sizes import FULL as FULL
from .sizes import QUICK as QUICK
from .sizes import Size as Size

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FLOW, FLOW_ROWS = graph_trials.FLOW, graph_trials.FLOW_ROWS
CHUNK, FLOW_CHUNK = graph_trials.CHUNK, graph_trials.FLOW_CHUNK
METHODS = tuple(name for name in (*ROWS, *OURS) if name != FLOW)


@dataclass(frozen=True)
class Run:
    """One training: the evaluation of all methods but A-Flow, and that of A-Flow.

    Of graphs, `main` takes nodes out and `masked` masks them; `roc_auc` is that of the whole test part, where the
    paper gives this of its model.
    """

    seed: int
    main: Evaluation
    flow: Evaluation | None
    masked: Evaluation | None = None
    roc_auc: float | None = None


@dataclass(frozen=True)
class Trial:
    """One dataset and one recipe: what was measured of every training, on the same samples."""

    dataset: str
    kind: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        return graph_data.dataset_title(self.dataset)

    @property
    def mains(self) -> tuple[Evaluation, ...]:
        return tuple(run.main for run in self.runs)

    @property
    def main(self) -> Evaluation:
        """The first training, for what is shown of one."""
        return self.runs[0].main

    @property
    def flow(self) -> Evaluation | None:
        return self.runs[0].flow

    @property
    def masked(self) -> Evaluation | None:
        return self.runs[0].masked


def check_reads(kind: str, dataset: str) -> None:
    """Refuses a dataset that does not exist, and graphs for a model that reads texts."""
    graph_data.check_known(dataset)
    if dataset in GRAPHS and kind not in RECIPES:
        raise UsageError(f"{kind} reads texts, and {dataset} has graphs. Leave it out, or ask for --model small.")


def available(kind: str, leave_out: Callable[[str], None] | None = None) -> list[str]:
    """The seven texts, and beside the paper's models the graphs whose model is there.

    Graphs that cannot be measured here, for want of data or a library, are left out, and `leave_out` is told why.
    """
    graphs = [name for name in GRAPHS if kind in RECIPES and seeds(kind, name)]
    for name in list(graphs):
        try:
            graph_trials.check(name, find(kind, name))
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
    first: int | None = None,
) -> Iterator[Trial]:
    """Measure one dataset after the other, every training of it. What lies finished in `out` is not measured again.

    `first` takes so many trainings of each at most; A-Flow is measured on the first alone. A dataset or method that
    does not exist, a model that was not trained and graphs that cannot be read are errors before any work.
    """
    for name in datasets:
        check_reads(kind, name)
    for method in methods:
        resolve_method(method)
    places = {name: find_models(kind, name, first) for name in datasets}
    for name in (name for name in places if name in GRAPHS):
        graph_trials.check(name, places[name][0][0])
    asked = Asked(tuple(methods), flow, size, {"device": device, "batch_size": batch_size, "workers": workers})
    for name, models in places.items():
        measure = run_graphs if name in GRAPHS else run_texts
        runs = []
        for number, (path, seed) in enumerate(models):
            this = replace(asked, flow=flow and number == 0)
            runs.append(measure(name, path, out / kind / name / str(seed), seed, this))
        yield Trial(name, kind, tuple(runs))


@dataclass(frozen=True)
class Asked:
    """What is measured of a model. `shared` are the options of all its evaluations: where, and by how many workers."""

    methods: tuple[str, ...]
    flow: bool
    size: Size
    shared: Mapping[str, Any]


def find_models(kind: str, name: str, first: int | None) -> list[tuple[Path, int]]:
    """The models to measure and their seeds; an error that says how one is trained, where there is none."""
    find(kind, name)
    return [(find(kind, name, seed), seed) for seed in seeds(kind, name)[:first]]


def run_graphs(name: str, path: Path, place: Path, seed: int, asked: Asked) -> Run:
    found = graph_trials.measure_graphs(name, path, place, asked.methods, asked.flow, asked.size, **asked.shared)
    return Run(seed, *found)


def run_texts(name: str, path: Path, place: Path, seed: int, asked: Asked) -> Run:
    model, tokenizer = load_classifier(path)
    table, size = experiment(name).test, asked.size
    protocol = "ali2022" if size.max_length is None else f"ali2022(max_length={size.max_length})"
    options = {**asked.shared, "tokenizer": tokenizer, "protocol": protocol, "runtime": False, "seed": size.seed}
    main = evaluate(model, table, methods=asked.methods, out=place, limit=size.rows, chunk_size=CHUNK, **options)
    if not asked.flow:
        return Run(seed, main, None)
    part, limit = flow_part(table, name, size, tokenizer)
    options |= {"limit": limit, "batch_size": 1, "chunk_size": FLOW_CHUNK}
    return Run(seed, main, evaluate(model, part, methods=FLOW_ROWS, out=place / FLOW, **options))


def flow_part(
    table: LabelledTexts, name: str, size: Size, tokenizer: PreTrainedTokenizerBase
) -> tuple[LabelledTexts, int | None]:
    """The texts that A-Flow is measured on, and how many of them are drawn."""
    if name in size.flow_whole and size.rows is None:
        return table, None
    lengths = [
        len(ids) for ids in tokenizer(table.texts, truncation=True, max_length=size.flow_tokens + 1)["input_ids"]
    ]
    return table.rows([i for i, n in enumerate(lengths) if n <= size.flow_tokens]), size.flow_rows
