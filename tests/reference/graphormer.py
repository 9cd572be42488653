"""Graphormer written from its paper, one graph, one head and one pair of nodes at a time.

Shortest paths are all of them, listed by NetworkX; the one with the first types is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import networkx as nx
import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def logits(
    w: Weights,
    features: Sequence[Sequence[int]],
    numbers: Sequence[Sequence[float]],
    edges: Mapping[tuple[int, int], Sequence[int]],
    heads: int,
    farthest: int,
    longest: int,
    post: bool = False,
) -> Tensor:
    """The logits of one graph: node columns, node numbers, and the columns of each edge (u, v)."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(features)))
    graph.add_edges_from(edges)
    columns = {frozenset(pair): tuple(found) for pair, found in edges.items()}
    rows = [embedding(w, features[i], numbers[i], graph.degree[i]) for i in graph]
    virtual = "virtual_node.weight" in w
    bias = [[pair_bias(w, graph, columns, i, j, heads, farthest, longest) for j in graph] for i in graph]
    if virtual:
        own = w["structure.spatial.weight"][farthest + 2]
        rows = [w["virtual_node.weight"][0], *rows]
        bias = [[own] * len(rows), *([own, *row] for row in bias)]
    hidden = torch.stack(rows)
    for layer in range(sum(name.endswith("query.weight") for name in w)):
        hidden = block(w, f"layers.{layer}.", hidden, bias, heads, post)
    hidden = norm(w, "norm", hidden)
    return linear(w, "classifier", hidden[0] if virtual else hidden.mean(0))


def embedding(w: Weights, features: Sequence[int], numbers: Sequence[float], degree: int) -> Tensor:
    table = w["node_embeddings.degree.weight"]
    total = table[min(degree, len(table) - 1)]
    for column, value in enumerate(features):
        total = total + w[f"node_embeddings.features.{column}.weight"][value]
    given = torch.tensor(numbers, dtype=total.dtype)
    if "node_embeddings.numbers.weight" in w:
        return total + linear(w, "node_embeddings.numbers", given)
    if "node_embeddings.numbers.up.weight" in w:
        return total + linear(w, "node_embeddings.numbers.down", linear(w, "node_embeddings.numbers.up", given).sin())
    return total


def pair_bias(
    w: Weights,
    graph: nx.Graph,
    columns: Mapping[frozenset[int], tuple[int, ...]],
    i: int,
    j: int,
    heads: int,
    farthest: int,
    longest: int,
) -> Tensor:
    """One number for each head."""
    table = w["structure.spatial.weight"]
    if not nx.has_path(graph, i, j):
        return table[farthest + 1]
    bias = table[min(nx.shortest_path_length(graph, i, j), farthest)]
    if i == j or "structure.edges.places.weight" not in w:
        return bias
    paths = nx.all_shortest_paths(graph, i, j)
    first = min([columns[frozenset(step)] for step in pairwise(path)] for path in paths)[:longest]
    total = torch.zeros(heads, dtype=bias.dtype)
    for place, edge in enumerate(first):
        x = sum(w[f"structure.edges.columns.{c}.weight"][value] for c, value in enumerate(edge))
        weights = w["structure.edges.places.weight"][place].reshape(heads, -1)
        total = total + torch.stack([torch.dot(x, weights[head]) for head in range(heads)])
    return bias + total / len(first)


def block(w: Weights, name: str, hidden: Tensor, bias: list[list[Tensor]], heads: int, post: bool) -> Tensor:
    if post:
        hidden = norm(w, f"{name}attention_norm", hidden + attention(w, name, hidden, bias, heads))
        return norm(w, f"{name}norm", hidden + linear(w, f"{name}down", gelu(linear(w, f"{name}up", hidden))))
    hidden = hidden + attention(w, name, norm(w, f"{name}attention_norm", hidden), bias, heads)
    return hidden + linear(w, f"{name}down", gelu(linear(w, f"{name}up", norm(w, f"{name}norm", hidden))))


def attention(w: Weights, name: str, x: Tensor, bias: list[list[Tensor]], heads: int) -> Tensor:
    query, key, value = (linear(w, f"{name}{part}", x) for part in ("query", "key", "value"))
    size, width = len(x), x.shape[1] // heads
    rows = []
    for i in range(size):
        parts = []
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            scores = [torch.dot(query[i, own], key[j, own]) / math.sqrt(width) + bias[i][j][head] for j in range(size)]
            weights = torch.stack(scores).softmax(0)
            parts.append(sum(weights[j] * value[j, own] for j in range(size)))
        rows.append(torch.cat(parts))
    return linear(w, f"{name}output", torch.stack(rows))


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(w: Weights, name: str, x: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
