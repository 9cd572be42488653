"""The paper's text model: three blocks of attention over frozen pretrained embeddings (Ali et al. 2022, section 5).

A block is attention, a dense layer, the residual and a LayerNorm without weights; there is no feed-forward layer. Two
things in the authors' code are defects, and here switches that default to the sane value: `ignore_mask` (padding is
attended like any token) and `unscaled` (scores are not divided by the root of the head's width).

The embeddings are not trained, so a checkpoint need not hold them: `save_compact` leaves them out and packs the rest,
and loading such a checkpoint fetches them from where they came (`config.embeddings_from`). They are rounded to half
precision there as here, so that the model is the same whether its embeddings travelled with it or not.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import SAFE_WEIGHTS_NAME

from headwater.errors import LoadError
from headwater.models.pretrained import MINILM, locate

from .packing import is_packed, pack, unpack

FROZEN = "embeddings."


class TextTransformerConfig(PretrainedConfig):  # type: ignore[misc]
    """Shape and switches. Width, vocabulary and positions are those of the embeddings that it stands on."""

    model_type = "headwater-text-transformer"

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 384,
        num_hidden_layers: int = 3,
        num_attention_heads: int = 12,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        layer_norm_eps: float = 1e-12,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        embeddings_from: str = MINILM,
        ignore_mask: bool = False,
        unscaled: bool = False,
        **rest: Any,
    ) -> None:
        super().__init__(pad_token_id=pad_token_id, **rest)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.layer_norm_eps = layer_norm_eps
        self.dropout = dropout
        self.embeddings_from = embeddings_from
        self.ignore_mask = ignore_mask
        self.unscaled = unscaled


class Embeddings(nn.Module):
    """BERT's: word + position + type, then an affine LayerNorm. The paper's x0 is the output of this module."""

    def __init__(self, config: TextTransformerConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.requires_grad_(False)

    def forward(
        self, input_ids: Tensor | None, token_type_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        length = words.shape[1]
        types = words.new_zeros(words.shape[:2], dtype=torch.long) if token_type_ids is None else token_type_ids
        positions = self.position_embeddings(torch.arange(length, device=words.device))
        normed: Tensor = self.LayerNorm(words + positions + self.token_type_embeddings(types))
        return normed


class PlainNorm(nn.Module):
    """(x − mean) / (std + 1e-12), std with n − 1: a LayerNorm without weights."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-12)


class TransformerBlock(nn.Module):
    """Attention → dense → + residual → norm."""

    def __init__(self, config: TextTransformerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.scale = 1.0 if config.unscaled else 1 / math.sqrt(width // self.heads)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = PlainNorm()

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (self.by_head(part(x)) for part in (self.query, self.key, self.value))
        chance = self.dropout.p if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=chance, scale=self.scale)
        joined = attended.transpose(1, 2).flatten(2)
        out: Tensor = self.norm(x + self.dropout(self.dense(joined)))
        return out

    def by_head(self, x: Tensor) -> Tensor:
        split: Tensor = x.unflatten(-1, (self.heads, -1))  # [batch, tokens, heads, width of a head]
        return split.transpose(1, 2)


class TextTransformerForSequenceClassification(PreTrainedModel):  # type: ignore[misc]
    """The paper's classifier. `new` makes one with random blocks on pretrained embeddings."""

    config_class = TextTransformerConfig
    base_model_prefix = "transformer"
    _supports_sdpa = True

    def __init__(self, config: TextTransformerConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @classmethod
    def new(cls, embeddings_from: str = MINILM, **choices: Any) -> TextTransformerForSequenceClassification:
        """A model with random blocks, on the embeddings of a BERT by directory or hub name."""
        source = _load_embeddings(embeddings_from)
        shape = source.config
        config = TextTransformerConfig(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden_size,
            num_attention_heads=choices.pop("num_attention_heads", shape.num_attention_heads),
            max_position_embeddings=shape.max_position_embeddings,
            type_vocab_size=shape.type_vocab_size,
            layer_norm_eps=shape.layer_norm_eps,
            pad_token_id=shape.pad_token_id or 0,
            embeddings_from=embeddings_from,
            **choices,
        )
        model = cls(config)
        model._adopt(source)
        return model

    @classmethod
    def from_pretrained(cls, name: Any, *rest: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """As in transformers; embeddings that the checkpoint leaves out are fetched from `config.embeddings_from`."""
        file = Path(name) / SAFE_WEIGHTS_NAME
        if file.is_file() and is_packed(weights := load_file(file)):
            options = {"config": cls.config_class.from_pretrained(name), **options, "state_dict": unpack(weights)}
            name = None  # transformers takes a name or weights
        model, found = super().from_pretrained(name, *rest, output_loading_info=True, **options)
        absent = {key for key in found["missing_keys"] if key.startswith(FROZEN)}
        if absent:
            model._adopt(_load_embeddings(model.config.embeddings_from))
            found["missing_keys"] = type(found["missing_keys"])(set(found["missing_keys"]) - absent)
        return (model, found) if output_loading_info else model

    def _adopt(self, source: PreTrainedModel) -> None:
        """Take over the embeddings of a BERT."""
        given, own = source.embeddings.state_dict(), self.embeddings.state_dict()
        wrong = [key for key in own if key not in given or given[key].shape != own[key].shape]
        if wrong:
            raise LoadError(
                f"the embeddings of {self.config.embeddings_from} do not fit this model: {', '.join(wrong)} "
                "differ. They must be those of the BERT that it was trained on."
            )
        self.embeddings.load_state_dict({key: given[key].half().float() for key in own})

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value  # type: ignore[assignment]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        x = self.embeddings(input_ids, token_type_ids=token_type_ids, inputs_embeds=inputs_embeds)
        attended = (
            None if attention_mask is None or self.config.ignore_mask else attention_mask[:, None, None, :].bool()
        )
        for block in self.blocks:
            x = block(x, attended)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        logits = self.classifier(self.dropout(pooled))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def save_compact(model: TextTransformerForSequenceClassification, out: Path) -> None:
    """Write the model without its embeddings, its matrices in four bits: about 1 MB. Only what was trained is kept."""
    out.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(out)
    weights = {name: value.cpu() for name, value in model.state_dict().items() if not name.startswith(FROZEN)}
    save_file(pack(weights), out / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})


def _load_embeddings(name: str) -> PreTrainedModel:
    """The BERT whose embeddings are taken, in float32."""
    model: PreTrainedModel = AutoModel.from_pretrained(locate(name), dtype=torch.float32, use_safetensors=True)
    if not all(hasattr(getattr(model, "embeddings", None), part) for part in ("word_embeddings", "LayerNorm")):
        raise LoadError(
            f"{name} has no embeddings as BERT has them. Name a BERT, such as bert-base-uncased or {MINILM}."
        )
    return model
