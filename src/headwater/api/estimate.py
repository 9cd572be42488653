"""`estimate`: how much memory an explanation will take, before it is made."""

from __future__ import annotations

from typing import Any

from torch import nn
from typing_extensions import Unpack

from ..engine.options import ExplainOptions, Request, read_options
from ..inputs.restoring import restores
from ..memory.estimate import Estimate, MemoryTrial, parse_bytes


@restores
def estimate(model: nn.Module, data: Any, **options: Unpack[ExplainOptions]) -> Estimate:
    """How much memory `explain(model, data, **options)` will take; with a limit, what would be done to keep it.

    Short pieces of the same request are really run, and what torch allocates is counted.
    """
    asked = read_options(**options)
    trial = MemoryTrial.of(Request(model, data, asked))
    return trial.estimate_request() if asked.memory_limit is None else trial.fit(parse_bytes(asked.memory_limit))
