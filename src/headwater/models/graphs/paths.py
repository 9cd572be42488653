r"""Shortest paths: how far apart nodes are, and which edges lie between them.

Graphormer's own code takes the one shortest path that its search meets first, which depends on the order of nodes.
Here, of several shortest paths from i to j the one is taken whose edge types, read from i, come first in order, as
words do in a dictionary. That depends on the graph alone, and where there is only one shortest path it is Graphormer's.
Two paths of equal types give equal encodings, so it does not matter which of them is meant.

A path is packed into one number, its types being the digits, the first edge the highest: the least number is the first
word. Paths longer than `longest` are cut to their first edges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headwater.errors import require_extra

Integers = NDArray[np.int64]
UNREACHABLE = -1
UNKNOWN = np.iinfo(np.int64).max


def shortest_distances(edges: Integers, nodes: int) -> NDArray[np.int16]:
    """[nodes, nodes]: the number of edges between them, -1 where there is no way."""
    with require_extra("finding shortest paths in a graph", "graphs"):
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import shortest_path
    if not nodes:
        return np.zeros((0, 0), np.int16)
    starts, ends = edges.astype(np.int32)  # scipy before 1.15 takes no wider ones
    links = csr_array((np.ones(len(starts)), (starts, ends)), shape=(nodes, nodes))
    found = shortest_path(links, directed=False, unweighted=True)
    return np.where(np.isinf(found), UNREACHABLE, found).astype(np.int16)


def edges_on_paths(
    edges: Integers, types: Integers, distances: NDArray[np.int16], type_count: int, longest: int
) -> NDArray[np.int16]:
    """[nodes, nodes, longest]: the type plus 1 of each edge on the way from i to j, 0 where there is none."""
    codes = np.full(distances.shape, UNKNOWN)
    np.fill_diagonal(codes, 0)
    neighbours = Neighbours(edges, types, len(distances))
    for level, (sources, ends) in by_distance(distances):
        sources, beyond, via, step = neighbours.beyond(sources, ends)
        new = distances[sources, beyond] == level + 1
        code = codes[sources, via]
        candidates = code * type_count + step if level < longest else code
        np.minimum.at(codes, (sources[new], beyond[new]), candidates[new])
    return unpack_codes(codes, distances, type_count, longest)


def unpack_codes(codes: Integers, distances: NDArray[np.int16], type_count: int, longest: int) -> NDArray[np.int16]:
    """The digits of each code, from the first edge on, plus 1."""
    length = np.minimum(distances, longest)
    places = []
    for place in range(longest):
        below = np.maximum(length - place - 1, 0).astype(np.int64)
        digit = codes // type_count**below % type_count + 1
        places.append(np.where(length > place, digit, 0).astype(np.int16))
    return np.stack(places, -1)


def by_distance(distances: NDArray[np.int16]) -> Iterator[tuple[int, tuple[Integers, Integers]]]:
    """All pairs of nodes at distance 0, then at distance 1, and so on; the farthest have nothing beyond them."""
    flat = distances.ravel()
    order = np.argsort(flat, kind="stable")
    limits = np.searchsorted(flat[order], np.arange(flat.max(initial=0) + 1))
    for level in range(len(limits) - 1):
        sources, ends = np.divmod(order[limits[level] : limits[level + 1]], len(distances))
        yield level, (sources, ends)


class Neighbours:
    """The neighbours of every node, one node after the other, and the types of the edges to them."""

    def __init__(self, edges: Integers, types: Integers, nodes: int) -> None:
        start, end, kind = np.concatenate([edges, edges[::-1]], 1)[0], np.concatenate([edges[1], edges[0]]), types
        order = np.argsort(start, kind="stable")
        self.ends: Integers = end[order]
        self.types: Integers = np.concatenate([kind, kind])[order]
        self.count: NDArray[np.intp] = np.bincount(start, minlength=nodes)
        self.first: NDArray[np.intp] = np.concatenate([[0], np.cumsum(self.count)[:-1]])

    def beyond(self, sources: Integers, ends: Integers) -> tuple[Integers, Integers, Integers, Integers]:
        """For every pair and every neighbour of its end: source, neighbour, end, and the type of that last edge."""
        count = self.count[ends]
        row = np.repeat(np.arange(len(ends)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        place = self.first[ends[row]] + within
        return sources[row], self.ends[place], ends[row], self.types[place]
