"""A tokenizer for the tiny language models: 120 words and parts of words, each of which can be generated and read."""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace

import tokenizers
import torch
import transformers as tf
from tiny import BART, BUILD, ENCODER_DECODER, SPECIAL, T5, randomised
from torch import Tensor, nn

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


SEQ2SEQ = {
    "t5-lm": lambda: tf.T5ForConditionalGeneration(
        tf.T5Config(**ENCODER_DECODER, **SPECIAL, **T5, decoder_start_token_id=0)
    ),
    "bart-lm": lambda: tf.BartForConditionalGeneration(
        tf.BartConfig(**ENCODER_DECODER, **SPECIAL, **BART, decoder_start_token_id=2, forced_eos_token_id=None)
    ),
}


class Additive(nn.Module):
    """A language model of which everything is known: the logit of one token is the sum of the embeddings."""

    def __init__(self, values: dict[int, float], answer: int = 5) -> None:
        super().__init__()
        self.answer = answer
        self.config = SimpleNamespace(pad_token_id=0)
        self.embed = nn.Embedding(SIZE, 1, dtype=torch.float64)
        nn.init.zeros_(self.embed.weight)
        with torch.no_grad():
            for token, value in values.items():
                self.embed.weight[token, 0] = value
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> SimpleNamespace:
        rows = torch.zeros(*input_ids.shape, SIZE, dtype=torch.float64)
        rows[:, -1, self.answer] = self.embed(input_ids).sum((1, 2))
        return SimpleNamespace(logits=rows)


def likelihood(logit: float) -> float:
    """Of the token of an `Additive` model whose logit this is; all others have 0."""
    return math.exp(logit) / (math.exp(logit) + SIZE - 1)
