"""Graphs as values: made from molecules, PyG or NetworkX graphs, cut, reordered, and collated for a Graphormer."""

from headwater.models.graphs.batched import find_distances, find_paths, induce_subgraphs
from headwater.models.graphs.collating import collate
from headwater.models.graphs.conversion import as_graph, from_networkx, from_pyg
from headwater.models.graphs.graph import Graph

__all__ = [
    "Graph",
    "as_graph",
    "collate",
    "find_distances",
    "find_paths",
    "from_networkx",
    "from_pyg",
    "induce_subgraphs",
]
