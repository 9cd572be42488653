"""What a number in a configuration means, read off its name, and the small number that stands in its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

WIDTH, HEADS, HEAD, INNER = 32, 4, 8, 48
VOCABULARY, POSITIONS, WINDOW = 128, 64, 8

Shrink = Callable[[Any], Any]


def at_most(bound: int) -> Shrink:
    """No more than `bound`, in every stage where there are several; what stands for "none" (0, -1) stays."""

    def shrink(value: Any) -> Any:
        return type(value)(map(shrink, value)) if isinstance(value, (list, tuple)) else min(value, bound)

    return shrink


def exactly(number: int) -> Shrink:
    return lambda value: number


def keep_value(value: Any) -> Any:
    return value


def along_stages(number: int) -> Shrink:
    """Widths of stages keep their ratios: all are divided by what makes the narrowest `number` wide."""

    def shrink(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return number
        by = max(1, min(v for v in value if v) // number)
        return type(value)(max(1, v // by) for v in value)

    return shrink


def heads(value: Any) -> Any:
    """Heads of stages stay, for widths keep their ratios to them."""
    return value if isinstance(value, (list, tuple)) else HEADS


def key_value_heads(value: int) -> int:
    """Keys and values of one head for all, or of one a group, as it was."""
    return 1 if value == 1 else HEADS // 2


def square(side: int) -> Shrink:
    return lambda value: side if isinstance(value, int) else type(value)(side for _ in value)


def patch(value: Any) -> Any:
    return min(value, 8) if isinstance(value, int) else value


def if_large(value: Any) -> Any:
    return WIDTH if isinstance(value, int) and value > VOCABULARY else value


# Patterns of whole names, and what becomes of such a number. The first that matches counts.
SIZES: tuple[tuple[str, Shrink], ...] = (
    (r"type_vocab_size num_channels in_channels in_chans audio_channels channels", keep_value),
    (r".*vocab_size vocab_size_.* .*codebook_size .*_vocab", at_most(VOCABULARY)),
    (r"max_.*position_embeddings n_positions n_ctx max_(source|target)_positions max_seq_len context_length",
     at_most(POSITIONS)),
    (r"(conf_)?num_hidden_layers n_layers? num_layers (num_)?(encoder|decoder)_layers \w+_(encoder|decoder)_layers",
     at_most(2)),
    (r"depths? num_blocks num_global_layers layers num_layers_per_stack", at_most(2)),
    (r"first_k_dense_replace num_dense_layers max_window_layers num_self_attends_per_block", at_most(1)),
    (r"(\w+_)?(num_)?(key_value_heads|kv_heads|query_groups) kv_n_heads", key_value_heads),
    (r"(\w+_)?(num_)?(attention_)?heads (\w+_)?n_heads? linear_num_(key|value)_heads", heads),
    (r"mamba_(d_head|head_dim|headdim)", exactly(2 * HEAD)),
    (r"(mamba_)?n_?groups", at_most(2)),
    (r"(\w+_)?rope_head_dim rotary_dim", exactly(HEAD // 2)),
    (r"\w*head_?dim (\w+_)?d_head d_kv dim_head attention_head_size kv_channels", exactly(HEAD)),
    (r"(\w+_)?rank", exactly(HEAD)),
    (r"moe_\w*(size|dim) (\w+_)?expert_\w*(size|dim)", exactly(INNER // 2)),
    (r"(\w+_)?intermediate_size(_\w+)? (\w+_)?ffn_dim d_ff dff dim_ff d_inner n_inner feed_forward_(size|dim) "
     r"ffn_hidden_size mlp_dim", exactly(INNER)),
    (r"num_experts n_routed_experts num_local_experts moe_num_experts zero_expert_num", at_most(HEADS)),
    (r"num_experts_per_to(k|ken) moe_(k|topk|top_k) n_group num_expert_group", at_most(2)),
    (r"topk_group", exactly(1)),
    (r"index_topk(_blocks)? local_attention keep_window_size block_size", at_most(WINDOW)),
    (r"(\w+_)?(sliding_window|attention_window|window_size|chunk_size)(_size)?", at_most(WINDOW)),
    (r"(mamba_d_|ssm_)?state(_size)?", at_most(2 * HEAD)),
    (r"image_size input_size crop_size", square(32)),
    (r"patch_size", patch),
    (r"num_mel_bins feature_size num_hash_buckets max_num_patches", at_most(WIDTH)),
    (r"\w*hidden_sizes embed_dims? embedding_size stem_channels conv_dim tdnn_dim num_filters stage_\w*channels",
     along_stages(2 * HEAD)),
    (r"\w*hidden_size\w* d_model n_embd dim emb_dim embedding_dim hidden_dim lru_width "
     r"\w*(embed|proj|projection|output|out)_(dim|size)\w*", exactly(WIDTH)),
    (r"\w*(_size|_dim|_channels?|_width|_features|_ngram_\w*|_base|latents)", if_large),
)  # fmt: skip
_SIZES = tuple((re.compile("|".join(patterns.split())), shrink) for patterns, shrink in SIZES)


def small(name: str, value: Any) -> Any:
    """The small number for a field of this name; what is no count, or is not known, stays."""
    if not is_count(value):
        return value
    return next((shrink(value) for pattern, shrink in _SIZES if pattern.fullmatch(name)), value)


def is_count(value: Any) -> bool:
    """A whole number, or a row of them."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    return isinstance(value, int) and not isinstance(value, bool)
