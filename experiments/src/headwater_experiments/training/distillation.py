"""What a small model learns from a large one: its opinion of each text, and its view of each word on the way there."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwater_experiments.data import LabelledTexts
from headwater_experiments.training.augmentation import Variation, vary

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

NO_LABEL = -100
NO_WORD = -1


@dataclass(frozen=True)
class Encoded:
    """A batch of texts for one model. `words` says for each token which word it is part of; [CLS] counts as word 0."""

    inputs: dict[str, Tensor]
    words: Tensor

    def to(self, device: str) -> Encoded:
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        return Encoded(inputs, self.words.to(device, non_blocking=True))


@dataclass(frozen=True)
class DistillationBatch:
    """The same texts for each of the models, and their labels; a made-up text has the label NO_LABEL."""

    encoded: tuple[Encoded, ...]
    labels: Tensor

    def to(self, device: str) -> DistillationBatch:
        return DistillationBatch(tuple(e.to(device) for e in self.encoded), self.labels.to(device, non_blocking=True))


class Rounds(torch.utils.data.Dataset[tuple[str, int]]):
    """A table gone through `rounds` times, each time with `varied` new variations of every text.

    Item i is always the same text, whichever process asks for it.
    """

    def __init__(self, table: LabelledTexts, rounds: int, varied: int, variation: Variation, seed: int) -> None:
        self.table, self.rounds, self.variation, self.seed = table, rounds, variation, seed
        self.size = len(table) * (1 + varied)

    def __len__(self) -> int:
        return self.rounds * self.size

    def __getitem__(self, item: int) -> tuple[str, int]:
        place, row = item % self.size, item % self.size % len(self.table)
        if place < len(self.table):
            return self.table.texts[row], self.table.labels[row]
        return vary(self.table.texts, row, random.Random(f"{self.seed} {item}"), self.variation), NO_LABEL

    def order(self) -> Iterator[int]:
        """Every item once, shuffled within its round."""
        generator = torch.Generator().manual_seed(self.seed)
        for start in range(0, len(self), self.size):
            yield from (start + torch.randperm(self.size, generator=generator)).tolist()


@dataclass(frozen=True)
class Collate:
    """A pool of texts and labels to batches of `size`, with one tokenizer a model. Texts are cut at `longest` tokens.

    Texts of like length go into one batch: in a batch drawn at random four of five tokens would be padding.
    """

    tokenizers: tuple[PreTrainedTokenizerBase, ...]
    size: int
    longest: int

    def __call__(self, pool: Sequence[tuple[str, int]]) -> list[DistillationBatch]:
        by_length = sorted(pool, key=lambda row: len(row[0]))
        starts = range(0, len(pool), self.size)
        return [self._batch(by_length[start : start + self.size]) for start in starts]

    def _batch(self, rows: Sequence[tuple[str, int]]) -> DistillationBatch:
        texts, labels = [text for text, _ in rows], [label for _, label in rows]
        return DistillationBatch(tuple(self._encode(t, texts) for t in self.tokenizers), torch.tensor(labels))

    def _encode(self, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> Encoded:
        rows = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self.longest,
            pad_to_multiple_of=8,
            return_token_type_ids=False,
        )
        words = [_words(rows, i) for i in range(len(texts))]
        return Encoded({name: _tensor(value) for name, value in rows.items()}, _tensor(words))


def _tensor(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.int64))


def _words(inputs: BatchEncoding, row: int) -> list[int]:
    words = [NO_WORD if word is None else word + 1 for word in inputs.word_ids(row)]
    return [0, *words[1:]]


class Distillation(nn.Module):
    """The loss of a student that follows a teacher.

    Three parts: the squared difference of the logits; the cross-entropy with the label where there is one; and, for
    every word, the squared difference between the teacher's hidden state and the student's, brought to the teacher's
    width by one linear map that is thrown away afterwards. Student layers follow teacher layers at the same relative
    depth. The two models may cut a word in different pieces: states are averaged over the pieces of a word.
    """

    def __init__(
        self, student: PreTrainedModel, teacher: PreTrainedModel, label_weight: float, state_weight: float
    ) -> None:
        super().__init__()
        self.student, self.widen = student, nn.Linear(student.config.hidden_size, teacher.config.hidden_size)
        self.teacher = [teacher]  # in a list, so that its weights are not among the parameters
        self.label_weight, self.state_weight = label_weight, state_weight

    def forward(self, batch: DistillationBatch) -> Tensor:
        ours, theirs = batch.encoded
        with torch.no_grad():
            wanted = self.teacher[0](**theirs.inputs, output_hidden_states=True)
        got = self.student(**ours.inputs, output_hidden_states=True)
        labelled = F.cross_entropy(got.logits.float(), batch.labels, ignore_index=NO_LABEL, reduction="sum")
        return (
            F.mse_loss(got.logits.float(), wanted.logits.float())
            + self.label_weight * labelled / len(batch.labels)
            + self.state_weight * self._states(got.hidden_states, ours.words, wanted.hidden_states, theirs.words)
        )

    def _states(self, got: tuple[Tensor, ...], ours: Tensor, wanted: tuple[Tensor, ...], theirs: Tensor) -> Tensor:
        """Mean squared difference over words and layers, in units of the teacher's own variance at the layer."""
        count = int(max(ours.max(), theirs.max())) + 1
        from_ours, from_theirs = word_means(ours, count), word_means(theirs, count)
        both = (from_ours.sum(-1) > 0) & (from_theirs.sum(-1) > 0)
        total = ours.new_zeros((), dtype=torch.float32)
        for layer, state in enumerate(got):
            target = wanted[round(layer * (len(wanted) - 1) / (len(got) - 1))]
            target = (from_theirs.to(target.dtype) @ target).float()[both]
            total = total + F.mse_loss(self.widen(from_ours @ state.float())[both].float(), target) / target.var()
        return total / len(got)


def word_means(words: Tensor, count: int) -> Tensor:
    """The matrix [batch, count, tokens] that averages tokens to words; a word without a token has a row of zeros."""
    member = F.one_hot(words + 1, count + 1)[..., 1:].float()
    return (member / member.sum(1, keepdim=True).clamp(min=1)).transpose(1, 2)
