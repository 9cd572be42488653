"""What a graph looks like to a Graphormer, and how large the model is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from headwater.errors import UsageError

CODE_BITS = 62  # the edges of a path are packed into one int64
MOST_TYPES = 2**15 - 2  # of edges; a type is kept as an int16


class GraphormerConfig(PretrainedConfig):  # type: ignore[misc]
    """What a graph looks like to the model, and how large the model is.

    `node_ranges` and `edge_ranges` give the number of values of each categorical column of nodes and edges;
    `number_features` is how many continuous numbers a node has. Degrees above `max_degree` and distances above
    `max_distance` share a bucket; of a path the first `max_path` edges are looked at. With `post_norm` a block has its
    LayerNorms after its sums, as in the first Transformers, not before attention and the feed-forward layers.
    `node_columns`, `number_columns` and `edge_columns` name the features, for graphs whose attributes have names.
    """

    model_type = "headwater-graphormer"

    def __init__(
        self,
        node_ranges: Sequence[int] = (),
        number_features: int = 0,
        edge_ranges: Sequence[int] = (),
        hidden_size: int = 128,
        intermediate_size: int = 128,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 8,
        number_hidden_size: int = 0,
        edge_size: int = 8,
        max_degree: int = 32,
        max_distance: int = 20,
        max_path: int = 5,
        virtual_node: bool = True,
        post_norm: bool = False,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-5,
        initializer_range: float = 0.1,
        node_columns: Sequence[str] = (),
        number_columns: Sequence[str] = (),
        edge_columns: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        self.node_ranges: list[int] = list(node_ranges)
        self.edge_ranges: list[int] = list(edge_ranges)
        self.number_features = number_features
        self.number_hidden_size = number_hidden_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.edge_size = edge_size
        self.max_degree = max_degree
        self.max_distance = max_distance
        self.max_path = max_path
        self.virtual_node = virtual_node
        self.post_norm = post_norm
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.node_columns: list[str] = list(node_columns)
        self.number_columns: list[str] = list(number_columns)
        self.edge_columns: list[str] = list(edge_columns)
        super().__init__(**kwargs)

    @property
    def edge_types(self) -> int:
        """How many different edges there are: one for each combination of the edge columns; 0 without columns."""
        return math.prod(self.edge_ranges) if self.edge_ranges else 0


def check_config(config: GraphormerConfig) -> None:
    if config.hidden_size % config.num_attention_heads:
        raise UsageError(
            f"a width of {config.hidden_size} cannot be shared by {config.num_attention_heads} heads. "
            "Choose a hidden_size that the number of heads divides."
        )
    if not config.node_ranges and not config.number_features:
        raise UsageError("the nodes have no features. Give node_ranges, or number_features, or both.")
    bits = config.max_path * math.log2(config.edge_types + 1)
    if bits > CODE_BITS or config.edge_types > MOST_TYPES:
        raise UsageError(
            f"a path of {config.max_path} edges of {config.edge_types} types does not fit in {CODE_BITS} bits, or the "
            f"types are more than {MOST_TYPES}. Lower max_path, or give fewer edge columns."
        )
