"""Explanations that a run has made already, taken from its directory in place of being made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import DataError, UsageError
from ..inputs.classes import Names
from ..results.explanation import Explanation
from ..store.manifest import holds_run
from ..store.runs import StoredRun, open_run
from .provenance import model_sha256, shorten
from .sources import Labelled, read_labelled


def open_given_run(data: Any, model: nn.Module) -> StoredRun | None:
    """The run whose directory `data` is, if it is one; refused if it is not whole, or of another model."""
    if not isinstance(data, (str, Path)) or not holds_run(data):
        return None
    run = open_run(data)
    if not run.finished:
        raise DataError(f"the run in {data} is not finished; the command that began it goes on with it.")
    check_asked(run, "model_sha256", model_sha256(model), "the weights of the model that was explained")
    return run


def check_asked(run: StoredRun, name: str, wanted: Any, what: str) -> None:
    """What is in the directory is what is asked for."""
    found = run.manifest.asked[name]
    if found != wanted:
        raise UsageError(
            f"{run.path}: {what} is {shorten(found)}, asked for is {shorten(wanted)}. Ask for the same, or run into "
            "another directory."
        )


@dataclass(frozen=True)
class Stored:
    """The rows of an evaluation in a run. `rows` are their numbers there, in the order of the evaluation's texts."""

    run: StoredRun
    rows: Sequence[int]
    classes: tuple[str, ...]

    def explanation(self, number: int, method: str, target: int, tokens: Sequence[str]) -> Explanation | None:
        """None where the run has another method or class, or cut the text elsewhere: it is then explained here."""
        if method != self.run.method:
            return None
        found = self.run.explanation(self.rows[number])
        if found is None or found.target != self.classes[target] or found.tokens != tuple(tokens):
            return None
        return found


def read_labelled_rows(run: StoredRun, label_column: str, names: Names, needs_label: bool) -> Labelled:
    """The rows that were explained, with their labels where they are needed or went along."""
    wanted = ["text"]
    if needs_label or label_column in run.manifest.columns:
        wanted.append(run.carried(label_column))
    rows = list(run.rows(["row_id", *wanted]))
    columns = {name: [row[name] for row in rows] for name in wanted}
    table = read_labelled(columns, "text", wanted[-1] if len(wanted) > 1 else "", names, needs_label)
    return replace(table, rows=[row["row_id"] for row in rows], source=str(run.path))


def check_run(run: StoredRun, methods: Sequence[str], dtype: str, seed: int) -> None:
    """An evaluation asks for the logit of a class; a run of anything else has nothing for it."""
    if run.method not in methods:
        raise UsageError(
            f"{run.path} was explained by {run.method}, which is none of the methods: {', '.join(methods)}."
        )
    for name, wanted in {"output": "logit", "at": "embeddings", "dtype": dtype, "seed": seed}.items():
        check_asked(run, name, wanted, f"its {name}")
    if run.manifest.asked.get("sinks") == "aside":
        raise UsageError(f"{run.path} has the first token of every text put aside: run with sinks='show' (--sinks).")
    target = run.manifest.asked["target"]
    if target is not None and " - " in str(target):
        raise UsageError(f"{run.path} explains {target!r}; needed is the score of a class: run without --target.")
