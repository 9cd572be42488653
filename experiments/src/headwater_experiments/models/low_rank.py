"""A pretrained BERT fine-tuned by a change of low rank (LoRA: Hu et al. 2021), so that a checkpoint holds little.

Every matrix of the encoder and of the pooler becomes W + up·down, of which W is left as it was; biases, LayerNorms and
the new head are trained as a whole. A checkpoint of MiniLM is 0.2 MB: the change, its matrices in four bits. What is
loaded from it is a plain `BertForSequenceClassification` with the changes added to its weights, which are fetched from
where they came (`config.embeddings_from`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import AutoModel, BertConfig, BertForSequenceClassification
from transformers.utils import SAFE_WEIGHTS_NAME

from headwater.errors import LoadError
from headwater.models.pretrained import MINILM, locate

from .packing import pack, unpack

UP, DOWN = ".up", ".down"
INSIDE = ".parametrizations.weight.0"  # where torch keeps a parametrization's own weights


class LowRankBertConfig(BertConfig):  # type: ignore[misc]
    """BERT's shape, and whose weights were changed."""

    model_type = "headwater-low-rank-bert"

    def __init__(self, embeddings_from: str = MINILM, rank: int = 8, **rest: Any) -> None:
        super().__init__(**rest)
        self.embeddings_from = embeddings_from
        self.rank = rank


class LowRankBertForSequenceClassification(BertForSequenceClassification):  # type: ignore[misc]
    """Reads a checkpoint that `save_low_rank` wrote."""

    config_class = LowRankBertConfig

    @classmethod
    def from_pretrained(
        cls, name: Any, *_: Any, config: Any = None, output_loading_info: bool = False, **options: Any
    ) -> Any:
        """The model with its changes added: a plain BERT, in float32 unless `dtype` says otherwise."""
        config = config or cls.config_class.from_pretrained(name)
        changes = unpack(load_file(Path(name) / SAFE_WEIGHTS_NAME))
        plain = {key: value for key, value in config.to_dict().items() if key not in ("rank", "model_type")}
        model = BertForSequenceClassification(BertConfig(**plain))
        model.bert.load_state_dict(base_weights(config.embeddings_from))
        add_changes(model, changes)
        asked = options.get("dtype")
        model = (model.to(asked) if isinstance(asked, torch.dtype) else model).eval()
        found: dict[str, Any] = {"missing_keys": set(), "mismatched_keys": set(), "unexpected_keys": set()}
        return (model, found) if output_loading_info else model


def base_weights(name: str) -> dict[str, Tensor]:
    """The pretrained weights, rounded to half precision as they were in training."""
    base = AutoModel.from_pretrained(locate(name), dtype=torch.float32, use_safetensors=True)
    return {key: value.half().float() for key, value in base.state_dict().items()}


@torch.no_grad()
def add_changes(model: BertForSequenceClassification, changes: Mapping[str, Tensor]) -> None:
    """Put whole weights in place, and add up·down to the matrices that have it."""
    weights = dict(model.named_parameters())
    for name, value in changes.items():
        if name.endswith(UP):
            continue
        if name.endswith(DOWN):
            matrix = name.removesuffix(DOWN)
            weights[f"{matrix}.weight"] += changes[matrix + UP].T @ value
        elif name in weights and weights[name].shape == value.shape:
            weights[name].copy_(value)
        else:
            raise LoadError(f"the checkpoint has {name} of shape {tuple(value.shape)}, which the model does not have.")


class LowRankChange(nn.Module):
    """W + up·down. `up` begins as 0, so the model begins as it was."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.up = nn.Parameter(torch.zeros(rank, rows))
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up.T @ self.down


def train_in_low_rank(model: BertForSequenceClassification, rank: int) -> BertForSequenceClassification:
    """Freeze the matrices, and give each of the encoder and the pooler a change that is trained in their place."""
    model.bert.load_state_dict({key: value.half().float() for key, value in model.bert.state_dict().items()})
    model.bert.embeddings.requires_grad_(False)
    for layer in matrices(model):
        layer.weight.requires_grad_(False)
        parametrize.register_parametrization(layer, "weight", LowRankChange(layer.weight, rank))
    return model


def matrices(model: BertForSequenceClassification) -> Iterator[nn.Linear]:
    for part in (model.bert.encoder, model.bert.pooler):
        yield from (module for module in part.modules() if isinstance(module, nn.Linear))


def save_low_rank(model: BertForSequenceClassification, out: Path, embeddings_from: str, rank: int) -> None:
    """Write what was trained, its matrices in four bits."""
    out.mkdir(parents=True, exist_ok=True)
    settings = {key: value for key, value in model.config.to_dict().items() if key != "model_type"}
    settings |= {"architectures": [LowRankBertForSequenceClassification.__name__], "dtype": "float32"}
    LowRankBertConfig(**{**settings, "embeddings_from": embeddings_from, "rank": rank}).save_pretrained(out)
    trained = {
        name.replace(INSIDE, ""): value.detach().cpu().contiguous()
        for name, value in model.named_parameters()
        if value.requires_grad
    }
    save_file(pack(trained), out / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
