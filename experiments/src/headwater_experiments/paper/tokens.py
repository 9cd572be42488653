"""Texts as token ids, made once and kept flat, so that a training waits for the graphics card and not for strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwater_experiments.data import Experiment, LabelledTexts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

POOL = 16  # batches whose texts are sorted by length together


@dataclass(frozen=True)
class TokenBatch:
    """Padded ids, where they are tokens, and the labels."""

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    def to(self, device: torch.device | str) -> TokenBatch:
        return TokenBatch(*(part.to(device, non_blocking=True) for part in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token ids of many texts, one after the other; text i is ids[starts[i]:starts[i + 1]]."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.int64]
    pad: int

    @classmethod
    def of(cls, table: LabelledTexts, tokenizer: PreTrainedTokenizerBase, longest: int) -> Tokens:
        """Every text with its special tokens, cut at `longest` tokens."""
        found = tokenizer(table.texts, truncation=True, max_length=longest)["input_ids"]
        starts = np.cumsum([0, *map(len, found)])
        flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in found])
        return cls(flat, starts, np.asarray(table.labels, dtype=np.int64), int(tokenizer.pad_token_id or 0))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> TokenBatch:
        """These texts, padded to the longest of them."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        steps = np.arange(lengths.max())
        inside = steps[None, :] < lengths[:, None]
        places = np.where(inside, self.starts[rows][:, None] + steps[None, :], 0)
        ids = np.where(inside, self.ids[places], self.pad)
        return TokenBatch(
            torch.from_numpy(ids.astype(np.int64)),
            torch.from_numpy(inside.astype(np.int64)),
            torch.from_numpy(self.labels[rows]),
        )

    def shuffle(self, size: int, seed: int, round_: int) -> Iterator[TokenBatch]:
        """All texts in a random order that depends on the seed and the round alone, alike lengths together."""
        random = np.random.default_rng([seed, round_])
        order = random.permutation(len(self))
        batches = []
        for start in range(0, len(order), size * POOL):
            pool = order[start : start + size * POOL]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += [pool[i : i + size] for i in range(0, len(pool), size)]
        for i in random.permutation(len(batches)):
            yield self.batch(batches[i])

    def in_order(self, size: int) -> Iterator[TokenBatch]:
        """All texts by length, for reading answers off."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(0, len(order), size):
            yield self.batch(order[start : start + size])


@dataclass(frozen=True)
class Tokenised:
    """The three parts of an experiment as token ids."""

    train: Tokens
    validation: Tokens
    test: Tokens

    @classmethod
    def of(cls, parts: Experiment, tokenizer: PreTrainedTokenizerBase, longest: int) -> Tokenised:
        return cls(*(Tokens.of(part, tokenizer, longest) for part in (parts.train, parts.validation, parts.test)))
