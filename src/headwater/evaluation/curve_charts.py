"""The mean curves of an evaluation as charts, each with the axes of its measure."""

from __future__ import annotations

from .charts import Series, line_chart
from .measures import Measure
from .results import Evaluation


def curve_chart(evaluation: Evaluation, measure: Measure) -> str:
    """One line per method."""
    assert measure.axes is not None
    found = {one.method: one.curves[measure.name] for one in evaluation}
    series = [Series(method, curve.fractions, curve.mean.tolist()) for method, curve in found.items()]
    return line_chart(series, *measure.axes, f"{measure.name} curves of {', '.join(evaluation.methods)}")
