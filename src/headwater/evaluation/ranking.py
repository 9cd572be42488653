"""Which items an input still holds, given the relevance of each and how many are shown or gone.

Ties: items of equal relevance are taken in the order in which they stand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.intp]


def places(keys: Floats) -> Counts:
    """The place of every item when they are sorted by `keys`, smallest first; equal ones as they stand."""
    order = np.argsort(keys, kind="stable")
    found = np.empty(len(keys), dtype=np.intp)
    found[order] = np.arange(len(keys))
    return found


def only_top(relevance: Floats, count: Counts) -> Flags:
    """Only the items of largest signed relevance."""
    return places(-relevance)[None] < count[:, None]


def without_top(relevance: Floats, count: Counts) -> Flags:
    """All but the items of largest signed relevance."""
    return ~only_top(relevance, count)


def without_smallest(relevance: Floats, count: Counts) -> Flags:
    """All but the items of smallest absolute relevance."""
    return places(np.abs(relevance))[None] >= count[:, None]
