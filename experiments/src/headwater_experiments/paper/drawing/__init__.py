"""The paper's figures and its table of runtimes, as functions over results: no model, no data, no global state.

Each takes results and gives a matplotlib `Figure`; `save` writes it as SVG and PNG. matplotlib comes with the extra
`paper` and is imported when something is drawn.
"""

from __future__ import annotations

from .layernorm import collapse
from .page import save
from .patches import Digit, digits
from .perturbation import curves
from .scatter import conservation
from .sentences import heatmaps
from .skeletons import Molecule, molecules
from .timing import comma_separated, markdown, runtime, timings

__all__ = (
    "Digit",
    "Molecule",
    "collapse",
    "comma_separated",
    "conservation",
    "curves",
    "digits",
    "heatmaps",
    "markdown",
    "molecules",
    "runtime",
    "save",
    "timings",
)
