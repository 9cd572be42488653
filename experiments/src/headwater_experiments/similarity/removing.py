"""What removing words does to a similarity: vectors of texts in which words are replaced by [UNK]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

STEPS = (0.1, 0.2, 0.3, 0.5, 0.7)  # shares of a text's words that are removed
PAIRS = (1, 2, 3, 5, 8)  # pairs of words that are removed
BATCH = 32
Words = frozenset[int]


@dataclass
class MaskedText:
    """A text whose words can be removed; vectors that were computed are kept."""

    model: Any
    tokenizer: Any
    text: str
    known: dict[Words, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        encoded = self.tokenizer(self.text, truncation=True, max_length=256)
        self.ids = encoded["input_ids"]
        self.word_ids = encoded.word_ids()
        self.words = sorted({word for word in self.word_ids if word is not None})

    def sum_words(self, relevance: Tensor) -> np.ndarray[Any, Any]:
        """[words]: a number per token summed to words; special tokens are none."""
        found = np.zeros(len(self.words))
        for amount, word in zip(relevance.tolist(), self.word_ids, strict=True):
            if word is not None:
                found[word] += amount
        return found

    def without(self, sets: Iterable[Words]) -> list[Tensor]:
        """The unit vector of the text without each set of words."""
        asked = list(sets)
        missing = [one for one in dict.fromkeys(asked) if one not in self.known]
        for start in range(0, len(missing), BATCH):
            part = missing[start : start + BATCH]
            self.known.update(zip(part, self._embed(part), strict=True))
        return [self.known[one] for one in asked]

    def _embed(self, sets: Sequence[Words]) -> Tensor:
        nothing = self.tokenizer.unk_token_id
        rows = [
            [nothing if word in removed else token for token, word in zip(self.ids, self.word_ids, strict=True)]
            for removed in sets
        ]
        with torch.no_grad():
            ids = torch.tensor(rows)
            states = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        vectors: Tensor = states.mean(1).double()
        lengths: Tensor = vectors.norm(dim=1, keepdim=True)
        return vectors / lengths


@dataclass(frozen=True)
class MaskedPair:
    """Two texts whose words can be removed."""

    a: MaskedText
    b: MaskedText

    def score(self, removed: Sequence[tuple[Words, Words]]) -> np.ndarray[Any, Any]:
        """The cosine without these words of a and of b."""
        mine = self.a.without(one for one, _ in removed)
        theirs = self.b.without(other for _, other in removed)
        return np.array([float(x @ y) for x, y in zip(mine, theirs, strict=True)])

    def measure_side(self, relevance: np.ndarray[Any, Any], side: int) -> float:
        """The cosine with the least relevant words removed first, minus that with the most relevant removed first.

        Both are means over `STEPS`. Higher is better; a random order has 0 on average.
        """
        order = np.argsort(-relevance, kind="stable").tolist()
        counts = sorted({max(1, round(share * len(order))) for share in STEPS})
        most = [frozenset(order[:count]) for count in counts]
        least = [frozenset(order[::-1][:count]) for count in counts]
        empty: Words = frozenset()
        pairs = [(one, empty) if side == 0 else (empty, one) for one in (*least, *most)]
        scores = self.score(pairs)
        return float(scores[: len(counts)].mean() - scores[len(counts) :].mean())

    def measure_pairs(self, matrix: np.ndarray[Any, Any]) -> float:
        """The same with pairs of words, one of each text, in the order of the matrix."""
        order = np.argsort(-matrix, axis=None, kind="stable")
        pairs = [(int(at) // matrix.shape[1], int(at) % matrix.shape[1]) for at in order]
        removed = [
            (frozenset(i for i, _ in chosen), frozenset(j for _, j in chosen))
            for ordered in (pairs[::-1], pairs)
            for chosen in (ordered[:count] for count in PAIRS)
        ]
        scores = self.score(removed)
        return float(scores[: len(PAIRS)].mean() - scores[len(PAIRS) :].mean())
