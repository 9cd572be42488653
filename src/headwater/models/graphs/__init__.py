"""Graphs as values: made from molecules, PyG or NetworkX graphs, cut, reordered, and collated for a Graphormer."""

from headwater.models.graphs.batched import batched_distances, batched_paths, induced
from headwater.models.graphs.collating import collate
from headwater.models.graphs.conversion import as_graph, from_networkx, from_pyg
from headwater.models.graphs.graph import Graph

__all__ = ["Graph", "as_graph", "batched_distances", "batched_paths", "collate", "from_networkx", "from_pyg", "induced"]
