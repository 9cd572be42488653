"""Graphs as samples to be explained: what `explain` needs to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwater.errors import EmptyInput, InputError
from headwater.inputs.protocol import Link, Prepared, SideInput, sample_name
from headwater.models.graphs.collating import check_fits, collate
from headwater.models.graphs.config import GraphormerConfig
from headwater.models.graphs.conversion import as_graph, is_networkx
from headwater.models.graphs.graph import Graph
from headwater.models.graphs.paths import Integers, Neighbours, by_distance

Amounts = NDArray[np.float64]
VIRTUAL_NODE, EDGES = "virtual_node.weight", "structure.edges"


class Graphormer(Protocol):
    """What is asked of the model."""

    config: GraphormerConfig
    virtual_node: Any
    structure: Any

    @property
    def dtype(self) -> torch.dtype: ...


def prepare_graphs(model: Graphormer, samples: Sequence[Any]) -> Prepared:
    """Nodes are the items. The virtual node comes before them; without it the answer is read off all of them."""
    graphs = [check_graph(model, sample, sample_name("graph", i, len(samples))) for i, sample in enumerate(samples)]
    arguments = collate(graphs, model.config, dtype=model.dtype)
    arguments.pop("labels", None)
    return Prepared(
        arguments,
        names=tuple(graph.names for graph in graphs),
        real=arguments["attention_mask"],
        before=() if model.virtual_node is None else (VIRTUAL_NODE,),
        pooled=model.virtual_node is None,
        beside=None if model.structure.edges is None else edge_input(model, graphs),
    )


def check_graph(model: Graphormer, sample: Any, name: str) -> Graph:
    """The graph that a sample is, or why it cannot be explained."""
    graph = graph_from_sample(model, sample, name)
    if not len(graph):
        raise EmptyInput(f"{name} has no nodes: there is nothing to explain.")
    try:
        check_fits(graph, model.config)
    except InputError as error:
        raise type(error)(f"{name} does not fit: {error}") from error
    return graph


def graph_from_sample(model: Graphormer, sample: Any, name: str) -> Graph:
    if isinstance(sample, (str, tuple)):
        raise InputError(
            f"{name} is a {type(sample).__name__}, and the model takes graphs. If it is a SMILES string: "
            "headwater.models.molecules.from_smiles(string)."
        )
    config = model.config
    if is_networkx(sample):
        return as_graph(
            sample,
            node_features=config.node_columns,
            node_numbers=config.number_columns,
            edge_features=config.edge_columns,
        )
    return as_graph(sample)


def edge_input(model: Graphormer, graphs: Sequence[Graph]) -> SideInput:
    """The edges' features, which attention is told of and nothing else."""
    encoding, config = model.structure.edges, model.config
    assert encoding is not None

    def relevance(sample: int, value: Tensor, gradient: Tensor) -> list[Link]:
        graph, nodes = graphs[sample], len(graphs[sample])
        paths = graph.edge_paths(config.edge_ranges, config.max_path)
        amounts = encoding.parts(torch.from_numpy(paths), gradient[:nodes, :nodes].double()).detach().numpy()
        found = on_edges(graph, paths, graph.edge_types(config.edge_ranges), amounts)
        return [(int(u), int(v), float(amount)) for (u, v), amount in zip(graph.edges.T, found, strict=True)]

    return SideInput(EDGES, encoding, relevance)


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
