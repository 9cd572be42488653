"""The result of explaining one prediction: a value, with no model behind it and nothing left to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Provenance:
    """What is needed to repeat the explanation."""

    headwater: str
    torch: str
    transformers: str | None
    model: str
    device: str
    dtype: str
    seed: int | None = None


@dataclass(frozen=True)
class Word:
    """A word of the text and the relevance of all its sub-words; `start` and `end` are character offsets."""

    text: str
    relevance: float
    start: int
    end: int


@dataclass(frozen=True)
class Explanation:
    """How much each input contributed to one score of one prediction. `relevance` has the unit of `score`.

    For text, `relevance` has one number a token; for a graph, one a node. For a bare tensor it has the shape of the
    tensor. `relevance.sum()` is `ledger.inputs`. `edges` are a graph's, each as two nodes and a relevance, where the
    method reaches them; together they are a line of the ledger.
    """

    tokens: tuple[str, ...]
    relevance: Tensor
    score: float
    target: str
    ledger: Ledger
    method: str
    provenance: Provenance
    text: str | tuple[str, str] | None = None
    prediction: str | None = None
    output: str = "logit"
    at: str = "embeddings"
    special: tuple[bool, ...] = ()
    offsets: tuple[tuple[int, int], ...] | None = None
    word_ids: tuple[int | None, ...] | None = None
    sequence_ids: tuple[int | None, ...] | None = None
    segments: tuple[str, ...] = ()
    rules_met: tuple[tuple[str, int], ...] = ()
    windows: int = 1
    edges: tuple[tuple[int, int, float], ...] | None = None

    def words(self) -> list[Word]:
        """Sub-words summed to words by the tokenizer's offsets. A special token is a word of its own."""
        from .inputs.words import words_of

        return words_of(self)

    def to_dict(self) -> dict[str, object]:
        """Plain types, ready for JSON."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "relevance": self.relevance.tolist(),
            "special": list(self.special),
            "segments": list(self.segments),
            "score": self.score,
            "target": self.target,
            "prediction": self.prediction,
            "output": self.output,
            "method": self.method,
            "at": self.at,
            "ledger": self.ledger.to_dict(),
            "rules_met": dict(self.rules_met),
            "windows": self.windows,
            **({} if self.edges is None else {"edges": [list(edge) for edge in self.edges]}),
            "provenance": {k: getattr(self.provenance, k) for k in self.provenance.__dataclass_fields__},
        }
