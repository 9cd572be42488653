"""Words that stand in for others: real words of other prompts, of as many tokens, so that no position moves.

A language model has no token for "nothing is known here". A word of another prompt of the same kind is something that
it might read there; several are drawn, and what the model answers is averaged over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwater.evaluation.language.asking import log_probabilities

from ..prompts import Prompt
from .questions import Question, tokenise_words


@dataclass(frozen=True)
class Substitutes:
    """The token sequences that can stand in for a word, by the kind of the prompt and their number of tokens."""

    pool: dict[tuple[str, int], tuple[tuple[int, ...], ...]]

    @classmethod
    def of(cls, tokenizer: Any, prompts: Sequence[Prompt]) -> Substitutes:
        pool: dict[tuple[str, int], dict[tuple[int, ...], None]] = {}
        for prompt in prompts:
            ids, words = tokenise_words(tokenizer, prompt)
            for word in words:
                tokens = tuple(ids[p] for p in word.positions)
                pool.setdefault((prompt.kind, len(tokens)), {})[tokens] = None
        return cls({key: tuple(found) for key, found in pool.items()})

    def draw(self, question: Question, draws: int, seed: int) -> list[Tensor]:
        """The prompt with every word replaced, `draws` times; a word never stands in for itself."""
        draw = np.random.default_rng([seed, *question.ids])
        found = []
        for _ in range(draws):
            ids = list(question.ids)
            for word in question.words:
                own = tuple(question.ids[p] for p in word.positions)
                others = [t for t in self.pool[question.prompt.kind, len(own)] if t != own] or self.any_tokens(own)
                for position, token in zip(word.positions, others[draw.integers(len(others))], strict=True):
                    ids[position] = token
            found.append(torch.tensor(ids))
        return found

    def any_tokens(self, own: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Where no other word has as many tokens: single-token words, one after the other."""
        singles = [tokens[0] for (_, length), found in self.pool.items() if length == 1 for tokens in found]
        rest = [token for token in singles if token not in own] or singles
        return [tuple(rest[(start + step) % len(rest)] for step in range(len(own))) for start in range(len(rest))]


class Answers:
    """The log-probability of a question's answer with only some of its words, each asked once a draw."""

    def __init__(self, model: nn.Module, question: Question, substitutes: Sequence[Tensor]) -> None:
        self.model, self.question, self.substitutes = model, question, substitutes
        self.whole = torch.tensor(question.ids)
        self.known: dict[bytes, np.ndarray] = {}

    def of(self, kept: np.ndarray) -> np.ndarray:
        """For rows of kept words, [rows, words] of bool: log-probabilities [rows, draws]."""
        new = list({row.tobytes(): row for row in kept if row.tobytes() not in self.known}.values())
        if new:
            inputs = [self.put_together(row, other).tolist() for row in new for other in self.substitutes]
            found = log_probabilities(self.model, inputs, [self.question.answer])
            shaped = found.reshape(len(new), len(self.substitutes))
            self.known.update(zip((row.tobytes() for row in new), shaped, strict=True))
        return np.stack([self.known[row.tobytes()] for row in kept])

    def put_together(self, kept: np.ndarray, other: Tensor) -> Tensor:
        ids = other.clone()
        ids[:] = self.whole
        for keep, word in zip(kept, self.question.words, strict=True):
            if not keep:
                places = list(word.positions)
                ids[places] = other[places]
        return ids
