"""An evaluation on disk: one JSON with the results and what is needed to repeat them, one parquet with every sample.

While it runs, finished chunks lie beside them, each written under another name and then renamed, so that a chunk is
whole or not there. The JSON says from the start what is being evaluated: another model, other data or other choices
are noticed, not mixed in.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError
from ..store.columns import need_arrow
from .cost import Cost
from .measures import COMMON, Measure, is_measure, list_measures, resolve_measures
from .protocols import Protocol
from .provenance import shorten
from .results import Evaluation, Samples, summarise
from .statistics import MeanEstimate

FORMAT = 1
RESULT, SAMPLES, PARTS = "evaluation.json", "samples.parquet", "parts"


class EvaluationDirectory:
    """The directory of one evaluation, which `fingerprint` tells from every other."""

    def __init__(self, path: str | Path, fingerprint: Mapping[str, Any], resume: bool) -> None:
        need_arrow("saving an evaluation")
        self.path: Path = Path(path)
        self.fingerprint: dict[str, Any] = dict(fingerprint)
        found = read_state(self.path)
        if found is None:
            check_names_free(self.path)
        elif resume:
            check_same_evaluation(self.path, found["fingerprint"], self.fingerprint)
            self.finished: bool = found["state"] == "finished"
            return
        self.finished = False
        self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self.path / PARTS, ignore_errors=True)
        try:
            (self.path / SAMPLES).unlink(missing_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
            write_state(self.path / RESULT, {"format": FORMAT, "state": "running", "fingerprint": self.fingerprint})
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.") from error

    def part(self, number: int) -> Samples | None:
        """A chunk that was finished earlier."""
        path = self._part(number)
        return load_samples(path, self.fingerprint["methods"]) if path.is_file() else None

    def keep(self, number: int, samples: Samples) -> None:
        (self.path / PARTS).mkdir(exist_ok=True)
        write_samples(self._part(number), samples)

    def _part(self, number: int) -> Path:
        return self.path / PARTS / f"{number:06d}.parquet"

    def finish(self, evaluation: Evaluation) -> None:
        write_samples(self.path / SAMPLES, evaluation.samples)
        done = {"format": FORMAT, "state": "finished", "fingerprint": self.fingerprint}
        write_state(self.path / RESULT, {**done, **evaluation.to_dict()})
        shutil.rmtree(self.path / PARTS, ignore_errors=True)


def check_names_free(path: Path) -> None:
    """What lies there under our names, where no evaluation was begun, is somebody else's and would be deleted."""
    taken = [name for name in (SAMPLES, PARTS) if (path / name).exists()]
    if taken:
        raise UsageError(f"{path} holds no evaluation and has {taken[0]} of its own. Choose another directory.")


def read_state(path: Path) -> dict[str, Any] | None:
    """What the directory says of itself; None where it holds no evaluation."""
    file = path / RESULT
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is no JSON: {error}.") from error
    if found.get("format") != FORMAT:
        raise DataError(f"{file} has the format {found.get('format')!r}; this version reads {FORMAT}.")
    return found


def check_same_evaluation(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Chunks of another model, of other data or by other choices must not be counted in."""
    other = [name for name in wanted if to_json(found.get(name)) != to_json(wanted[name])]
    if other:
        said = "; ".join(f"{name} was {shorten(found.get(name))}, is {shorten(wanted[name])}" for name in other)
        raise UsageError(
            f"{path} holds another evaluation: {said}. Choose another directory, or begin anew with resume=False "
            "(--no-resume), which deletes it."
        )


def load_evaluation(path: str | Path, measures: Iterable[Measure] = ()) -> Evaluation:
    """A finished evaluation from its directory; `measures` are those in it that nobody has registered."""
    path = Path(path)
    found = read_state(path)
    if found is None:
        raise DataError(f"{path} holds no {RESULT}; it is written by `headwater evaluate --out {path}`.")
    if found["state"] != "finished":
        raise DataError(f"the evaluation in {path} was interrupted; run it again with the same options to finish it.")
    measured = found["methods"]
    runtimes = {name: Cost(**m["runtime"]) for name, m in measured.items() if m["runtime"]}
    randomised = {name: read_estimate(m["randomisation"]) for name, m in measured.items() if m["randomisation"]}
    samples = load_samples(path / SAMPLES, list(measured))
    there = [name for name in found["fingerprint"]["measures"] if name in samples.values[next(iter(measured))]]
    given = {measure.name: measure for measure in measures}
    for name in there:
        if name not in given and not is_measure(name):
            raise DataError(
                f"{path} holds the measure {name!r}, which is not known here: install the package that adds it, or "
                f"register it first. Known: {', '.join(list_measures())}."
            )
    chosen = resolve_measures(given.get(name, name) for name in there)
    protocol = Protocol.from_dict(found["protocol"])
    return summarise(samples, chosen, protocol, found["provenance"], runtimes, randomised)


def read_estimate(found: Mapping[str, float | None]) -> MeanEstimate:
    return MeanEstimate(**{name: math.nan if value is None else value for name, value in found.items()})


def write_samples(path: Path, samples: Samples) -> None:
    """One row per sample and method: what is known of the sample, then the method's numbers; curves are lists."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = [
        pa.table(
            {
                "method": pa.array([method] * len(samples)),
                **{name: arrow(values) for name, values in samples.common.items()},
                **{name: arrow(values) for name, values in columns.items()},
            }
        )
        for method, columns in samples.values.items()
    ]
    unfinished = path.with_suffix(".unfinished")
    parquet.write_table(pa.concat_tables(tables), unfinished, compression="zstd")
    os.replace(unfinished, path)


def arrow(values: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def load_samples(path: Path, methods: Sequence[str]) -> Samples:
    need_arrow(f"reading {path.name}")
    from pyarrow import parquet

    table = parquet.read_table(path)
    of = np.array(table.column("method").to_pylist())
    columns = {name: column(table, name) for name in table.column_names if name != "method"}
    values = {
        method: {name: found[of == method] for name, found in columns.items() if name not in COMMON}
        for method in methods
    }
    first = of == methods[0]
    return Samples({name: columns[name][first] for name in COMMON}, values)


def column(table: Any, name: str) -> np.ndarray[Any, Any]:
    chunk = table.column(name).combine_chunks()
    if not hasattr(chunk.type, "list_size"):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    return np.asarray(chunk.flatten().to_numpy(zero_copy_only=False)).reshape(-1, chunk.type.list_size)


def write_state(path: Path, content: Mapping[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(to_json(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def to_json(value: Any) -> Any:
    """As JSON has it: lists for tuples, null for what is not a number."""
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
