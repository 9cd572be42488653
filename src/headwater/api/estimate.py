"""`estimate`: how much memory an explanation will take, before it is made."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from ..engine.options import ExplainOptions
from ..inputs.restoring import restores
from ..memory.estimate import Estimate, MemoryTrial, parse_bytes
from .requests import Model, make_request


@restores
def estimate(model: Model, data: Any, **options: Unpack[ExplainOptions]) -> Estimate:
    """How much memory `explain(model, data, **options)` will take; with a limit, what would be done to keep it.

    Short pieces of the same request are really run, and what torch allocates is counted.

    Args:
        model: as for `explain`.
        data: as for `explain`.
        options: the options of `explain`, by name, `memory_limit` among them.

    Returns:
        An `Estimate`, in bytes.

    Raises:
        UsageError: an option is wrong, or the limit cannot be kept by any means.
        ModelError: as for `explain`.

    Example:
        >>> hw.estimate("headwater/sentiment", "a fine film").peak > 0
        True
    """
    ask = make_request(model, data, **options)
    trial, limit = MemoryTrial.of(ask), ask.options.memory_limit
    return trial.estimate_request() if limit is None else trial.fit(parse_bytes(limit))
