"""Tiny random models of many architectures, with random biases, in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import tokenizers
import torch
import transformers as tf
from torch import Tensor, nn

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 120,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


ENCODER_DECODER = {"vocab_size": 120, "d_model": 32}
T5 = {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
BART = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}

BUILD: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: tf.BertForSequenceClassification(tf.BertConfig(**SMALL, num_labels=3)),
    "roberta": lambda: tf.RobertaForSequenceClassification(tf.RobertaConfig(**SMALL)),
    "distilbert": lambda: tf.DistilBertForSequenceClassification(
        tf.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=120, max_position_embeddings=64)
    ),
    "albert": lambda: tf.AlbertForSequenceClassification(tf.AlbertConfig(**SMALL, embedding_size=16)),
    "electra": lambda: tf.ElectraForSequenceClassification(tf.ElectraConfig(**SMALL, embedding_size=16)),
    "deberta-v2": lambda: tf.DebertaV2ForSequenceClassification(
        tf.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16)
    ),
    "xlnet": lambda: tf.XLNetForSequenceClassification(
        tf.XLNetConfig(vocab_size=120, d_model=32, n_layer=2, n_head=4, d_inner=48)
    ),
    "modernbert": lambda: tf.ModernBertForSequenceClassification(
        tf.ModernBertConfig(**SMALL, **SPECIAL, cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2)
    ),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=120, n_positions=64)),
    "gpt-neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**SMALL)),
    "opt": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(
            vocab_size=120,
            hidden_size=32,
            num_hidden_layers=2,
            ffn_dim=48,
            num_attention_heads=4,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
        )
    ),
    "bloom": lambda: tf.BloomForCausalLM(tf.BloomConfig(vocab_size=120, hidden_size=32, n_layer=2, n_head=4)),
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**GROUPED)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**GROUPED, head_dim=8)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**GROUPED, head_dim=8)),
    "gemma3": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**GROUPED, head_dim=8)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**GROUPED, **SPECIAL)),
    "mixtral": lambda: tf.MixtralForCausalLM(
        tf.MixtralConfig(**GROUPED, num_local_experts=4, experts_implementation="eager")
    ),
    "t5": lambda: tf.T5ForSequenceClassification(tf.T5Config(**ENCODER_DECODER, **T5, decoder_start_token_id=0)),
    "bart": lambda: tf.BartForSequenceClassification(tf.BartConfig(**ENCODER_DECODER, **BART)),
    "vit": lambda: tf.ViTForImageClassification(
        tf.ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            image_size=16,
            patch_size=8,
        )
    ),
    "torch-encoder": lambda: TorchEncoder(batch_first=True),
    "torch-encoder-sequence-first": lambda: TorchEncoder(batch_first=False),
}

# These normalise in float32 whatever the model's dtype is
CASTS = {"llama", "mistral", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "t5"}


class TorchEncoder(nn.Module):
    """torch's own encoder, as people stack it: embedding, layers, mean, linear."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(120, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, activation="gelu", batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 3)
        self.batch_first = batch_first

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embed(input_ids)
        padding = attention_mask == 0 if attention_mask is not None else None
        if not self.batch_first:
            x = x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding)
        if not self.batch_first:
            x = x.transpose(0, 1)
        return self.head(x[:, 0])


def randomised(model: nn.Module, seed: int = 1) -> nn.Module:
    """Random weights and biases: a zero bias would hide a missing line, a weight of one a missing factor."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
            p.copy_(0.2 * noise if p.dim() > 1 else p + 0.1 * noise)
    return model.eval()


@cache
def tiny(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(BUILD[name]().to(dtype))


def arguments(name: str, samples: int = 2, length: int = 9) -> dict[str, Tensor]:
    """Random input for the model; encoder-decoder classifiers want an end token."""
    generator = torch.Generator().manual_seed(7)
    if name == "vit":
        return {"pixel_values": torch.randn(samples, 3, 16, 16, generator=generator, dtype=torch.float64)}
    ids = torch.randint(5, 115, (samples, length), generator=generator)
    if name in ("bart", "t5"):
        ids[:, -1] = {"bart": 2, "t5": 1}[name]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


WORDS = (
    "a gripping , beautifully acted film the movie is was not good bad very dull great un ##able ##s ##ing act play "
    "mary john france capital of paris london tokyo in to and but it"
).split()


@cache
def tokenizer(pad: bool = True, side: str = "right") -> tf.PreTrainedTokenizerFast:
    """A WordPiece tokenizer with a few words, letters for the rest."""
    letters = [chr(c) for c in range(97, 123)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *("##" + c for c in letters)]
    vocabulary = list(dict.fromkeys(vocabulary))[:120]
    model = tokenizers.models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]")
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", vocabulary.index("[CLS]")), ("[SEP]", vocabulary.index("[SEP]"))]
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    if pad:
        special["pad_token"] = "[PAD]"
    return tf.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, padding_side=side, **special)
