"""Models made to get a closed ledger for a wrong explanation, each with the right one written by hand beside it.

Nothing in here imports Headwater.
"""

from __future__ import annotations

from . import (
    cancelling,
    cut_numbers,
    cut_places,
    cut_state,
    cut_ways,
    foreign,
    held,
    honest,
    legitimate,
    scores,
    tokens,
)
from .cases import CASES, Case, relevance

__all__ = [
    "CASES",
    "Case",
    "cancelling",
    "cut_numbers",
    "cut_places",
    "cut_state",
    "cut_ways",
    "foreign",
    "held",
    "honest",
    "legitimate",
    "relevance",
    "scores",
    "tokens",
]
