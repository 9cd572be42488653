"""The same shortest paths for a whole batch at once, on any device: for training, and for thousands of subgraphs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import torch
from torch import Tensor

from headwater.models.graphs.paths import UNKNOWN, UNREACHABLE


def find_distances(adjacency: Tensor) -> Tensor:
    """The number of edges between nodes, -1 where there is no way.

    A step along all edges at once is a product of matrices; whoever is met for the first time after n steps is at
    distance n.

    Args:
        adjacency: booleans [batch, nodes, nodes].

    Returns:
        int16 [batch, nodes, nodes].

    Example:
        >>> from headwater.models.graphs import find_distances
        >>> line = torch.tensor([[[False, True, False], [True, False, True], [False, True, False]]])
        >>> find_distances(line).tolist()
        [[[0, 1, 2], [1, 0, 1], [2, 1, 0]]]
    """
    links = adjacency.to(torch.float16 if adjacency.is_cuda else torch.float32)
    frontier = torch.eye(adjacency.shape[-1], device=adjacency.device, dtype=torch.bool).expand_as(adjacency)
    distances = torch.where(frontier, 0, UNREACHABLE).to(torch.int16)
    step = 0
    while frontier.any():
        step += 1
        frontier = ((frontier.to(links.dtype) @ links) > 0) & (distances < 0)
        distances.masked_fill_(frontier, step)
    return distances


def find_paths(edge_types: Tensor, distances: Tensor, type_count: int, longest: int) -> Tensor:
    """The type plus 1 of each edge on the way from i to j, 0 where there is none.

    Args:
        edge_types: [batch, nodes, nodes], the type plus 1 for neighbours and 0 for all others.
        distances: what `find_distances` gives.
        type_count: how many types of edges there are.
        longest: of a path, so many first edges are looked at.

    Returns:
        [batch, nodes, nodes, longest].

    Example:
        >>> from headwater.models.graphs import find_distances, find_paths
        >>> types = torch.tensor([[[0, 1, 0], [1, 0, 2], [0, 2, 0]]])  # an edge of type 0, and one of type 1
        >>> find_paths(types, find_distances(types > 0), type_count=2, longest=2)[0, 0, 2].tolist()
        [1, 2]
    """
    if not distances.numel():
        return edge_types.new_zeros(*edge_types.shape, longest)
    neighbours, steps = _neighbour_lists(edge_types)
    codes = torch.full(distances.shape, UNKNOWN, device=distances.device)
    codes.diagonal(dim1=-2, dim2=-1).zero_()
    for level in range(1, int(distances.max()) + 1):
        before = _gather_neighbours(codes, neighbours)
        valid = (_gather_neighbours(distances, neighbours) == level - 1) & (steps[:, None] > 0)
        candidates = before * type_count + steps[:, None] - 1 if level <= longest else before
        best = reduce(torch.minimum, candidates.masked_fill(~valid, UNKNOWN).unbind(-1))  # amin: 60 times as long
        codes = torch.where(distances == level, best, codes)
    return _unpack_codes(codes, distances, type_count, longest)


def _neighbour_lists(edge_types: Tensor) -> tuple[Tensor, Tensor]:
    """[batch, nodes, most neighbours]: who they are, and the types plus 1 of the edges to them, 0 after the last."""
    most = int((edge_types > 0).sum(-1).max())
    found = (edge_types > 0).to(torch.int8).topk(max(1, most), -1).indices
    return found, edge_types.gather(-1, found).long()


def _gather_neighbours(pairs: Tensor, neighbours: Tensor) -> Tensor:
    """[batch, i, j, m]: the entry for i and the m-th neighbour of j."""
    batch, nodes, most = neighbours.shape
    index = neighbours.reshape(batch, 1, nodes * most).expand(-1, nodes, -1)
    return pairs.gather(-1, index).reshape(batch, nodes, nodes, most)


def _unpack_codes(codes: Tensor, distances: Tensor, type_count: int, longest: int) -> Tensor:
    length = distances.clamp(max=longest).long()
    places = []
    for place in range(longest):
        below = (length - place - 1).clamp(min=0)
        digit = codes // type_count**below % type_count + 1
        places.append(torch.where(length > place, digit, 0).to(torch.int16))
    return torch.stack(places, -1)


def induce_subgraphs(batch: Mapping[str, Tensor], keep: Tensor, type_count: int = 0) -> dict[str, Tensor]:
    """The batch of induced subgraphs: some nodes, with degrees and paths found anew.

    Nodes stay at their places and the others become padding, so the result is that of collating the subgraphs.

    Args:
        batch: what `collate` gives.
        keep: the nodes that stay [batch, nodes].
        type_count: the model's `config.edge_types`.

    Returns:
        Tensors by the names of the model's arguments.

    Example:
        >>> from headwater.models.graphs import as_graph, collate, induce_subgraphs
        >>> model, _ = hw.load("headwater/bace")
        >>> batch = collate([as_graph("CCO")], model.config)
        >>> induce_subgraphs(batch, torch.tensor([[True, True, False]]), model.config.edge_types)["degrees"].tolist()
        [[1, 1, 0]]
    """
    keep = keep.bool() & batch["attention_mask"].bool()
    adjacency = (batch["distances"] == 1) & keep[:, :, None] & keep[:, None, :]
    distances = find_distances(adjacency)
    new = {**batch, "attention_mask": keep, "degrees": adjacency.sum(-1), "distances": distances}
    if "edge_paths" in batch:
        old = batch["edge_paths"]
        types = torch.where(adjacency, old[..., 0], 0)
        new["edge_paths"] = find_paths(types, distances, type_count, old.shape[-1]).to(old.dtype)
    return new
