"""How the scores of an attention are made of q k^T, as one value that all kernels take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class ScoreForm:
    """cap tanh(scale q k^T / cap) + mask, -inf where a query does not look; a cap of 0 is none.

    A mask is boolean, True where a query looks, or added. `sinks` is one more score per head, which has no value.
    """

    scale: float
    causal: bool = False
    cap: float = 0.0
    mask: Tensor | None = None
    sinks: Tensor | None = None

    @classmethod
    def read(cls, query: Tensor, mask: Tensor | None, options: Mapping[str, Any]) -> ScoreForm:
        """From the options of torch's attention, `cap` and `sinks`."""
        scale = options.get("scale") or query.shape[-1] ** -0.5
        causal, cap = bool(options.get("is_causal")), float(options.get("cap") or 0.0)
        return cls(scale, causal, cap, mask, options.get("sinks"))
