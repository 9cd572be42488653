"""Models by their measures, with random weights: what an explanation costs does not depend on what they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headwater.errors import UnknownName, UsageError


@dataclass(frozen=True)
class ModelShape:
    """A model by its measures. A classifier reads whole texts; a decoder predicts the token after the last."""

    name: str
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    kv_heads: int = 0
    decoder: bool = False
    cap: float = 0.0  # of attention's scores

    def with_layers(self, layers: int | None) -> ModelShape:
        return self if layers is None else replace(self, layers=layers)

    def build(self, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        """The model, its weights drawn where it will be computed."""
        with torch.random.fork_rng(devices=[] if device == "cpu" else None), default_dtype_and_device(device, dtype):
            torch.manual_seed(seed)
            model = (gemma if self.cap else llama if self.decoder else bert)(self)
        return model.eval()

    def inputs(self, batch: int, tokens: int, device: str = "cpu", seed: int = 0) -> dict[str, Any]:
        """Random tokens. Of a decoder, only the last position's prediction is computed."""
        if tokens > self.positions:
            raise UsageError(f"{self.name} has {self.positions} positions, too few for {tokens} tokens.")
        ids = torch.randint(5, self.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(seed))
        ids = ids.to(device)
        if self.decoder:
            return {"input_ids": ids, "logits_to_keep": 1}
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@contextmanager
def default_dtype_and_device(device: str, dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def bert(shape: ModelShape) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
    )
    made: nn.Module = BertForSequenceClassification(config)
    return made


def llama(shape: ModelShape) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
        rope_theta=500000.0,
        tie_word_embeddings=False,
    )
    made: nn.Module = LlamaForCausalLM(config)
    return made


def gemma(shape: ModelShape) -> nn.Module:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    size = shape.hidden // shape.heads
    config = Gemma2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=size,
        query_pre_attn_scalar=size,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
        attn_logit_softcapping=shape.cap,
    )
    made: nn.Module = Gemma2ForCausalLM(config)
    return made


SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape("bert-base", 768, 12, 12, 3072, 30522, 512),
        # Llama-3-8B's proportions, an eighth as wide
        ModelShape("llama-small", 512, 8, 8, 1792, 32000, 16384, kv_heads=2, decoder=True),
        # the same with Gemma 2's attention
        ModelShape("gemma2-small", 512, 8, 8, 1792, 32000, 8192, kv_heads=2, decoder=True, cap=50.0),
        ModelShape("llama-8b", 4096, 32, 32, 14336, 128256, 262144, kv_heads=8, decoder=True),
        # the same layers with a quarter of the words
        ModelShape("mistral-7b", 4096, 32, 32, 14336, 32000, 262144, kv_heads=8, decoder=True),
    )
}


def find_shape(name: str) -> ModelShape:
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    return SHAPES[name]
