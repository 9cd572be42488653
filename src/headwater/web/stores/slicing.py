"""Rows counted: a confusion matrix of labels and predictions, and slices by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, UsageError
from ...viz.reading import with_sign
from .interface import MOST, Categories, Condition, Query, Sheet

PREDICTIONS = ("prediction", "predicted")
LABELS = ("label", "labels", "class", "gold", "y", "sentiment", "category")  # what a column of true classes is called
LEFT_OUT = ("row_id", "row", "closed", *PREDICTIONS, *LABELS)  # numbers whose mean says nothing
PARTS = 4  # of a column of many numbers, equally large
MEANS = 6  # columns whose mean a slice shows


@dataclass(frozen=True)
class Confusion:
    """How often each label met each prediction. `right` is the share that agrees, None where that is not known."""

    label: str
    prediction: str
    labels: tuple[str, ...]
    predictions: tuple[str, ...]
    counts: list[list[int]]
    right: float | None
    same: list[int] = field(default_factory=list)  # for each label, which prediction is the same class; -1: none


@dataclass(frozen=True)
class Slice:
    """The rows with one value of a column, or within a range of it."""

    name: str
    condition: Condition
    rows: int
    right: float | None
    means: dict[str, float | None]


def label_columns(sheet: Sheet) -> list[str]:
    """Columns that may hold true classes, the likeliest first."""
    predicted = prediction_column(sheet)
    if predicted is None:
        return []
    found = [name for name in sheet.columns if name not in (predicted, "closed") and sheet.categories(name) is not None]
    return sorted(found, key=lambda name: LABELS.index(name.lower()) if name.lower() in LABELS else len(LABELS))


def prediction_column(sheet: Sheet) -> str | None:
    return next((name for name in PREDICTIONS if name in sheet.columns), None)


def guess_label(sheet: Sheet, classes: Sequence[str]) -> str | None:
    """The column of true classes: called so, or with no other values than predictions have."""
    predicted = prediction_column(sheet)
    for name in label_columns(sheet):
        found, said = sheet.categories(name), sheet.categories(predicted or "")
        if name.lower() in LABELS:
            return name
        if (
            found is not None
            and said is not None
            and {*found.names} <= {*said.names, *classes}
            and len(found.names) > 1
        ):
            return name
    return None


def confusion(sheet: Sheet, query: Query, label: str | None, classes: Sequence[str] = ()) -> Confusion:
    """Labels by predictions of the rows that the query finds. `classes` are a model's names of its classes, in order:
    by them a number among the labels is a class."""
    predicted, chosen = prediction_column(sheet), label or guess_label(sheet, classes)
    if predicted is None or chosen is None:
        raise DataError("there is no column of labels here beside the predictions: run with --columns text,label.")
    rows, columns = few_values(sheet, chosen), few_values(sheet, predicted)
    kept = sheet.matching(query)
    counts = np.zeros((len(rows.names), len(columns.names)), np.int64)
    np.add.at(counts, (rows.codes[kept], columns.codes[kept]), 1)
    same = same_classes(rows, columns, classes)
    agree = int(sum(counts[i, at] for i, at in enumerate(same) if at >= 0))
    right = agree / max(1, len(kept)) if labels_are_classes(rows, same, classes) else None
    return Confusion(chosen, predicted, rows.names, columns.names, counts.tolist(), right, same)


def few_values(sheet: Sheet, name: str) -> Categories:
    found = sheet.categories(name)
    if found is None:
        raise UsageError(f"the column {name!r} has more than {MOST} values: it cannot be counted value by value.")
    return found


def same_classes(labels: Categories, predictions: Categories, classes: Sequence[str]) -> list[int]:
    """For each label the prediction of the same name, or of the class that has this number; -1 where there is none."""
    places = {name.lower(): i for i, name in enumerate(predictions.names)}
    numbered = {*predictions.names} <= {*classes}
    found = []
    for name in labels.names:
        by_number = classes[int(name)] if numbered and name.isdecimal() and int(name) < len(classes) else None
        found.append(places.get(name.lower(), places.get((by_number or "").lower(), -1)))
    return found


def labels_are_classes(labels: Categories, same: Sequence[int], classes: Sequence[str]) -> bool:
    """Whether every label is a class, though the model may never have predicted some of them."""
    known = {"", *(name.lower() for name in classes)}
    named = (at >= 0 or name.lower() in known for name, at in zip(labels.names, same, strict=True))
    return any(at >= 0 for at in same) and all(named)


def make_slices(sheet: Sheet, query: Query, by: str, classes: Sequence[str] = ()) -> list[Slice]:
    """The rows that the query finds, by the values of a column; one with many numbers in four equal parts."""
    kept = sheet.matching(query)
    agree = judge_rows(sheet, classes)
    return [
        Slice(
            name,
            condition,
            len(rows),
            finite_mean(None if agree is None else agree[rows]),
            column_means(sheet, rows, by),
        )
        for name, condition, rows in cut_rows(sheet, kept, by)
        if len(rows)
    ]


def judge_rows(sheet: Sheet, classes: Sequence[str]) -> NDArray[np.float64] | None:
    """Of every row whether its prediction is its label; None where no column says so."""
    label, predicted = guess_label(sheet, classes), prediction_column(sheet)
    if label is None or predicted is None:
        return None
    rows, columns = few_values(sheet, label), few_values(sheet, predicted)
    same = same_classes(rows, columns, classes)
    if not labels_are_classes(rows, same, classes):
        return None
    found: NDArray[np.float64] = (np.array(same)[rows.codes] == columns.codes).astype(float)
    return found


def cut_rows(sheet: Sheet, kept: NDArray[np.int64], by: str) -> list[tuple[str, Condition, NDArray[np.int64]]]:
    found = sheet.categories(by)
    if found is not None:
        return [(name, Condition(by, name), kept[found.codes[kept] == i]) for i, name in enumerate(found.names)]
    if sheet.is_text(by):
        raise UsageError(f"the column {by!r} has more than {MOST} different texts: it cannot be cut into slices.")
    return number_parts(sheet.column(by)[kept].astype(float), kept, by)


def number_parts(
    values: NDArray[np.float64], kept: NDArray[np.int64], by: str
) -> list[tuple[str, Condition, NDArray[np.int64]]]:
    real = np.sort(values[np.isfinite(values)])
    if not len(real):
        return []
    edges = [float(real[0]), *(float(part[-1]) for part in np.array_split(real, PARTS) if len(part))]
    made = []
    for i, (low, high) in enumerate(pairwise(edges)):
        start = low if i == 0 else float(np.nextafter(low, np.inf))
        if start <= high:
            condition = Condition(by, None, start, high)
            inside = kept[(values >= start) & (values <= high)]
            made.append((f"{with_sign(low, 3).strip()} to {with_sign(high, 3).strip()}", condition, inside))
    return made


def column_means(sheet: Sheet, rows: NDArray[np.int64], by: str) -> dict[str, float | None]:
    names = [name for name in sheet.columns if not sheet.is_text(name) and name.lower() not in LEFT_OUT and name != by]
    return {name: finite_mean(sheet.column(name)[rows].astype(float)) for name in names[:MEANS]}


def finite_mean(values: NDArray[np.float64] | None) -> float | None:
    if values is None:
        return None
    real = values[np.isfinite(values)]
    return float(real.mean()) if len(real) else None
