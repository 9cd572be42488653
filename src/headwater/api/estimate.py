"""`estimate`: how much memory an explanation will take, before it is made."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..engine.options import Request, read_options
from ..inputs.restoring import restores
from ..memory.estimate import Estimate, MemoryTrial, parse_bytes


@restores
def estimate(model: nn.Module, data: Any, *, memory_limit: int | str | None = None, **options: Any) -> Estimate:
    """How much memory `explain(model, data, **options)` will take; with a limit, what would be done to keep it.

    Short pieces of the same request are really run, and what torch allocates is counted.
    """
    trial = MemoryTrial.of(Request(model, data, read_options(**options)))
    return trial.estimate_request() if memory_limit is None else trial.fit(parse_bytes(memory_limit))
