"""The training of the two small language models.

    python -m headwater_experiments.language.training gpt2 --out checkpoints/language/gpt2 --device cuda
    python -m headwater_experiments.language.training t5 --out checkpoints/language/t5 --device cuda

Half of what is learned is plain text, half are prompts with answers. A card takes some minutes.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .lessons import Material, draw_lesson

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

LOG = logging.getLogger(__name__)
WORDS = 6144  # tokens that are known
WIDTH, HEADS = 256, 8
END, PADDING = "<end>", "<pad>"
IGNORED = -100  # a label that no loss is computed for


@dataclass(frozen=True)
class Recipe:
    """How long, how much at once, how fast."""

    steps: int = 6000
    batch: int = 128
    length: int = 400
    answer: int = 24  # tokens of a decoder's output
    rate: float = 1.5e-3
    warm_up: int = 200
    seed: int = 0


def make_tokenizer(material: Material) -> PreTrainedTokenizerFast:
    """Byte pairs of the texts themselves."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=[PADDING, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    known = [lesson.prompt + lesson.answer for lesson in material.facts + material.stories] * 4
    made.train_from_iterator(known + material.plain()[:8000] + material.passages, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=PADDING)


def make_model(build: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

    end, padding = tokenizer.convert_tokens_to_ids([END, PADDING])
    if build == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(tokenizer),
                n_positions=640,
                n_embd=WIDTH,
                n_layer=8,
                n_head=HEADS,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=end,
                eos_token_id=end,
                pad_token_id=padding,
            )
        )
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=WIDTH,
            d_kv=WIDTH // HEADS,
            d_ff=2 * WIDTH,
            num_layers=5,
            num_decoder_layers=3,
            num_heads=HEADS,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=padding,
            eos_token_id=end,
            pad_token_id=padding,
        )
    )


@dataclass
class Reader:
    """Batches for a model, drawn without end."""

    build: str
    material: Material
    tokenizer: Any
    recipe: Recipe
    seed: int

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        self.draw, self.texts = random.Random(self.seed), self.material.plain()
        while True:
            yield self.decoder_batch() if self.build == "gpt2" else self.pair_batch()

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return found

    @property
    def end(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def passage(self, length: int) -> list[int]:
        """A stretch of plain text."""
        text = self.draw.choice(self.texts)
        start = self.draw.randrange(max(1, len(text) - 5 * length))
        return self.ids(text[start : start + 6 * length])[:length]

    def decoder_batch(self) -> dict[str, Tensor]:
        """Rows full of documents; of a prompt with its answer only the answer counts, and all of plain text."""
        length = self.recipe.length
        ids = torch.full((self.recipe.batch, length), self.end)
        labels = torch.full_like(ids, IGNORED)
        for row in range(len(ids)):
            place = 0
            while place < length:
                words, learned = self.document()
                words, learned = words[: length - place], learned[: length - place]
                ids[row, place : place + len(words)] = torch.tensor(words)
                labels[row, place : place + len(words)] = torch.tensor(learned)
                place += len(words)
        return {"input_ids": ids, "labels": labels}

    def document(self) -> tuple[list[int], list[int]]:
        if self.draw.random() < 0.35:
            words = [self.end, *self.passage(self.recipe.length)]
            return words, words
        lesson = draw_lesson(self.material, self.draw)
        prompt, answer = self.ids(lesson.prompt), [*self.ids(lesson.answer), self.end]
        return prompt + answer, [IGNORED] * len(prompt) + answer

    def pair_batch(self) -> dict[str, Tensor]:
        """Prompts and answers, padded; of plain text the beginning and what comes next."""
        pairs = [self.pair() for _ in range(self.recipe.batch)]
        padding = self.tokenizer.pad_token_id
        longest = max(len(source) for source, _ in pairs)
        ids = torch.tensor([source + [padding] * (longest - len(source)) for source, _ in pairs])
        longest = max(len(target) for _, target in pairs)
        labels = torch.tensor([target + [IGNORED] * (longest - len(target)) for _, target in pairs])
        return {"input_ids": ids, "attention_mask": (ids != padding).long(), "labels": labels}

    def pair(self) -> tuple[list[int], list[int]]:
        if self.draw.random() < 0.2:
            words = self.passage(self.draw.randint(40, self.recipe.length))
            split = max(1, len(words) - self.recipe.answer)
            return words[:split], words[split:] or [self.end]
        lesson = draw_lesson(self.material, self.draw)
        return self.ids(lesson.prompt)[-self.recipe.length :], [*self.ids(lesson.answer), self.end]


class LessonBatches(torch.utils.data.IterableDataset[Any]):
    """A reader for each worker process."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        worker = torch.utils.data.get_worker_info()
        self.reader.seed += 0 if worker is None else 1000 * (worker.id + 1)
        return iter(self.reader)


def train(
    build: str, material: Material, recipe: Recipe, device: str, workers: int = 6, seconds: float = math.inf
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A model of that build, trained for the recipe's steps, or for so many seconds if they are over first."""
    torch.manual_seed(recipe.seed)
    tokenizer = make_tokenizer(material)
    model: Any = make_model(build, tokenizer).to(device).train()
    batches = torch.utils.data.DataLoader(
        LessonBatches(Reader(build, material, tokenizer, recipe, recipe.seed)), batch_size=None, num_workers=workers
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.05)
    began, loss = time.monotonic(), torch.zeros(())
    for step, batch in enumerate(batches):
        spent = time.monotonic() - began
        done = max(step / recipe.steps, spent / seconds)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min(1.0, (step + 1) / recipe.warm_up) * 0.5 * (1 + math.cos(math.pi * done))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = model(**{name: value.to(device, non_blocking=True) for name, value in batch.items()})
        optimizer.zero_grad(set_to_none=True)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss = out.loss.detach() if step == 0 else 0.98 * loss + 0.02 * out.loss.detach()
        if step % 200 == 0:
            LOG.info("%s: step %d, loss %.3f, %.0f s", build, step, float(loss), spent)
    return model.eval(), tokenizer


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights in half precision."""
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small language model.")
    parser.add_argument("build", choices=("gpt2", "t5"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--batch", type=int, default=Recipe.batch)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=6)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    recipe = Recipe(steps=given.steps, batch=given.batch)
    save(*train(given.build, Material.read(), recipe, given.device, given.workers, given.seconds), given.out)


if __name__ == "__main__":
    main()
