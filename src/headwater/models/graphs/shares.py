"""What belongs to the ways between nodes, given to the edges that they lead over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.models.graphs.graph import Graph
from headwater.models.graphs.paths import Integers, Neighbours, by_distance

Amounts = NDArray[np.float64]


def on_edges(graph: Graph, paths: NDArray[np.int16], types: Integers, amounts: Amounts) -> Amounts:
    """[edges]: the sum of `amounts` [nodes, nodes, places] over all ways that lead over an edge, place by place.

    `paths` are the graph's `edge_paths`, `types` its `edge_types`. Where several shortest paths have the same edge
    types each gets its share, so that the order of nodes makes no difference.
    """
    steps = list(_steps(graph, paths, types))
    ways = np.eye(len(graph))
    for _, source, beyond, via, _ in steps:
        np.add.at(ways, (source, beyond), ways[source, via])
    left, found = amounts.copy(), np.zeros(graph.edges.shape[1])
    for level, source, beyond, via, edge in reversed(steps):
        flow = left[source, beyond] * (ways[source, via] / ways[source, beyond])[:, None]
        if level < paths.shape[-1]:
            np.add.at(found, edge, flow[:, level])
        np.add.at(left, (source, via), flow)
    return found


def _steps(
    graph: Graph, paths: NDArray[np.int16], types: Integers
) -> list[tuple[int, Integers, Integers, Integers, Integers]]:
    """For every distance from 0 on: source, end, the node before the end on a way that is taken, the edge between."""
    neighbours = Neighbours(graph.edges, np.arange(graph.edges.shape[1]), len(graph))
    found = []
    for level, (sources, ends) in by_distance(graph.distances):
        source, beyond, via, edge = neighbours.beyond(sources, ends)
        same = (paths[source, beyond, :level] == paths[source, via, :level]).all(-1)
        if level < paths.shape[-1]:
            same &= paths[source, beyond, level] == types[edge] + 1
        taken = same & (graph.distances[source, beyond] == level + 1)
        found.append((level, source[taken], beyond[taken], via[taken], edge[taken]))
    return found
