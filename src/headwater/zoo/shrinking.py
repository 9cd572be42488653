"""A configuration as the class makes it by default, shrunk: few layers, narrow, and still of one piece.

What a number means is read off its name. Widths that must agree get the same small number; lists with one value a layer
keep one layer of every kind there is; token ids that no longer lie in the vocabulary move into it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

WIDTH, HEADS, HEAD, INNER = 32, 4, 8, 48
VOCABULARY, POSITIONS = 128, 64
FIRST_FREE = 16  # token ids below are kept for special tokens

Shrink = Callable[[Any], Any]


def at_most(bound: int) -> Shrink:
    return lambda value: min(value, bound)


def exactly(number: int) -> Shrink:
    return lambda value: number


def wide(number: int) -> Shrink:
    """Widths along stages keep their ratios: all are divided by what makes the narrowest `number` wide or less."""

    def shrink(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return number
        by = max(1, min(v for v in value if v) // number)
        return type(value)(max(1, v // by) for v in value)

    return shrink


def deep(number: int) -> Shrink:
    def shrink(value: Any) -> Any:
        return type(value)(shrink(v) for v in value) if isinstance(value, (list, tuple)) else min(value, number)

    return shrink


def shared_by_groups(value: int) -> int:
    """Keys and values of one head for all, or of one a group, as it was. (One each is told by the number of heads.)"""
    return 1 if value == 1 else HEADS // 2


# The first pattern that a field's whole name matches says what becomes of it.
RULES: tuple[tuple[str, Shrink], ...] = (
    (r".*vocab_size|vocab_size_.*|.*codebook_size|.*_vocab", at_most(VOCABULARY)),
    (r"max_.*position_embeddings|n_positions|n_ctx|max_(source|target)_positions|max_seq_len|context_length", at_most(POSITIONS)),
    (r"type_vocab_size|num_channels|in_channels|in_chans|audio_channels|channels", lambda value: value),
    (r"(conf_)?num_hidden_layers|n_layers?|(num_)?(encoder|decoder)_layers|num_layers|\w+_(encoder|decoder)_layers", deep(2)),
    (r"depths?|num_blocks|num_global_layers|layers|num_layers_per_stack", deep(2)),
    (r"first_k_dense_replace|num_dense_layers|max_window_layers|num_self_attends_per_block", at_most(1)),
    (r"(num_)?(key_value_heads|kv_heads|query_groups)|kv_n_heads|\w+_num_key_value_heads|num_global_key_value_heads", shared_by_groups),
    (r"(\w+_)?(num_)?(attention_)?heads|n_heads?|\w+_n_heads?|num_heads|linear_num_(key|value)_heads", lambda v: v if isinstance(v, (list, tuple)) else HEADS),
    (r"mamba_(d_head|head_dim|headdim)", exactly(2 * HEAD)),
    (r"(mamba_)?n_?groups", at_most(2)),
    (r"(\w+_)?rope_head_dim|rotary_dim", exactly(HEAD // 2)),
    (r"(mamba_|ssm_|linear_)?(d_head|head_dim|headdim)|\w*head_dim|d_kv|dim_head|attention_head_size|kv_channels|d_head", exactly(HEAD)),
    (r"(\w+_)?(lora_)?rank|time_step_rank|mamba_dt_rank", exactly(HEAD)),
    (r"moe_intermediate_size|(\w+_)?expert_\w*(size|dim)|moe_\w*(size|dim)", exactly(INNER // 2)),
    (r"(\w+_)?intermediate_size(_\w+)?|(\w+_)?ffn_dim|d_ff|dff|dim_ff|d_inner|n_inner|feed_forward_size|ffn_hidden_size|mlp_dim|feed_forward_dim", exactly(INNER)),
    (r"num_experts|n_routed_experts|num_local_experts|moe_num_experts|zero_expert_num", at_most(HEADS)),
    (r"num_experts_per_to(k|ken)|moe_(k|topk|top_k)|n_group|num_expert_group", at_most(2)),
    (r"topk_group", exactly(1)),
    (r"index_topk|index_topk_blocks", at_most(HEAD)),
    (r"(\w+_)?(sliding_window|attention_window|window_size|chunk_size|attention_chunk_size|chunk_length)(_size)?", lambda v: min(v, 8) if isinstance(v, int) and v > 0 else v),
    (r"local_attention|keep_window_size|block_size", at_most(8)),
    (r"(mamba_d_|ssm_)?state(_size)?", at_most(16)),
    (r"image_size|input_size|crop_size", lambda v: 32 if isinstance(v, int) else type(v)(32 for _ in v)),
    (r"patch_size", lambda v: 8 if isinstance(v, int) and v > 8 else v),
    (r"num_mel_bins|feature_size|num_hash_buckets|max_num_patches", at_most(32)),
    (r"hidden_sizes|embed_dims?|encoder_hidden_sizes|neck_hidden_sizes|embedding_size|stem_channels|conv_dim|tdnn_dim|num_filters|stage_\w*channels", wide(16)),
    (r"hidden_size|d_model|n_embd|dim|emb_dim|embedding_dim|hidden_dim|lru_width|\w*hidden_size\w*|\w*(embed|proj|projection|output|out|attention_hidden)_(dim|size)\w*", exactly(WIDTH)),
    (r"\w*(_size|_dim|_channels?|_width|_features|_ngram_\w*|_base|latents)", lambda v: WIDTH if isinstance(v, int) and v > 128 else v),
)  # fmt: skip
PATTERNS = tuple((re.compile(pattern), shrink) for pattern, shrink in RULES)
_TOKEN = re.compile(r"\w*token_(id|index)|\w*(pad|bos|eos|cls|sep|mask|unk|tag_pad|subs_pad)_(id|index)")
_NOT_COUNTS = ("chunk_size_feed_forward", "rope_parameters", "id2label", "label2id")


def shrunk(config: Any, hints: Mapping[str, Any], labels: int = 3) -> Any:
    """The same kind of configuration, small. `hints` are fields with their values, of parts by dotted names."""
    values = {**small_fields(config, hints), **direct(hints)}
    if "id2label" in field_names(config) and labels and "num_labels" not in values:
        values["id2label"] = {i: f"LABEL_{i}" for i in range(labels)}
    return type(config)(**values)


def small_fields(config: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """What the small configuration is told: what shrinks, and what a configuration around this one chose for it."""
    values: dict[str, Any] = {}
    open_by_default, usual = fields_left_open(config), usual_values(config)
    for name in field_names(config):
        value = vars(config).get(name)
        if is_config(value):
            values[name] = shrunk(value, below(hints, name), labels=0)
            continue
        chosen = value != usual.get(name)
        if chosen:
            values[name] = value
        if name in _NOT_COUNTS or value is None or (name in open_by_default and not chosen):
            continue
        small = agreeing(config, name, value, small_value(name, value))
        if small != value:
            values[name] = small
    values.update(kept_layers(config, hints))
    values.update(tokens_inside(config, {**values, **direct(hints)}))
    return values


def usual_values(config: Any) -> dict[str, Any]:
    """What the class gives by itself; the configuration's own values where it gives none."""
    try:
        return vars(type(config)())
    except Exception:  # a class that cannot do without arguments says so in its own way
        return vars(config)


def field_names(config: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(config) if one.init]


def fields_left_open(config: Any) -> set[str]:
    """Fields that are None by default: the class works them out from the others."""
    return {one.name for one in dataclasses.fields(config) if one.init and one.default is None}


def is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def direct(hints: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hints.items() if "." not in name}


def below(hints: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The hints for a part; a hint `*.field` goes to every part."""
    found = {name[2:]: value for name, value in hints.items() if name.startswith("*.")}
    own = {name[len(part) + 1 :]: value for name, value in hints.items() if name.startswith(f"{part}.")}
    return {**found, **own}


_EACH = re.compile(r"\w*key_value_heads|\w*kv_(n_)?heads|num_query_groups")
_WIDE = re.compile(r"\w*(_size|_dim|_width)|d_model|dim")


def agreeing(config: Any, name: str, before: Any, small: Any) -> Any:
    """What was as wide as the model stays as wide as the model; keys of one head each stay so."""
    width = next((getattr(config, n) for n in ("hidden_size", "d_model", "dim") if hasattr(config, n)), None)
    stages = vars(config).get("num_heads")
    if name == "embed_dim" and isinstance(before, int) and isinstance(stages, (list, tuple)):
        return HEAD * stages[0]
    if _EACH.fullmatch(name) and before == getattr(config, "num_attention_heads", None):
        return HEADS
    if before == width and isinstance(width, int) and _WIDE.fullmatch(name) and small != before:
        return WIDTH if width > WIDTH else before
    return small


def small_value(name: str, value: Any) -> Any:
    if not is_count(value):
        return value
    for pattern, shrink in PATTERNS:
        if pattern.fullmatch(name):
            return shrink(value)
    return value


def is_count(value: Any) -> bool:
    """A whole number, or a row of them."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    return isinstance(value, int) and not isinstance(value, bool)


def kept_layers(config: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Lists with one value a layer keep the first layer of every kind, and two layers at least."""
    count = getattr(config, "num_hidden_layers", None)
    name = next((n for n in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") if n in field_names(config)), None)
    if name is None or not isinstance(count, int) or name in hints:
        return {}
    rows = {
        field: vars(config)[field]
        for field in field_names(config)
        if isinstance(vars(config).get(field), (list, tuple)) and len(vars(config)[field]) == count
    }
    if not rows or count < 2:
        return {}
    kinds = list(zip(*(map(str, row) for row in rows.values()), strict=True))
    kept = sorted({kinds.index(kind) for kind in dict.fromkeys(kinds)})[:4]
    kept = kept if len(kept) > 1 else [0, 1]
    return {name: len(kept), **{field: type(row)(row[i] for i in kept) for field, row in rows.items()}}


def tokens_inside(config: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Special tokens outside the vocabulary get numbers of their own below `FIRST_FREE`."""
    size = values.get("vocab_size", getattr(config, "vocab_size", None)) or VOCABULARY
    names = [n for n in field_names(config) if _TOKEN.fullmatch(n) and isinstance(getattr(config, n, None), int)]
    taken = {getattr(config, n) for n in names}
    free = iter(i for i in range(3, size) if i not in taken)
    moved: dict[str, Any] = {n: next(free) for n in names if not -1 <= getattr(config, n) < min(size, FIRST_FREE)}
    for name in ("eos_token_id",):
        if isinstance(getattr(config, name, None), (list, tuple)):
            moved[name] = 2
    return moved
