"""A graph as a value: nodes with features, undirected edges with features, and what follows from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwater.errors import InputError
from headwater.models.graphs.paths import Integers, edges_on_paths, shortest_distances
from headwater.plurals import say_count

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, the edges between them, and their features.

    `features` [nodes, columns] are categories and `numbers` [nodes, columns] are continuous; a graph may have either or
    both. `edges` [2, edges] may list an edge in one direction or in both; it is kept once, the smaller node first.
    `names` are what a reader knows the nodes by, `positions` where a picture puts them.

    Example:
        >>> from headwater.models.graphs import Graph
        >>> line = Graph(features=[[0], [1], [0]], edges=[[0, 1], [1, 2]], names=("a", "b", "c"))
        >>> len(line), line.degrees.tolist()
        (3, [1, 2, 1])
    """

    features: Integers  # categories, [nodes, columns]
    edges: Integers  # pairs of nodes, [2, edges], each kept once
    numbers: Numbers | None = None  # continuous features, [nodes, columns]
    edge_features: Integers | None = None  # categories of the edges, [edges, columns]
    names: tuple[str, ...] = ()  # what a reader knows the nodes by
    positions: Numbers | None = None  # where a picture puts the nodes, [nodes, 2]
    label: int | None = None  # the class of the graph, where it is known
    _paths: dict[Any, NDArray[np.int16]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check all parts, copy them, and lock the copies."""
        features = _matrix(self.features, np.int64, "node features")
        numbers = None if self.numbers is None else _matrix(self.numbers, np.float64, "node numbers")
        positions = None if self.positions is None else _matrix(self.positions, np.float64, "positions")
        edges, edge_features = merge_directions(self.edges, self.edge_features, len(features))
        names = tuple(map(str, self.names or range(len(features))))
        _check_rows(len(features), {"node numbers": numbers, "names": names, "positions": positions})
        _check_finite(numbers)
        for array in (features, numbers, positions, edges, edge_features):
            if array is not None:
                array.flags.writeable = False
        parts = {"features": features, "numbers": numbers, "positions": positions, "names": names}
        for name, value in {**parts, "edges": edges, "edge_features": edge_features}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def sha256(self) -> str:
        """Of all that a model sees: features and edges, in their order."""
        digest = hashlib.sha256()
        for array in (self.features, self.numbers, self.edges, self.edge_features):
            told = None if array is None else (array.shape, str(array.dtype))
            digest.update(repr(told).encode() + (b"" if array is None else array.tobytes()))
        return digest.hexdigest()

    @cached_property
    def degrees(self) -> Integers:
        """How many neighbours each node has."""
        return np.bincount(self.edges.ravel(), minlength=len(self))

    @cached_property
    def distances(self) -> NDArray[np.int16]:
        """[nodes, nodes]: the number of edges on a shortest path, -1 where there is none."""
        return shortest_distances(self.edges, len(self))

    def edge_paths(self, ranges: Sequence[int], longest: int) -> NDArray[np.int16]:
        """[nodes, nodes, longest]: the types of the edges on a shortest path, plus 1; 0 where there is none.

        `ranges` has the number of values of each edge column; of a path the first `longest` edges are looked at.
        """
        key = (tuple(ranges), longest)
        if key not in self._paths:
            types, count = self.edge_types(ranges), int(np.prod(ranges, dtype=np.int64))
            self._paths[key] = edges_on_paths(self.edges, types, self.distances, count, longest)
        return self._paths[key]

    def edge_types(self, ranges: Sequence[int]) -> Integers:
        """One number for each edge: its columns are the digits, the first the highest; `ranges` has the bases."""
        found = np.zeros((0, 0), np.int64) if self.edge_features is None else self.edge_features
        if found.shape[1] != len(ranges) and self.edges.shape[1]:
            raise InputError(
                f"the model knows edges with {say_count(len(ranges), 'column')} of features, the graph's have "
                f"{found.shape[1]}. Make the graph with the features that the model was trained on."
            )
        check_ranges(found, ranges, "edge")
        types = np.zeros(self.edges.shape[1], np.int64)
        for column, size in zip(found.T, ranges, strict=bool(self.edges.shape[1])):
            types = types * size + column
        return types

    def subgraph(self, keep: Sequence[int] | ArrayLike) -> Graph:
        """The induced subgraph: these nodes, in this order, and the edges between them.

        `keep` lists nodes, or says yes or no for each. Degrees and distances are those of the subgraph.
        """
        chosen = self._indices(keep)
        place = np.full(len(self), -1)
        place[chosen] = np.arange(len(chosen))
        edges = place[self.edges]
        inside = (edges >= 0).all(0)
        return replace(
            self,
            features=self.features[chosen],
            numbers=None if self.numbers is None else self.numbers[chosen],
            edges=edges[:, inside],
            edge_features=None if self.edge_features is None else self.edge_features[inside],
            names=tuple(self.names[i] for i in chosen),
            positions=None if self.positions is None else self.positions[chosen],
        )

    def permute(self, order: Sequence[int] | ArrayLike) -> Graph:
        """The same graph with its nodes in another order: node `order[i]` comes to place i."""
        wanted = np.asarray(order)
        if sorted(wanted.tolist()) != list(range(len(self))):
            raise InputError(f"the order must name each of the {len(self)} nodes once; {wanted.tolist()} does not.")
        return self.subgraph(wanted)

    def _indices(self, keep: Sequence[int] | ArrayLike) -> Integers:
        chosen = np.asarray(keep)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            return np.nonzero(chosen)[0]
        chosen = chosen.astype(np.int64) if chosen.size == 0 else chosen
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(f"keep must list nodes, or hold {len(self)} booleans; it has the shape {chosen.shape}.")
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise InputError(
                f"keep names node {_outside(chosen, len(self))}; the graph has nodes 0 to {len(self) - 1}."
            )
        if len(np.unique(chosen)) != len(chosen):
            raise InputError("keep names a node twice. Name each at most once.")
        return chosen.astype(np.int64)


def _check_rows(nodes: int, parts: Mapping[str, Sized | None]) -> None:
    for what, found in parts.items():
        if found is not None and len(found) != nodes:
            rows = say_count(len(found), "row")
            raise InputError(f"the graph has {say_count(nodes, 'node')}, but {rows} of {what}. Give one for each node.")


def _check_finite(numbers: Numbers | None) -> None:
    if numbers is not None and not np.isfinite(numbers).all():
        node = np.nonzero(~np.isfinite(numbers).all(1))[0][0]
        raise InputError(f"node {node} has a number that is not finite. Replace it before the graph is made.")


def merge_directions(edges: ArrayLike, features: ArrayLike | None, nodes: int) -> tuple[Integers, Integers | None]:
    """Each edge once, the smaller node first, in order. Both directions of an edge must have the same features."""
    pairs = np.asarray(edges)
    pairs = np.zeros((2, 0), np.int64) if pairs.size == 0 else pairs
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"edges must be whole numbers of the shape [2, edges]; found {pairs.dtype} of {pairs.shape}.")
    _check_ends(pairs, nodes)
    columns = None if features is None else _matrix(features, np.int64, "edge features")
    if columns is not None and len(columns) != pairs.shape[1]:
        edges_have = say_count(pairs.shape[1], "edge has", "edges have")
        rows = say_count(len(columns), "row")
        raise InputError(f"{edges_have} {rows} of edge features. Give one for each edge.")
    keys = np.sort(pairs.astype(np.int64), 0)
    found, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    if columns is None:
        return found, None
    differs = (columns != columns[first][group.ravel()]).any(1)
    if differs.any():
        u, v = keys[:, np.nonzero(differs)[0][0]]
        raise InputError(
            f"the edge between {u} and {v} is listed with different features. Edges have no direction here."
        )
    return found, columns[first]


def _check_ends(pairs: Integers, nodes: int) -> None:
    if not pairs.size:
        return
    if pairs.min() < 0 or pairs.max() >= nodes:
        end, known = _outside(pairs.ravel(), nodes), say_count(nodes, "node")
        raise InputError(f"an edge leads to node {end}; the graph has {known}.")
    loops = np.nonzero(pairs[0] == pairs[1])[0]
    if len(loops):
        raise InputError(f"an edge joins node {pairs[0, loops[0]]} to itself. Remove such loops first.")


def check_ranges(columns: Integers, ranges: Sequence[int], what: str) -> None:
    """Every value must be one that the model has an embedding for."""
    for number, (column, size) in enumerate(zip(columns.T, ranges, strict=False)):
        bad = np.nonzero((column < 0) | (column >= size))[0]
        if len(bad):
            raise InputError(
                f"{what} {bad[0]} has the value {column[bad[0]]} in feature column {number}; the model knows 0 to "
                f"{size - 1}. Map the value to one of these, or use a model with a larger range."
            )


def _matrix(values: ArrayLike, dtype: Any, what: str) -> NDArray[Any]:
    found = np.asarray(values)
    if found.ndim != 2:
        raise InputError(f"{what} must have two dimensions, [rows, columns]; found the shape {found.shape}.")
    if np.issubdtype(dtype, np.integer) and found.size and found.dtype.kind not in "iub":
        raise InputError(f"{what} must be whole numbers; found {found.dtype}.")
    return np.array(found, dtype)


def _outside(values: Integers, size: int) -> int:
    return int(values[(values < 0) | (values >= size)][0])
