"""What an explanation of a graph costs, by the number of nodes: a Graphormer with random weights on random graphs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from headwater.api.explain import explain
from headwater.evaluation.cost import Clock, Cost, Job, measure_costs
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater.models.graphs import Graph
from headwater.viz.tables import Table

from .cost import GIB, machine

METHODS = ("lrp", "gi", "rollout")
PATHS = "distances and paths"
NEIGHBOURS = 4
RANGES = (8,)  # of the one feature column that nodes have, and of that of edges


def build_model(seed: int = 0) -> GraphormerForGraphClassification:
    """The size of the paper's models: 2 layers, 128 wide, 8 heads, edges with features."""
    torch.manual_seed(seed)
    config = GraphormerConfig(node_ranges=RANGES, edge_ranges=RANGES, num_labels=2)
    model = GraphormerForGraphClassification(config)
    model.eval()
    return model


def make_graph(nodes: int, seed: int = 0) -> Graph:
    """A ring in which each node is also tied to the second next one: connected, and every node has four neighbours."""
    draw = np.random.default_rng(seed)
    places = np.arange(nodes)
    ends = [np.stack([places, (places + step) % nodes]) for step in range(1, NEIGHBOURS // 2 + 1)]
    edges = np.concatenate(ends, axis=1)
    features = draw.integers(RANGES[0], size=(edges.shape[1], 1))
    return Graph(draw.integers(RANGES[0], size=(nodes, 1)), edges, edge_features=features)


def measure_graphs(
    sizes: Sequence[int],
    methods: Sequence[str] = METHODS,
    rounds: int = 3,
    clock: Clock = time.perf_counter,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda _: None,
) -> list[Cost]:
    """A row for the forward pass and for every method, for each number of nodes; `tokens` is that number.

    A graph keeps its distances and shortest paths, so methods are timed without finding them; that has its own row.
    """
    model = build_model().to(device)
    found = []
    for nodes in sizes:
        graph = make_graph(nodes)
        prepared = model.headwater_inputs([graph])
        inputs = {name: value.to(device) for name, value in prepared.arguments.items()}
        others: dict[str, Job] = {name: partial(explain, model, [graph], method=name) for name in methods}
        others[PATHS] = partial(find_paths, model, nodes)
        costs = measure_costs(model, inputs, (), rounds, others=others, clock=clock)
        found += [dataclasses.replace(one, tokens=nodes, batch=1) for one in costs]
        tell(f"{nodes} nodes: measured")
    return found


def find_paths(model: GraphormerForGraphClassification, nodes: int) -> None:
    """What is found once for a graph, before any method."""
    model.headwater_inputs([make_graph(nodes)])


def table(costs: Sequence[Cost], title: str) -> Table:
    """A row for each number of nodes, a column for each method: seconds, and what was held above the model."""
    names = list(dict.fromkeys(cost.name for cost in costs))
    sizes = list(dict.fromkeys(cost.tokens for cost in costs))
    cells = {(cost.tokens, cost.name): written(cost) for cost in costs}
    rows = [(f"{size:,}", *(cells[size, name] for name in names)) for size in sizes]
    return Table(f"{title}; {machine()}", ("nodes", *names), rows, left=0)


def written(cost: Cost) -> str:
    memory = "" if cost.memory is None else f", {cost.memory / GIB:.2f} GiB"
    return f"{cost.seconds:.2f} s{memory}"
