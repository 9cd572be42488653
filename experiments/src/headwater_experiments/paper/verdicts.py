"""Which methods are level with the best on validation parts, by the rule in docs/studies/encoder-default.md.

A cell is a column (a recipe or model, and a dataset) and a measure. Numbers are those of every sample, so that methods
that were measured later can be joined to those that were measured before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwater.evaluation.measures import ACTIVATION, PRUNING
from headwater.evaluation.ranking import Floats
from headwater.evaluation.statistics import percentile_interval, resample_means

from .trainings import over_trainings
from .validation_parts import is_reported

ROWS = (
    *("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)"),
    *("lrp", "lrp-gamma(0.05)", "attnlrp", "path-gradients"),
)
MEASURES = (ACTIVATION, PRUNING)
CUT = 4.0  # standard errors that one cell can count at most

Found = dict[str, Any]  # of one model: "methods", and for each measure an array [methods, samples]


def write_found(path: Path, found: Mapping[str, Found]) -> None:
    """All models in one file, written anew after each, so that what was done is there if time runs out."""
    arrays = {
        f"{model}|{name}": np.array(values, dtype=np.float32 if name != "methods" else np.str_)
        for model, one in found.items()
        for name, values in one.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]
    unfinished.replace(path)


def read_found(paths: Sequence[Path]) -> dict[str, Found]:
    """The models of several files; where a model is in two of them, the methods of both, each once."""
    found: dict[str, Found] = {}
    for path in paths:
        with np.load(path) as arrays:
            parts: dict[str, Found] = {}
            for key in arrays.files:
                model, _, name = key.rpartition("|")
                parts.setdefault(model, {})[name] = arrays[key].tolist() if name == "methods" else arrays[key]
        for model, part in parts.items():
            found[model] = join_methods(found[model], part) if model in found else part
    return found


def join_methods(first: Found, second: Found) -> Found:
    new = [i for i, name in enumerate(second["methods"]) if name not in first["methods"]]
    joined: Found = {"methods": first["methods"] + [second["methods"][i] for i in new]}
    joined["seconds"] = first["seconds"] + second["seconds"]
    for name in ("errors", *(measure.score for measure in MEASURES)):
        joined[name] = np.concatenate([first[name], second[name][new]])
    return joined


@dataclass(frozen=True)
class Cell:
    """A candidate in one column and measure: its difference to the best row, better is positive.

    `low` and `high` are those over samples; `trainings` is the upper end over trainings, None for a single one.
    """

    column: str
    measure: str
    row: str
    value: float
    low: float
    high: float
    error: float
    trainings: float | None = None

    @property
    def level(self) -> bool:
        return self.high >= 0

    @property
    def open(self) -> bool:
        """Whether one of both intervals holds 0, or lies on the better side: as the tables print differences."""
        return self.level or (self.trainings is not None and self.trainings >= 0)

    @property
    def errors_away(self) -> float:
        away = self.value / self.error if self.error > 0 else CUT * np.sign(self.value)
        return float(np.clip(away, -CUT, CUT))


def columns_of(found: Mapping[str, Found]) -> dict[str, list[Found]]:
    """The trainings of each column."""
    columns: dict[str, list[Found]] = {}
    for model in sorted(found):
        columns.setdefault(model.rpartition("/")[0] or model, []).append(found[model])
    return columns


def compare_candidates(found: Mapping[str, Found]) -> dict[str, list[Cell]]:
    """Every candidate's cells."""
    cells: dict[str, list[Cell]] = {}
    for column, trainings in columns_of(found).items():
        names = [name for name in trainings[0]["methods"] if all(name in one["methods"] for one in trainings)]
        for measure in MEASURES:
            values = stack_trainings(trainings, names, measure.score) * measure.sign
            for method, cell in compare_column(column, measure.score, names, values):
                cells.setdefault(method, []).append(cell)
    return cells


def stack_trainings(trainings: Sequence[Found], names: Sequence[str], score: str) -> Floats:
    """[trainings, methods, samples]; molecules and digits of two trainings are others, and are paired as drawn."""
    count = min(one[score].shape[1] for one in trainings)
    rows = [[one["methods"].index(name) for name in names] for one in trainings]
    return np.stack([one[score][own, :count] for one, own in zip(trainings, rows, strict=True)]).astype(np.float64)


def compare_column(column: str, measure: str, names: Sequence[str], values: Floats) -> Iterator[tuple[str, Cell]]:
    """Each method against the row with the best mean over trainings."""
    present = [names.index(row) for row in ROWS if row in names]
    best = max(present, key=lambda i: values[:, i].mean())
    each = values - values[:, best : best + 1]
    differences = each.mean(0)
    low, high = percentile_interval(resample_means(differences.T, seed=0))
    errors = differences.std(1, ddof=1) / np.sqrt(values.shape[2])
    for i, name in enumerate(names):
        over = over_trainings(each[:, i].mean(1).tolist())
        value, below, above, error = (float(part[i]) for part in (differences.mean(1), low, high, errors))
        ends = (below, above, error, None if over is None else over.high)
        yield name, Cell(column, measure, names[best], value, *ends)


@dataclass(frozen=True)
class Verdict:
    """How a candidate stands by the rule; the highest in this order is chosen."""

    method: str
    auac: int  # of the 16 columns, level in this many
    aumse: int
    cells: int  # of all, level in this many
    errors_away: float
    open: tuple[int, int]  # of the 16 columns, not surely below in so many, by both intervals, in AUAC and AU-MSE

    @property
    def key(self) -> tuple[int, int, float]:
        return min(self.auac, self.aumse), self.cells, self.errors_away


def judge(cells: Mapping[str, Sequence[Cell]]) -> list[Verdict]:
    """All methods, the best first."""
    found = []
    for method, own in cells.items():
        counted = {m.score: [c for c in own if is_reported(c.column) and c.measure == m.score] for m in MEASURES}
        auac, aumse = (sum(cell.level for cell in part) for part in counted.values())
        unsure = tuple(sum(cell.open for cell in part) for part in counted.values())
        mean = float(np.mean([cell.errors_away for cell in own]))
        found.append(Verdict(method, auac, aumse, sum(c.level for c in own), mean, (unsure[0], unsure[1])))
    return sorted(found, key=lambda verdict: verdict.key, reverse=True)


def largest_error(found: Mapping[str, Found], method: str) -> float:
    """Of all ledgers of a method on all models, the largest, relative to its lines."""
    return max(float(one["errors"][one["methods"].index(method)]) for one in found.values() if method in one["methods"])


def write_verdicts(found: Mapping[str, Found], detail: Sequence[str] = ()) -> str:
    """The table of all methods; below it the cells of those that are asked for, or of the first."""
    cells = compare_candidates(found)
    verdicts = judge(cells)
    columns = {cell.column for own in cells.values() for cell in own}
    lines = [f"{len(columns)} columns, {sum(map(is_reported, columns))} of the 16"]
    lines.append(f"{'AUAC':>4} {'MSE':>4} {'all':>4} {'mean z':>7} {'both intervals':>15} {'ledger':>7}  method")
    for v in verdicts:
        error = largest_error(found, v.method)
        unsure = f"{v.open[0]:12d} {v.open[1]:2d}"
        lines.append(f"{v.auac:4d} {v.aumse:4d} {v.cells:4d} {v.errors_away:+7.2f} {unsure} {error:7.0e}  {v.method}")
    for method in detail or [verdicts[0].method]:
        lines += ["", method, *(write_cell(cell) for cell in cells[method])]
    return "\n".join(lines) + "\n"


def write_cell(cell: Cell) -> str:
    mark = " " if cell.level else "!"
    numbers = f"{cell.value:+9.4f} ({cell.low:+.4f} to {cell.high:+.4f})"
    return f"{mark} {cell.column:22s} {cell.measure:6s} {numbers} to {cell.row}"
