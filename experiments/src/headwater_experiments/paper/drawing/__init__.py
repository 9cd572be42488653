"""The paper's figures and its table of runtimes, as functions over results: no model, no data, no global state.

Each takes results and gives a matplotlib `Figure`; `save_figure` writes it as SVG and PNG. matplotlib comes with the
extra `paper` and is imported when something is drawn.
"""

from __future__ import annotations

from .layernorm import collapse
from .page import save_figure
from .patches import Digit, digits
from .perturbation import curves
from .scatter import conservation
from .sentences import heatmaps
from .skeletons import Molecule, molecules
from .timing import runtime, timing_markdown, timings, to_csv

__all__ = (
    "Digit",
    "Molecule",
    "collapse",
    "conservation",
    "curves",
    "digits",
    "heatmaps",
    "molecules",
    "runtime",
    "save_figure",
    "timing_markdown",
    "timings",
    "to_csv",
)
