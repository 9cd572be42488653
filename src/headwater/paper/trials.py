"""The measurements behind the tables: every dataset's test part, every method, by the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.data import Table, experiment, named
from headwater.measures.evaluation import evaluate
from headwater.measures.results import Evaluation
from headwater.methods import resolve
from headwater.models.bundled import load_classifier

from .checkpoints import find
from .published import OURS, ROWS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FLOW = "a-flow"
FLOW_ROWS = (FLOW, "lrp(ah+ln)")  # the second for comparison on the same texts
CHUNK, FLOW_CHUNK = 32, 8  # samples; small, so that workers end together
METHODS = tuple(name for name in (*ROWS, *OURS) if name != FLOW)


@dataclass(frozen=True)
class Size:
    """How much is measured. `rows` draws that many samples of every dataset with the seed; None takes all.

    Maximum flow takes seconds for a sentence and half an hour for a review, so `flow_rows` texts of at most
    `flow_tokens` tokens stand for the dataset, except where a dataset is named in `flow_whole`.
    """

    rows: int | None = None
    flow_rows: int = 200
    flow_tokens: int = 64
    flow_whole: tuple[str, ...] = ("sst2",)
    max_length: int | None = None
    seed: int = 0


FULL = Size()
QUICK = Size(rows=16, flow_rows=4, flow_tokens=20, flow_whole=(), max_length=48)


@dataclass(frozen=True)
class Trial:
    """One dataset and one model: the evaluation of all methods but A-Flow, and that of A-Flow."""

    dataset: str
    kind: str
    main: Evaluation
    flow: Evaluation | None


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

    A dataset or method that does not exist and a model that was not trained are errors before any work.
    """
    places = {name: find(kind, name) for name in datasets if named(name)}
    for method in methods:
        resolve(method)
    for name, path in places.items():
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
