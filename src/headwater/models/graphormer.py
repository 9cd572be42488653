"""Graphormer (Ying et al. 2021): a Transformer over the nodes of a graph, told the graph's structure by biases.

Attention between two nodes gets a learned number for their distance and one for the edges on the way between them;
a node's degree is part of its embedding; a virtual node, tied to all others, is where the answer is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from headwater.errors import InputError
from headwater.inputs.protocol import Prepared
from headwater.models.graphs.config import GraphormerConfig, check_config
from headwater.models.graphs.explained import prepare_graphs

try:
    from transformers import initialization as init  # leaves alone what a checkpoint held
except ImportError:  # before version 5, which asks for no module whose weights were read
    from torch.nn import init

__all__ = ["GraphormerConfig", "GraphormerForGraphClassification"]


class NodeEmbeddings(nn.Module):
    """What a node brings along: h = sum of its features' embeddings + W numbers + the embedding of its degree.

    With `number_hidden_size` the numbers go through a small network of so many waves in place of W.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.features: nn.ModuleList = nn.ModuleList(nn.Embedding(size, width) for size in config.node_ranges)
        self.numbers: nn.Module | None = _number_layer(config) if config.number_features else None
        self.degree: nn.Embedding = nn.Embedding(config.max_degree + 1, width)

    def forward(self, node_features: Tensor | None, node_numbers: Tensor | None, degrees: Tensor) -> Tensor:
        embedded: Tensor = self.degree(degrees.long().clamp(max=self.degree.num_embeddings - 1))
        if self.features:
            if node_features is None:
                raise InputError("the model's nodes have categorical features: give node_features.")
            columns = node_features.long().unbind(-1)
            embedded = embedded + sum(table(c) for table, c in zip(self.features, columns, strict=True))
        if self.numbers is not None:
            if node_numbers is None:
                raise InputError("the model's nodes have continuous features: give node_numbers.")
            embedded = embedded + self.numbers(node_numbers.to(embedded.dtype))
        return embedded


def _number_layer(config: GraphormerConfig) -> nn.Module:
    if config.number_hidden_size:
        return NumberNetwork(config)
    return nn.Linear(config.number_features, config.hidden_size)


class Waves(nn.Linear):
    """sin(W x + b): W starts large enough to tell numbers of 0.1 apart in 0 … 1."""

    sharpness: float = 4.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sin()


class NumberNetwork(nn.Module):
    """A node's numbers as waves of learned lengths, as a Transformer's positions are, then a linear layer.

    A linear layer alone can hardly tell places apart. Waves are as often positive as negative, so that what all nodes
    have in common does not drown what sets them apart.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        self.up: Waves = Waves(config.number_features, config.number_hidden_size)
        self.down: nn.Linear = nn.Linear(config.number_hidden_size, config.hidden_size)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.down(self.up(numbers))  # type: ignore[no-any-return]


class ScaledEmbedding(nn.Embedding):
    """An embedding whose vectors start with numbers of the size `spread`."""

    def __init__(self, rows: int, width: int, spread: float) -> None:
        self.spread = spread
        super().__init__(rows, width)


class EdgeEncoding(nn.Module):
    r"""c_ij = mean over the edges e_1, e_2 … of a shortest path from i to j of x_{e_n} · w_n, for each head.

    x_e is the sum of the embeddings of e's columns. Since an edge is one of few types and a path has few places, all
    x · w form a small table, and no tensor of the width of x is made for pairs of nodes.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        self.ranges: tuple[int, ...] = tuple(config.edge_ranges)
        self.heads: int = config.num_attention_heads
        self.size: int = config.edge_size
        spread = (len(self.ranges) * self.size) ** -0.25  # x · w is then about 1
        self.columns: nn.ModuleList = nn.ModuleList(ScaledEmbedding(rows, self.size, spread) for rows in self.ranges)
        self.places: ScaledEmbedding = ScaledEmbedding(config.max_path, self.heads * self.size, spread)

    def forward(self, edge_paths: Tensor) -> Tensor:
        """[batch, nodes, nodes, places] of edge types plus 1, 0 where there is none → [batch, nodes, nodes, heads]."""
        table = self.table()
        total: Tensor = sum(  # type: ignore[assignment]
            F.embedding(edge_paths[..., place].long(), table[place]) for place in range(edge_paths.shape[-1])
        )
        length = (edge_paths > 0).sum(-1, keepdim=True).clamp(min=1)
        return total / length

    def parts(self, edge_paths: Tensor, gradient: Tensor) -> Tensor:
        """[…, places]: what each edge on a way contributes to output times gradient, [nodes, nodes, heads] of one."""
        table = self.table().to(gradient)
        places = range(edge_paths.shape[-1])
        found = [(F.embedding(edge_paths[..., p].long(), table[p]) * gradient).sum(-1) for p in places]
        return torch.stack(found, -1) / (edge_paths > 0).sum(-1, keepdim=True).clamp(min=1)

    def table(self) -> Tensor:
        """[places, 1 + types, heads]; the first row, for no edge, is 0."""
        types = torch.arange(math.prod(self.ranges), device=self.places.weight.device)
        vectors = torch.zeros(len(types), self.size, device=types.device, dtype=self.places.weight.dtype)
        for size, column in zip(reversed(self.ranges), reversed(self.columns), strict=True):
            vectors = vectors + column(types % size)
            types = types // size
        weights = self.places.weight.unflatten(-1, (self.heads, self.size))
        return F.pad(torch.einsum("td,phd->pth", vectors, weights), (0, 0, 1, 0))


class StructureBias(nn.Module):
    """What attention from i to j is told of the graph: a number for their distance, one for the edges between.

    Distance 0, 1, … `max_distance` and no connection have a number each, and so has the virtual node to all others.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        self.farthest: int = config.max_distance
        self.virtual_node: bool = config.virtual_node
        self.spatial: ScaledEmbedding = ScaledEmbedding(config.max_distance + 3, config.num_attention_heads, spread=1.0)
        self.edges: EdgeEncoding | None = EdgeEncoding(config) if config.edge_ranges else None

    def forward(self, distances: Tensor, edge_paths: Tensor | None, real: Tensor) -> Tensor:
        """[batch, heads, positions, positions], minus infinity towards padding.

        Padding looks at itself, too, so that no row is empty and no number infinite.
        """
        bias: Tensor = self.spatial(self.buckets(distances))
        if self.edges is not None:
            if edge_paths is None:
                raise InputError("the model's edges have features: give edge_paths.")
            bias = bias + F.pad(self.edges(edge_paths), (0, 0, *self._margin() * 2))
        itself = torch.eye(bias.shape[1], dtype=torch.bool, device=bias.device)
        hidden = ~(F.pad(real, self._margin(), value=True)[:, None, :] | itself)
        return bias.permute(0, 3, 1, 2).contiguous().masked_fill(hidden[:, None], -math.inf)

    def buckets(self, distances: Tensor) -> Tensor:
        near = distances.long().clamp(max=self.farthest)
        return F.pad(torch.where(near < 0, self.farthest + 1, near), self._margin() * 2, value=self.farthest + 2)

    def _margin(self) -> tuple[int, int]:
        return (1, 0) if self.virtual_node else (0, 0)


class GraphormerBlock(nn.Module):
    """h' = h + attention(LN(h)), h'' = h' + FFN(LN(h'))."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.heads: int = config.num_attention_heads
        self.attention_dropout: float = config.attention_probs_dropout_prob
        self.attention_norm: nn.LayerNorm = nn.LayerNorm(width, eps)
        self.norm: nn.LayerNorm = nn.LayerNorm(width, eps)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output: nn.Linear = nn.Linear(width, width)
        self.up: nn.Linear = nn.Linear(width, config.intermediate_size)
        self.down: nn.Linear = nn.Linear(config.intermediate_size, width)
        self.dropout: nn.Dropout = nn.Dropout(config.hidden_dropout_prob)
        self.post_norm: bool = config.post_norm

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        if self.post_norm:
            mixed = self.attention_norm(hidden + self.dropout(self.attend(hidden, bias)))
            normed: Tensor = self.norm(mixed + self.dropout(self.feed(mixed)))
            return normed
        attended = hidden + self.dropout(self.attend(self.attention_norm(hidden), bias))
        fed: Tensor = attended + self.dropout(self.feed(self.norm(attended)))
        return fed

    def feed(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(F.gelu(self.up(x))))  # type: ignore[no-any-return]

    def attend(self, x: Tensor, bias: Tensor) -> Tensor:
        query, key, value = (self._split(layer(x)) for layer in (self.query, self.key, self.value))
        dropped = self.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype), dropout_p=dropped)
        return self.output(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        """[batch, heads, positions, width of a head]"""
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class GraphormerForGraphClassification(PreTrainedModel):  # type: ignore[misc]
    """Which class a graph belongs to. `headwater.models.graphs.collate` makes its inputs.

    A node's content enters as the output of `node_embeddings`, [batch, nodes, width], and nowhere else;
    `inputs_embeds` replaces that output. The virtual node is put before the others afterwards, and is what the class is
    read from. Without it the class is read from the mean over the nodes.
    """

    config_class: type[GraphormerConfig] = GraphormerConfig
    base_model_prefix = "graphormer"
    main_input_name = "node_features"
    _supports_sdpa = True

    def __init__(self, config: GraphormerConfig) -> None:
        check_config(config)  # here: transformers makes configs without arguments, to see what differs from the default
        super().__init__(config)
        self.node_embeddings: NodeEmbeddings = NodeEmbeddings(config)
        self.virtual_node: nn.Embedding | None = nn.Embedding(1, config.hidden_size) if config.virtual_node else None
        self.structure: StructureBias = StructureBias(config)
        self.dropout: nn.Dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers: nn.ModuleList = nn.ModuleList(GraphormerBlock(config) for _ in range(config.num_hidden_layers))
        self.norm: nn.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.classifier: nn.Linear = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Linear layers keep the size of what they are given; heads start out looking at different distances.

        A step of AdamW moves a weight by no more than its rate. From 0.02, where language models start, it takes
        thousands of steps at 2e-4 until a distance makes a difference to attention.
        """
        if isinstance(module, nn.Linear):
            sharpness = getattr(module, "sharpness", 0.0)
            init.normal_(module.weight, std=sharpness or module.in_features**-0.5)
            init.uniform_(module.bias, -sharpness, sharpness)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=getattr(module, "spread", self.config.initializer_range))
        else:
            super()._init_weights(module)

    def get_input_embeddings(self) -> nn.Module:
        return self.node_embeddings

    def forward(
        self,
        node_features: Tensor | None = None,
        node_numbers: Tensor | None = None,
        degrees: Tensor | None = None,
        distances: Tensor | None = None,
        edge_paths: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Logits, and the loss where labels are given. Distances are -1 where there is no way.

        `edge_paths` [batch, nodes, nodes, places] holds the types of the edges on a shortest path, plus 1, and 0 where
        there is none. `attention_mask` is true for nodes and false for padding.
        """
        if distances is None:
            raise InputError("the model needs the distances between nodes: give distances.")
        if inputs_embeds is None:
            if degrees is None:
                raise InputError("the model needs the nodes' degrees: give degrees, or inputs_embeds.")
            inputs_embeds = self.node_embeddings(node_features, node_numbers, degrees)
        real = torch.ones_like(inputs_embeds[..., 0]) if attention_mask is None else attention_mask
        real = real.bool()
        hidden = self.encode(inputs_embeds, self.structure(distances, edge_paths, real))
        logits = self.classifier(self.read(hidden, real))
        loss = None if labels is None else F.cross_entropy(logits, labels.long())
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def headwater_inputs(self, samples: Sequence[Any]) -> Prepared:
        """Graphs, RDKit molecules, PyG data or NetworkX graphs as a batch to be explained; see `inputs.protocol`."""
        return prepare_graphs(self, samples)

    def encode(self, nodes: Tensor, bias: Tensor) -> Tensor:
        """[batch, positions, width]; with a virtual node, it stands at position 0."""
        if self.virtual_node is not None:
            virtual = self.virtual_node.weight.to(nodes.dtype).expand(len(nodes), 1, -1)
            nodes = torch.cat([virtual, nodes], 1)
        hidden = self.dropout(nodes)
        for layer in self.layers:
            hidden = layer(hidden, bias)
        return self.norm(hidden)  # type: ignore[no-any-return]

    def read(self, hidden: Tensor, real: Tensor) -> Tensor:
        if self.virtual_node is not None:
            return hidden[:, 0]
        weights = real.to(hidden.dtype)[..., None]
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
