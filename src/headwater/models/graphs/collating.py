"""Graphs of different sizes as one batch of tensors for a Graphormer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwater.errors import EmptyInput, InputError
from headwater.models.graphs.config import GraphormerConfig
from headwater.models.graphs.graph import Graph, check_ranges
from headwater.models.graphs.paths import UNREACHABLE


def collate(
    graphs: Sequence[Graph],
    config: GraphormerConfig,
    *,
    allow_empty: bool = False,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """The inputs of a Graphormer for these graphs, padded to the largest.

    Args:
        graphs: at least one.
        config: the model's.
        allow_empty: a graph without nodes is taken for the virtual node alone; else it is refused.
        dtype: of the continuous features of nodes.

    Returns:
        Tensors by the names of the model's arguments; `labels` too where every graph has one.

    Raises:
        EmptyInput: there is no graph, or one has no nodes.
        InputError: a graph has other features than the model.

    Example:
        >>> from headwater.models.graphs import as_graph, collate
        >>> model, _ = hw.load("headwater/bace")
        >>> inputs = collate([as_graph("CCO"), as_graph("C")], model.config)
        >>> inputs["attention_mask"].tolist()
        [[True, True, True], [True, False, False]]
    """
    if not graphs:
        raise EmptyInput("there is no graph to collate. Give at least one.")
    for graph in graphs:
        check_fits(graph, config, allow_empty)
    size = max(map(len, graphs))
    batch: dict[str, NDArray[Any]] = {
        "degrees": _pad_arrays([g.degrees for g in graphs], (size,)),
        "distances": _pad_arrays([g.distances for g in graphs], (size, size), UNREACHABLE),
        "attention_mask": _pad_arrays([np.ones(len(g), bool) for g in graphs], (size,)),
    }
    if config.node_ranges:
        batch["node_features"] = _pad_arrays([g.features for g in graphs], (size, len(config.node_ranges)))
    if config.edge_ranges:
        paths = [g.edge_paths(config.edge_ranges, config.max_path) for g in graphs]
        batch["edge_paths"] = _pad_arrays(paths, (size, size, config.max_path))
    tensors = {name: torch.from_numpy(values) for name, values in batch.items()}
    if config.number_features:
        numbers = _pad_arrays([_node_numbers(g) for g in graphs], (size, config.number_features))
        tensors["node_numbers"] = torch.from_numpy(numbers).to(dtype)
    labels = [g.label for g in graphs if g.label is not None]
    if len(labels) == len(graphs):
        tensors["labels"] = torch.tensor(labels)
    return tensors


def check_fits(graph: Graph, config: GraphormerConfig, allow_empty: bool = False) -> None:
    """What the model cannot take is named before it runs."""
    if not len(graph):
        if not allow_empty:
            raise EmptyInput("the graph has no nodes. Pass allow_empty=True if the virtual node alone is meant.")
        if not config.virtual_node:
            raise EmptyInput("the graph has no nodes, and the model no virtual node: there is nothing to read from.")
    for what, found, needed in (
        ("categorical", graph.features.shape[1], len(config.node_ranges)),
        ("continuous", _node_numbers(graph).shape[1], config.number_features),
    ):
        if found != needed:
            raise InputError(
                f"the model knows nodes with {needed} {what} features, the graph's nodes have {found}. "
                "Make the graph with the features that the model was trained on."
            )
    check_ranges(graph.features, config.node_ranges, "node")
    if config.edge_ranges:
        graph.edge_types(config.edge_ranges)


def _node_numbers(graph: Graph) -> NDArray[np.float64]:
    return np.zeros((len(graph), 0)) if graph.numbers is None else graph.numbers


def _pad_arrays(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...], fill: int = 0) -> NDArray[Any]:
    """[arrays, *shape]: each array in the first places of its row."""
    batch = np.full((len(arrays), *shape), fill, arrays[0].dtype)
    for row, array in zip(batch, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return batch
