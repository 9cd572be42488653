"""A model of the zoo: a small configuration, random weights, biases and statistics, and something to run it on."""

from __future__ import annotations

import inspect
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .entries import METHOD, Entry
from .hints import Hint, hint_for
from .shrinking import FIRST_FREE, shrunk

LENGTH, DECODER_LENGTH = 16, 5
# what is explained where there are no tokens
SIGNALS = ("pixel_values", "input_features", "input_values", "inputs_embeds")
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)


class NotBuilt(Exception):
    """The harness could not make a model of this entry; the message says why."""


@dataclass
class Specimen:
    """A model, its arguments, and which of them, or which module, is explained (None: what its embeddings give)."""

    model: nn.Module
    arguments: dict[str, Any]
    explained: str | None
    method: str = METHOD


def build(entry: Entry, dtype: torch.dtype = torch.float64) -> Specimen:
    """The entry's model, with the arguments of one sample."""
    import transformers

    cls = getattr(transformers, entry.model, None)
    if cls is None:
        raise NotBuilt(f"transformers has no class {entry.model}")
    hint = hint_for(entry.label, entry.name)
    if hint.cannot:
        raise NotBuilt(hint.cannot)
    config = part_for(cls, small_config(entry, hint))
    torch.manual_seed(0)
    model = randomise(cls(config).to(dtype), seed=zlib.crc32(entry.label.encode())).eval()
    visible_attention(model)
    told = {**arguments_of(entry, model), **hint.arguments(model.config)}
    arguments = {k: v.to(dtype) if is_float(v) else v for k, v in told.items() if v is not None}
    return Specimen(model, arguments, hint.explained or next((name for name in SIGNALS if name in arguments), None))


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def small_config(entry: Entry, hint: Hint) -> Any:
    """Shrunk; its experts are run one by one, and a decoder has a token to begin with, as in every checkpoint."""
    from transformers import CONFIG_MAPPING

    labels = 2 if entry.map == "question-answering" else 3  # where an answer starts and where it ends
    config = shrunk(CONFIG_MAPPING[entry.name](**hint.default), hint.fields, labels)
    config._experts_implementation = "eager"  # the grouped products know no float64
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
    return config


def part_for(cls: Any, config: Any) -> Any:
    """A language model of a model for several kinds of input is built from the text's part of the configuration."""
    wanted = getattr(cls, "config_class", None)
    if wanted is None or isinstance(config, wanted):
        return config
    return next((part for part in vars(config).values() if isinstance(part, wanted)), config)


def visible_attention(model: Any) -> None:
    """Attention as anybody would load it for an explanation: not fused into something that no rule sees into."""
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(chosen, str) and chosen not in ("eager", "sdpa"):
        model.set_attn_implementation("eager")


def randomise(model: nn.Module, seed: int) -> nn.Module:
    """Random weights and biases: a zero bias would hide a missing line, a weight of one a missing factor.

    Matrices keep the size of what they multiply; filters raise it a little, for activations follow that lower it.
    Vectors move by a tenth around what the model begins with.
    """
    generator = torch.Generator().manual_seed(seed)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point():
                p.copy_(draw_weights(p, generator, table=id(p) in tables))
        for module in model.modules():
            randomise_norm(module, generator)
    return model


def draw_weights(p: Tensor, generator: torch.Generator, table: bool) -> Tensor:
    noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
    if p.dim() > 1:
        fan = p[0].numel() if p.dim() > 3 else p.shape[-1]
        return noise.to(p.dtype) * (0.5 if table else ((3 if p.dim() > 3 else 1) / max(fan, 1)) ** 0.5)
    base = torch.where(p.isfinite() & (p.abs() < 100), p, torch.zeros_like(p))
    return base + (0.1 * noise).to(p.dtype)


def randomise_norm(module: nn.Module, generator: torch.Generator) -> None:
    """Scales of normalisations, running means and variances as training would leave them: neither 0 nor 1."""
    weight = getattr(module, "weight", None)
    if isinstance(module, NORMS) and isinstance(weight, Tensor):  # some models begin with 0 here, and pass nothing on
        weight.copy_(1 + (0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)).to(weight.dtype))
    for name, buffer in module.named_buffers(recurse=False):
        if not buffer.is_floating_point() or buffer.dim() != 1:
            continue
        noise = torch.rand(buffer.shape, generator=generator, dtype=torch.float64).to(buffer.dtype)
        if name == "running_mean":
            buffer.copy_(0.2 * noise - 0.1)
        elif name == "running_var":
            buffer.copy_(0.5 + noise)


def arguments_of(entry: Entry, model: nn.Module) -> dict[str, Any]:
    """What the model is run on: an image, a sound or tokens, by the map and by what the model takes."""
    generator = torch.Generator().manual_seed(7)
    if entry.map == "image-classification" and "pixel_values" in inspect.signature(model.forward).parameters:
        return {"pixel_values": pixels(model.config, generator)}
    if entry.map == "speech-classification":
        return sound(model, generator)
    return tokens(entry, model, generator)


def pixels(config: Any, generator: torch.Generator) -> Tensor:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 64
    height, width = (size, size) if isinstance(size, int) else size
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    channels = channels if isinstance(channels, int) else 3
    return torch.randn(1, channels, height, width, generator=generator, dtype=torch.float64)


def sound(model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
    """A wave, or the features that are made of one: what the model's first argument is called tells."""
    first = next(iter(inspect.signature(model.forward).parameters))
    config: Any = model.config
    bins = getattr(config, "num_mel_bins", None)
    shape: tuple[int, ...]
    if bins is not None and hasattr(config, "max_source_positions"):
        shape = (1, bins, 2 * config.max_source_positions)
    elif bins is not None and hasattr(config, "max_length"):
        shape = (1, config.max_length, bins)
    else:
        shape = (1, 4000)
    return {first: torch.randn(*shape, generator=generator, dtype=torch.float64)}


def tokens(entry: Entry, model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
    """Token ids; a decoder beside them where the model has one, an end token for what reads its answer off it."""
    config: Any = model.config
    text = config.get_text_config()
    size = min(getattr(text, "vocab_size", None) or 128, 128)
    ids = torch.randint(FIRST_FREE, size, (1, LENGTH), generator=generator)
    takes = inspect.signature(model.forward).parameters
    found: dict[str, Any] = {"input_ids": ids}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        end = getattr(config, "eos_token_id", None)
        ids[0, -1] = end if isinstance(end, int) else ids[0, -1]
        if entry.map not in ("sequence-classification", "question-answering"):
            found["decoder_input_ids"] = torch.randint(FIRST_FREE, size, (1, DECODER_LENGTH), generator=generator)
    if "attention_mask" in takes:
        found["attention_mask"] = torch.ones_like(ids)
    return found
