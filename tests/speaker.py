"""A tokenizer for the tiny language models: 120 words and parts of words, each of which can be generated and read."""

from __future__ import annotations

from functools import cache

import tokenizers
import transformers as tf
from tiny import BUILD, SPECIAL, randomised
from torch import nn

SIZE = 120
WORDS = "the capital of France is Paris London a good film . ! in user assistant system and it was she said".split()
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant{% endif %}"
)


@cache
def speaker() -> tf.PreTrainedTokenizerFast:
    parts = ["ing", "ly", "s", ".", "!", "un", "able"]
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS), *parts]
    vocabulary += [f"▁w{i}" for i in range(SIZE - len(vocabulary))]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Metaspace(), tokenizers.pre_tokenizers.Punctuation()]
    )
    inner.decoder = tokenizers.decoders.Metaspace()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return tf.PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=TEMPLATE, **special)


@cache
def talker(name: str) -> nn.Module:
    """A tiny language model in float64 whose special tokens are the tokenizer's, and which never stops early."""
    model = randomised((SEQ2SEQ.get(name) or BUILD[name])().double())
    for config in (model.config, model.generation_config):
        config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, 1, None
    return model


SMALL = {"vocab_size": SIZE, "d_model": 32, **SPECIAL}
SEQ2SEQ = {
    "t5-lm": lambda: tf.T5ForConditionalGeneration(
        tf.T5Config(**SMALL, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    ),
    "bart-lm": lambda: tf.BartForConditionalGeneration(
        tf.BartConfig(
            **SMALL,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=64,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        )
    ),
}
