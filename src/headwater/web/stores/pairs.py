"""Two runs side by side: two models, or two methods, on the same rows, those first where they differ most."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, UsageError
from ...store.words import whole_words
from .interface import Sheet, Store
from .runs import COUNTED, RunStore

DIFFER, MOVED, SCORES = "predictions differ", "relevance moved", "score difference"


def pair_sheet(one: Store, other: Store) -> Sheet:
    """A row for every row that both runs explain, sorted by where they differ: in the prediction, then in relevance.

    `relevance moved` is 0 where both give their relevance to the same words in the same shares, 1 where they give it to
    others, or with the other sign: half of the sum of |a/|a| - b/|b|| over the words. Of a large run it is known for
    the first rows.
    """
    if not isinstance(one, RunStore) or not isinstance(other, RunStore):
        raise UsageError("two runs of `headwater run` stand side by side; other results do not.")
    first, second = rows_in_common(one.sheet(), other.sheet())
    if not len(first):
        raise DataError(f"{one.name} and {other.name} have no row in common: their texts are not the same.")
    called = pair_names(one, other)
    a, b = one.sheet().columns, other.sheet().columns
    columns: dict[str, NDArray[Any]] = {"row_id": a["row_id"][first]}
    columns[DIFFER] = a["prediction"][first] != b["prediction"][second]
    columns[MOVED] = compare_relevance(one, other, columns["row_id"])
    columns[SCORES] = np.abs(a["score"][first].astype(float) - b["score"][second].astype(float))
    for name in ("prediction", "score"):
        columns[f"{name} ({called[0]})"] = a[name][first]
        columns[f"{name} ({called[1]})"] = b[name][second]
    for name in one.run.manifest.columns.values():
        columns[name] = a[name][first]
    order = np.lexsort((-np.nan_to_num(columns[MOVED], nan=-1.0), ~columns[DIFFER].astype(bool)))
    text = columns.pop("text")
    return Sheet({name: column[order] for name, column in {**columns, "text": text}.items()})


def rows_in_common(one: Sheet, other: Sheet) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places, in each, of the rows that have the same number and the same text in both."""
    if not len(one) or not len(other):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, first, second = np.intersect1d(one.columns["row_id"], other.columns["row_id"], return_indices=True)
    same = one.columns["text"][first] == other.columns["text"][second]
    return first[same], second[same]


def pair_names(one: RunStore, other: RunStore) -> tuple[str, str]:
    """What tells the two apart: their methods, else their models, else their names.

    A model in a directory has a long name; then the names of the runs are easier to read.
    """
    models = (one.run.provenance.model, other.run.provenance.model)
    for first, second in (
        (one.run.method, other.run.method),
        *([] if any(Path(name).is_absolute() for name in models) else [models]),
        (one.name, other.name),
    ):
        if first != second:
            return first, second
    return one.id, other.id


def compare_relevance(one: RunStore, other: RunStore, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    a, b = one.relevance(COUNTED), other.relevance(COUNTED)
    found = (compare_rows(a[i], b[i]) if i in a and i in b else np.nan for i in ids.tolist())
    return np.fromiter(found, float, len(ids))


def compare_rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    if one["starts"] is not None and one["starts"] == other["starts"] and one["ends"] == other["ends"]:
        return share_apart(np.asarray(one["relevance"], float), np.asarray(other["relevance"], float))
    a, b = by_place(one), by_place(other)
    places = sorted({*a, *b})
    return share_apart(np.array([a.get(p, 0.0) for p in places]), np.array([b.get(p, 0.0) for p in places]))


def by_place(row: Mapping[str, Any]) -> dict[int, float]:
    """Relevance by where a word begins, that of special tokens together: so tokenizers can be compared."""
    found = {word.start: word.relevance for word in whole_words(row)}
    special = sum(v for v, s in zip(row["relevance"], row["special"], strict=True) if s)
    return {**found, -1: special}


def share_apart(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Half the sum of what differs between two lists of relevance, each of total size 1; of two empty ones 0."""
    sizes = float(np.abs(a).sum()), float(np.abs(b).sum())
    if 0.0 in sizes:
        return 0.0 if sizes == (0.0, 0.0) else 1.0
    return float(np.abs(a / sizes[0] - b / sizes[1]).sum() / 2)
