"""Which word a head reads for which: its attention between positions, and its relevance between the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """The heads of one attention: `attention` and `relevance` are [head, query, key].

    y_q = Σ_k A_qk v_k, so that the relevance of a head at a query is a sum over keys: A_qk (v_k · dy_q). Summed over
    keys it is the head's relevance by position, and summed over all it is that of the head.
    """

    module: str
    attention: Tensor
    relevance: Tensor
