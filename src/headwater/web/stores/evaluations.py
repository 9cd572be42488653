"""What `headwater evaluate --out` wrote: numbers of every sample, curves, a page."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...evaluation.files import load_evaluation
from ...evaluation.report import page
from ...evaluation.results import Evaluation
from .interface import Curves, DirectoryStore, MethodCurve, Sheet


class EvaluationStore(DirectoryStore):
    """One evaluation, read when it is first asked."""

    kind: Literal["evaluation"] = "evaluation"

    @cached_property
    def found(self) -> Evaluation:
        return load_evaluation(self.path)

    def facts(self) -> list[tuple[str, str]]:
        about, accuracy = self.found.provenance, self.found.accuracy
        return [
            ("model", str(about["model"])),
            ("data", str(about["data"])),
            ("samples", f"{len(self.found):,}"),
            ("accuracy", "without labels" if accuracy is None else f"{accuracy:.1%}"),
            ("protocol", self.found.protocol.name),
        ]

    def sheet(self) -> Sheet:
        """A row per sample: its label and prediction, then every method's score and measures."""
        samples = self.found.samples
        columns: dict[str, NDArray[Any]] = {name: np.asarray(values) for name, values in samples.common.items()}
        for method, values in samples.values.items():
            columns[f"{method} score"] = np.asarray(values["score"])
            columns[f"{method} sum"] = np.asarray(values["inputs"])
            for measure in self.found.measures:
                columns[f"{method} {measure}"] = self.found.totals(method, measure)
        return Sheet(columns)

    def curves(self) -> list[Curves]:
        found = []
        for measure in self.found.curves:
            curves = {one.method: one.curves[measure.name] for one in self.found}
            series = [MethodCurve(method, curve.mean.tolist(), curve.area) for method, curve in curves.items()]
            fractions = list(next(iter(curves.values())).fractions)
            found.append(Curves(measure.name, measure.better, fractions, series, measure.axes or ("", "")))
        return found

    def page(self) -> str:
        return page(self.found)
