"""Graphs from what other libraries hold: PyG data, NetworkX graphs, RDKit molecules, SMILES strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InputError
from headwater.models.graphs.graph import Graph


def as_graph(thing: Any, **options: Any) -> Graph:
    """A graph from a Graph, a SMILES string, an RDKit molecule, a PyG `Data` or a NetworkX graph.

    Args:
        thing: any of these.
        options: go to the function that converts: `node_features` of a NetworkX graph, for one.

    Returns:
        A `Graph`.

    Raises:
        InputError: it is none of these.

    Example:
        >>> from headwater.models.graphs import as_graph
        >>> len(as_graph("CCO"))
        3
    """
    from headwater.models.molecules import from_molecule, from_smiles

    if isinstance(thing, Graph):
        return thing
    if isinstance(thing, str):
        return from_smiles(thing, **options)
    for library, convert in (("rdkit", from_molecule), ("torch_geometric", from_pyg), ("networkx", from_networkx)):
        if library in origins(thing):
            return convert(thing, **options)
    raise InputError(
        f"a {type(thing).__module__}.{type(thing).__qualname__} is no graph. Give a headwater Graph, a SMILES string, "
        "an RDKit molecule, a PyG Data or a NetworkX graph."
    )


def origins(thing: Any) -> set[str]:
    """The packages that its class and the classes above it come from."""
    return {base.__module__.partition(".")[0] for base in type(thing).__mro__}


def is_networkx(thing: Any) -> bool:
    return "networkx" in origins(thing)


def from_pyg(data: Any, numbers: Sequence[str] | None = None) -> Graph:
    """A PyG `Data` as a graph. Whole numbers in `x` and `edge_attr` are categories, real ones in `x` are continuous.

    Edges lose their direction.

    Args:
        data: the PyG `Data`.
        numbers: names further or other attributes that are continuous features of nodes: `("x", "pos")`.

    Returns:
        A `Graph`.

    Raises:
        InputError: there are no nodes or edges, or `edge_attr` holds no whole numbers.

    Example:
        >>> from torch_geometric.data import Data
        >>> from headwater.models.graphs import from_pyg
        >>> data = Data(x=torch.tensor([[0], [1]]), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> from_pyg(data).features.tolist()
        [[0], [1]]
    """
    if data.edge_index is None or data.num_nodes is None:
        raise InputError("the PyG data has no edge_index or no nodes. Give a Data with x and edge_index.")
    x = _array(data.x)
    whole = x is not None and x.dtype.kind in "iub"
    if numbers is None:
        numbers = () if x is None or whole else ("x",)
    parts = [_array_of(data, name) for name in numbers]
    edge_features = _array(data.edge_attr)
    if edge_features is not None and edge_features.dtype.kind not in "iub":
        raise InputError(
            f"edge_attr holds {edge_features.dtype}; edge features are categories here. Give whole numbers, or set "
            "edge_attr to None."
        )
    return Graph(
        features=x if whole and x is not None else np.zeros((data.num_nodes, 0), np.int64),
        edges=data.edge_index.cpu().numpy(),
        numbers=np.concatenate(parts, 1) if parts else None,
        edge_features=edge_features,
        positions=_array(data.pos),
        label=int(data.y) if data.y is not None and data.y.numel() == 1 else None,
    )


def _array_of(data: Any, name: str) -> NDArray[Any]:
    found = _array(getattr(data, name, None))
    if found is None:
        raise InputError(f"the PyG data has no attribute {name!r}; it has {', '.join(data.keys())}.")
    return found.astype(np.float64)


def _array(tensor: Any) -> NDArray[Any] | None:
    """A tensor as a matrix with a row for each node or edge."""
    if tensor is None:
        return None
    found: NDArray[Any] = tensor.detach().cpu().numpy()
    return found[:, None] if found.ndim == 1 else found


def from_networkx(
    graph: Any,
    node_features: Sequence[str] = (),
    node_numbers: Sequence[str] = (),
    edge_features: Sequence[str] = (),
    label: int | None = None,
) -> Graph:
    """A NetworkX graph as a graph. Edges lose their direction.

    Args:
        graph: the NetworkX graph.
        node_features: the attributes of nodes that are categories.
        node_numbers: the attributes of nodes that are continuous.
        edge_features: the attributes of edges that are categories.
        label: its class, if it is known.

    Returns:
        A `Graph`.

    Raises:
        InputError: there are parallel edges, or an attribute is missing.

    Example:
        >>> import networkx
        >>> from headwater.models.graphs import from_networkx
        >>> from_networkx(networkx.path_graph(3)).edges.tolist()
        [[0, 1], [1, 2]]
    """
    if graph.is_multigraph():
        raise InputError("the NetworkX graph has parallel edges. Turn it into a Graph with one edge for each pair.")
    names = list(graph.nodes)
    place = {name: i for i, name in enumerate(names)}
    edges = [(place[u], place[v]) for u, v in graph.edges]
    nodes = [(f"node {name!r}", graph.nodes[name]) for name in names]
    links = [(f"the edge {u!r}, {v!r}", attributes) for u, v, attributes in graph.edges(data=True)]
    return Graph(
        features=_columns(nodes, node_features),
        edges=np.array(edges, np.int64).reshape(-1, 2).T,
        numbers=_columns(nodes, node_numbers, np.float64) if node_numbers else None,
        edge_features=_columns(links, edge_features) if edge_features else None,
        names=tuple(map(str, names)),
        label=label,
    )


def _columns(rows: Sequence[tuple[str, Any]], names: Sequence[str], dtype: Any = None) -> NDArray[Any]:
    for what, attributes in rows:
        for name in names:
            if name not in attributes:
                raise InputError(f"{what} has no attribute {name!r}. Give every node and edge all features.")
    values = [[attributes[name] for name in names] for _, attributes in rows]
    empty = not rows or not names
    return np.zeros((len(rows), len(names)), np.int64) if empty else np.array(values, dtype)
