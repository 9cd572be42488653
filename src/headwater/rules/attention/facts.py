"""Facts that travel with a tensor: how attention weights depend on their scores, and what an exponential came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

_EXPONENT = "_headwater_exponent"
_LOG_WEIGHTS = "_headwater_log_weights"


@dataclass(frozen=True, eq=False)
class Even:
    """Where weights come from: `line` is linear in the scores, and `weights` is what they would be without scores."""

    line: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class Exponent:
    """Says of a tensor that it is base * exp(scores), up to a factor that is the same all along `axis` (None: 1)."""

    scores: Tensor
    base: Tensor | None = None  # 1
    axis: int | None = None


def with_exponent(tensor: Tensor, exponent: Exponent) -> Tensor:
    setattr(tensor, _EXPONENT, (exponent, tensor._version))
    return tensor


def exponent_of(tensor: Any) -> Exponent | None:
    """What is known of a tensor, unless it was written into since."""
    exponent, version = getattr(tensor, _EXPONENT, (None, 0))
    return exponent if exponent is not None and tensor._version == version else None


def log_weights(result: Tensor) -> Tensor:
    """The logarithm of a softmax: its exponential is a softmax."""
    setattr(result, _LOG_WEIGHTS, True)
    return result


def is_log_weights(value: Tensor) -> bool:
    return getattr(value, _LOG_WEIGHTS, False)
