"""A BERT's weights in DistilBERT's build: the same function, up to the classifier's head.

DistilBERT has neither types of tokens nor a pooler. With one type its embedding is a constant, which is added to the
positions; the head is DistilBERT's own and new. So the paper's bias study, which explains a DistilBERT, can be run with
one that was made here.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertModel, DistilBertConfig, DistilBertForSequenceClassification

LAYER = {  # of BERT -> of DistilBERT
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm",
}


def as_distilbert(bert: BertModel, **labels: Any) -> DistilBertForSequenceClassification:
    """The classifier, with a head of random weights; `labels` go to its configuration."""
    shape = bert.config
    config = DistilBertConfig(
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_position_embeddings,
        n_layers=shape.num_hidden_layers,
        n_heads=shape.num_attention_heads,
        dim=shape.hidden_size,
        hidden_dim=shape.intermediate_size,
        activation=shape.hidden_act,
        pad_token_id=shape.pad_token_id,
        **labels,
    )
    model = DistilBertForSequenceClassification(config)
    model.distilbert.load_state_dict(rename(bert.state_dict(), shape.num_hidden_layers))
    return model


def rename(weights: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """BERT's weights under DistilBERT's names."""
    first = weights["embeddings.token_type_embeddings.weight"][0]
    found = {
        "embeddings.word_embeddings.weight": weights["embeddings.word_embeddings.weight"],
        "embeddings.position_embeddings.weight": weights["embeddings.position_embeddings.weight"] + first,
    }
    for part in ("weight", "bias"):
        found[f"embeddings.LayerNorm.{part}"] = weights[f"embeddings.LayerNorm.{part}"]
        for layer in range(layers):
            for old, new in LAYER.items():
                name = f"transformer.layer.{layer}.{new}.{part}"
                found[name] = weights[f"encoder.layer.{layer}.{old}.{part}"]
    return found
