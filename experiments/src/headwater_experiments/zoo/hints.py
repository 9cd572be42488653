"""What cannot be read off a configuration's names: a few fields for a few kinds of configuration.

Most say what a configuration leaves open that its model needs (None by default, filled in by every checkpoint), or two
numbers that must agree in a way of their own. A key is the name of a configuration, or a label of the zoo. This table
belongs to the harness, which has to build models that nobody trained. The rules know none of these names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Hint:
    """`fields` of the small configuration (parts by dotted names), and those that the default one needs to exist.

    `arguments` gives, for a configuration, what the model must be told beside the usual arguments; None for one that it
    must not get.
    `explained` names the module or argument that is explained, where the model does not say what embeds its input.
    `cannot` says why there is nothing to build.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    default: dict[str, Any] = field(default_factory=dict)
    arguments: Callable[[Any], dict[str, Any]] = lambda config: {}
    explained: str | None = None
    cannot: str = ""


def needs(**fields: Any) -> Hint:
    return Hint({name.replace("__", "."): value for name, value in fields.items()})


def patch_rows(config: Any) -> dict[str, Any]:
    """An image that comes as a row of its patches, with their number along each side."""
    vision = config.vision_config
    side, size = 2, vision.num_channels * vision.patch_size**2
    generator = torch.Generator().manual_seed(7)
    return {
        "pixel_values": torch.randn(1, side * side, size, generator=generator, dtype=torch.float64),
        "pixel_attention_mask": torch.ones(1, side * side, dtype=torch.long),
        "spatial_shapes": torch.tensor([[side, side]]),
    }


def embedding_inputs(config: Any) -> dict[str, Any]:
    """Vectors in place of token ids, for models that read several tokens at each position."""
    size = config.get_text_config(decoder=True).hidden_size
    generator = torch.Generator().manual_seed(7)
    vectors = torch.randn(1, 16, size, generator=generator, dtype=torch.float64)
    return {"inputs_embeds": vectors, "input_ids": None, "attention_mask": None}


def boxes(config: Any) -> dict[str, Any]:
    """Where on a page each token stands."""
    return {"bbox": torch.rand(1, 16, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64)}


def question(config: Any) -> dict[str, Any]:
    """A question and a text, each with its end: three separators."""
    ids = torch.randint(16, 128, (1, 16), generator=torch.Generator().manual_seed(7))
    ids[0, [5, 6, 15]] = config.sep_token_id
    return {"input_ids": ids}


def image_regions(config: Any) -> dict[str, Any]:
    """Parts of an image beside the text: what was seen in them, and where."""
    generator = torch.Generator().manual_seed(8)
    seen = torch.randn(1, 4, config.visual_feat_dim, generator=generator, dtype=torch.float64)
    return {"visual_feats": seen, "visual_pos": torch.rand(1, 4, 4, generator=generator, dtype=torch.float64)}


def frames(config: Any) -> dict[str, Any]:
    """Sound as a row of frames."""
    size = config.feature_projection_input_dim
    sound = torch.randn(1, 24, size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return {"input_features": sound}


def with_image(config: Any) -> dict[str, Any]:
    """An image in the middle of a text: places for what is seen in it among the tokens."""
    ids = torch.randint(16, 128, (1, 16), generator=torch.Generator().manual_seed(8))
    ids[0, 4:8] = config.image_token_id
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


DRAFTS = Hint(cannot="a head that drafts for another model, and runs on that model's keys and values alone")
BERT = {"model_type": "bert", "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64}  # fmt: skip
JOINED = {"encoder": BERT, "decoder": {**BERT, "is_decoder": True, "add_cross_attention": True},
          "decoder_start_token_id": 1, "pad_token_id": 0}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
INDEXED = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
           "indexer_compress_ratio": 2, "ngram_vocab_size_base": 64, "split_ngram_parts": 4}  # fmt: skip
SPARSE = needs(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1)

HINTS: dict[str, Hint] = {
    "bamba": needs(attn_layer_indices=[1]),
    "bit": needs(num_groups=4),
    "bros": Hint({"hidden_size": 64}, arguments=boxes),
    "canine": Hint({"max_position_embeddings": 64, "num_hash_buckets": 32}, explained="canine.char_embeddings"),
    "codegen": needs(rotary_dim=4),
    "cohere_compass_text": needs(rope_parameters={"full_attention": ROPE, "sliding_attention": ROPE}),
    "cpmant": Hint(explained="cpmant.input_embedding"),
    "cvt": needs(depth=(1, 2, 3)),
    "dbrx": needs(attn_config__rope_theta=10000.0, attn_config__clip_qkv=8.0),
    "deepseek_v2": needs(num_experts_per_tok=2, n_routed_experts=4),
    "donut-swin": needs(window_size=2, image_size=64),
    "dots1": SPARSE,
    "efficientnet": needs(width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320, image_size=64),
    "encoder-decoder": Hint(default=JOINED),
    "esm": needs(vocab_size=64, position_embedding_type="rotary", pad_token_id=1, mask_token_id=3),
    "falcon_h1": needs(mamba_d_ssm=64),
    "gemma3n_text": needs(layer_types=["sliding_attention", "full_attention"] * 2, num_hidden_layers=4,
                          num_kv_shared_layers=2, activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0],
                          intermediate_size=[48] * 4),
    "gemma4_assistant": DRAFTS,
    "gemma4_unified_assistant": DRAFTS,
    "gpt_neo": needs(attention_types=[[["global", "local"], 1]], num_layers=2),
    "gptj": needs(rotary_dim=4),
    "granitemoehybrid": needs(layer_types=["linear_attention", "full_attention"]),
    "hgnet_v2": needs(stem_channels=(3, 8, 12), stage_in_channels=(12, 16, 24, 32), stage_mid_channels=(8, 8, 8, 8),
                      stage_out_channels=(16, 24, 32, 40), stage_numb_of_layers=(2, 2, 2, 2), depths=(3, 4, 6, 3),
                      hidden_sizes=(16, 24, 32, 40), embedding_size=16),
    "hunyuan_v1_dense": needs(head_dim=8),
    "hunyuan_v1_moe": needs(head_dim=8),
    "jamba": needs(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                   num_hidden_layers=2),
    "layoutlmv3": needs(coordinate_size=6, shape_size=4),
    "levit": needs(image_size=64, patch_size=16, hidden_sizes=(16, 32, 48), num_attention_heads=(2, 4, 6),
                   key_dim=(8, 8, 8)),
    "lfm2_moe": needs(layer_types=["conv", "full_attention"], num_dense_layers=1),
    "lilt": needs(hidden_size=48),
    "longcat_flash": needs(head_dim=4),
    "question-answering/longformer": Hint(arguments=question),
    "question-answering/lxmert": Hint(arguments=image_regions),
    "mamba2": needs(head_dim=16, n_groups=2),
    "ministral": needs(head_dim=8),
    "mobilevit": needs(hidden_sizes=(16, 24, 32), neck_hidden_sizes=(8, 8, 16, 16, 24, 24, 64), image_size=64),
    "mobilevitv2": needs(width_multiplier=0.25, image_size=64),
    "musicgen": Hint(arguments=embedding_inputs),
    "musicgen_melody": Hint(arguments=embedding_inputs),
    "nemotron": needs(num_key_value_heads=2),
    "neomme": needs(head_dim=16),
    "perceiver": Hint(explained="perceiver.input_preprocessor"),
    "pp_lcnet": needs(class_expand=64, scale=0.25),
    "qwen4_exp": Hint({f"text_config.{name}": value for name, value in INDEXED.items()}),
    "qwen4_exp_text": Hint(INDEXED),
    "reformer": needs(axial_pos_shape=(4, 4), axial_pos_embds_dim=(16, 16), attn_layers=["local", "lsh"], num_buckets=4,
                      local_attn_chunk_length=4, lsh_attn_chunk_length=4, max_position_embeddings=16),
    "causal-lm/reformer": needs(is_decoder=True),
    "shieldgemma2": Hint({"mm_tokens_per_image": 4, "yes_token_index": 20, "no_token_index": 21}, arguments=with_image),
    "siglip2": Hint(arguments=patch_rows),
    "swin": needs(window_size=2, image_size=64),
    "swinv2": needs(window_size=2, image_size=64),
    "textnet": needs(hidden_sizes=(8, 8, 16, 16, 24), stem_out_channels=8, image_size=64),
    "vibevoice_asr": needs(acoustic_tokenizer_chunk_size=3200),
    "wav2vec2-bert": Hint(arguments=frames),
    "xlstm": needs(chunk_size=8),
    "xmod": needs(default_language="en_XX"),
    "zamba": needs(attn_layer_period=2, attn_layer_offset=1, num_hidden_layers=5),
}  # fmt: skip


def hint_for(label: str, name: str) -> Hint:
    """What is known of an entry: by its configuration, and by its label."""
    general, own = HINTS.get(name, Hint()), HINTS.get(label, Hint())
    more = own.arguments if label in HINTS else general.arguments
    fields, default = {**general.fields, **own.fields}, {**general.default, **own.default}
    return Hint(fields, default, more, own.explained or general.explained, own.cannot or general.cannot)
