"""Graphs as subjects of perturbation: the items are nodes.

What it means to take a node out can be read in two ways, and the protocol's name says which was:

- `removal=induced`: the node and its edges are gone; degrees and shortest paths are those of what is left. The empty
  graph is the virtual node alone.
- `removal=masked`: the node's embedding is zero; the graph around it, and the node's place in it, stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..engine.model import where_it_is
from ..engine.options import Options, Request
from ..engine.session import answer_all
from ..errors import DataError, EmptyInput, HeadwaterError, check_least
from ..inputs.classes import class_names
from ..models.graphormer import GraphormerForGraphClassification
from ..models.graphs import Graph, as_graph, collate, induce_subgraphs
from ..models.graphs.explained import check_graph
from ..results.explanation import Explanation
from .bounds import Bounds
from .perturbation import Perturbed
from .protocols import Protocol
from .ranking import Counts, Flags, Floats
from .sources import Labelled, check_columns, columns_of, is_pair, label_of
from .tokens import check_relevance, classify


def takes_graphs(model: nn.Module) -> bool:
    return isinstance(model, GraphormerForGraphClassification)


def with_reading(protocol: Protocol) -> Protocol:
    """The protocol with its reading of removal in its name; the induced subgraph where none was asked for."""
    return protocol.replace(removal=protocol.removal or "induced")


def read_graphs(model: nn.Module, data: Any, graph_column: str, label_column: str, needs_label: bool) -> Labelled:
    """`data` is a list of (graph, label) or of graphs that know their label, a path, or anything with columns by name.

    A graph is whatever `explain` takes; in a column, a string is a SMILES string. Every row is checked here.
    """
    assert isinstance(model, GraphormerForGraphClassification)
    given, labels, source = split_graphs(data, graph_column, label_column)
    if not given:
        raise DataError(f"{source} has no rows.")
    graphs = [graph_of(model, value, i, source) for i, value in enumerate(given)]
    if labels is None and all(g.label is not None for g in graphs):
        labels = [g.label for g in graphs]
    if labels is None:
        if needs_label:
            raise DataError(f"{source} has graphs without a label. Give (graph, label), or ask for target=predicted.")
        return Labelled(graphs, None, list(range(len(graphs))), source)
    names = class_names(model.config, model.config.num_labels)
    found = [label_of(value, names, None, i, source) for i, value in enumerate(labels)]
    return Labelled(graphs, found, list(range(len(graphs))), source)


def split_graphs(data: Any, graph_column: str, label_column: str) -> tuple[list[Any], list[Any] | None, str]:
    """Graphs, labels where they stand beside them, and what to call the source."""
    if isinstance(data, (list, tuple)) and not all(is_pair(row) for row in data):
        for i, row in enumerate(data):
            if is_pair(row) or isinstance(row, str):
                raise DataError(f"row {i} of the list is not a graph as the others are: {row!r:.60}.")
        return list(data), None, "the list"
    columns, source = columns_of(data, graph_column, label_column)
    known = check_columns(columns, [graph_column], source)
    labels = list(columns[label_column]) if label_column in known else None
    return list(columns[graph_column]), labels, source


def graph_of(model: GraphormerForGraphClassification, value: Any, row: int, source: str) -> Graph:
    try:
        return check_graph(model, as_graph(value) if isinstance(value, str) else value, f"row {row} of {source}")
    except HeadwaterError as error:
        said = str(error)
        raise DataError(said if said.startswith("row ") else f"row {row} of {source}: {said}") from error


class GraphSource:
    """Labelled graphs of one classifier; `model` is in evaluation mode and where it is to be computed."""

    mixes = True

    def __init__(self, model: nn.Module, graphs: Sequence[Graph], protocol: Protocol, batch_size: int = 32) -> None:
        assert isinstance(model, GraphormerForGraphClassification)
        check_least("batch_size", batch_size)
        self.model = model
        self.graphs = graphs
        self.batch_size = batch_size
        self.removal: str | None = protocol.removal
        self.bounds: Bounds = Bounds()

    def __len__(self) -> int:
        return len(self.graphs)

    def part(self, samples: Sequence[int]) -> GraphPart:
        return GraphPart(self, samples)

    def largest(self) -> int:
        return max(range(len(self.graphs)), key=lambda i: len(self.graphs[i]))

    def describe(self) -> dict[str, Any]:
        return {"items": "nodes", "removal": self.removal}


class GraphPart:
    """Some graphs. `numbers` are their places in the source."""

    mixes: bool = True
    tried: int = 2

    def __init__(self, source: GraphSource, numbers: Sequence[int]) -> None:
        self.source = source
        self.numbers = numbers
        self.graphs: list[Graph] = [source.graphs[i] for i in numbers]

    def __len__(self) -> int:
        return len(self.graphs)

    def items(self, sample: int) -> Counts:
        return np.arange(len(self.graphs[sample]))

    def explain(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        """Graphs of like size go together."""
        order = sorted(samples, key=lambda i: len(self.graphs[i]))
        found = dict(zip(order, answer_all(self.request(order, method, target, seed)), strict=True))
        for i in samples:
            check_relevance(found[i], len(self.graphs[i]), self.numbers[i], "node")
        return [found[i] for i in samples]

    def request(self, samples: Sequence[int], method: str, target: int | None, seed: int) -> Request:
        source, graphs = self.source, [self.graphs[i] for i in samples]
        size = source.bounds.samples_of(method, source.batch_size)
        options = Options(method=method, target=target, seed=seed, batch_size=size)
        return Request(source.model, graphs, options.with_memory(source.bounds.room_of(method)))

    def fields(self, samples: Sequence[int]) -> dict[str, Tensor]:
        """The model's arguments for the whole graphs."""
        model = self.source.model
        batch = collate([self.graphs[i] for i in samples], model.config, dtype=model.dtype)
        batch.pop("labels", None)
        device = where_it_is(model)[0]
        return {name: values.to(device) for name, values in batch.items()}

    def perturb(self, sample: int, kept: Flags) -> list[Perturbed]:
        """A node's cost is that of a token."""
        if self.source.removal == "induced" and self.source.model.virtual_node is None and not kept.any(1).all():
            raise EmptyInput(
                "without its nodes a graph has nothing that this model can be read from: it has no virtual node. "
                "Ask for the other reading of removal: protocol='ali2022(removal=masked)'."
            )
        return [Perturbed((sample, row.tobytes()), len(self.graphs[sample]), (sample, row)) for row in kept]

    def logits(self, inputs: Sequence[Perturbed]) -> Floats:
        """One batch, padded to its largest."""
        model = self.source.model
        batch = self.fields([entry.value[0] for entry in inputs])
        keep = torch.zeros(batch["attention_mask"].shape, dtype=torch.bool)
        for row, entry in zip(keep, inputs, strict=True):
            row[: entry.cost] = torch.from_numpy(entry.value[1])
        keep = keep.to(batch["attention_mask"].device)
        if self.source.removal == "induced":
            return classify(model, induce_subgraphs(batch, keep, model.config.edge_types), "nodes taken out")
        return classify(model, mask_nodes(model, batch, keep), "masked nodes")


def mask_nodes(model: GraphormerForGraphClassification, batch: dict[str, Tensor], keep: Tensor) -> dict[str, Tensor]:
    """The same batch with the embeddings of all other nodes zero."""
    with torch.no_grad():
        own = (batch.get("node_features"), batch.get("node_numbers"), batch["degrees"])
        embedded = model.node_embeddings(*own) * keep[..., None]
    rest = ("distances", "edge_paths", "attention_mask")
    return {"inputs_embeds": embedded, **{name: batch[name] for name in rest if name in batch}}
