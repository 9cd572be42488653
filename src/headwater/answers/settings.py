"""What is compared: a method, the score that it explains, and what is done with the attention sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ..errors import UnknownName
from ..generating import SCORES, explain_generation
from ..methods import resolve
from .questions import Question

ASIDE = "aside"
DEFAULT = (
    "random",
    "a-last",
    "rollout",
    "gi@contrast",
    "integrated-gradients@contrast",
    "attnlrp@contrast",
    "lrp@contrast",
    "lrp(ah+ln+act+gate=half)@contrast",
    "lrp-gamma@contrast",
)


@dataclass(frozen=True)
class Setting:
    """Written `method@score`, `method@score+aside`, or only `method`, whose score is the logit."""

    method: str
    score: str = "logit"
    sinks: str = "show"

    @classmethod
    def parsed(cls, text: str) -> Setting:
        method, _, rest = text.strip().partition("@")
        words = [word for word in rest.split("+") if word]
        for word in words:
            if word not in (*SCORES, ASIDE):
                raise UnknownName("score", word, (*SCORES, ASIDE))
        score = next((word for word in words if word in SCORES), "logit")
        return cls(resolve(method).name, score, ASIDE if ASIDE in words else "show")

    def __str__(self) -> str:
        said = [self.score] * (self.score != "logit") + [ASIDE] * (self.sinks == ASIDE)
        return f"{self.method}@{'+'.join(said)}" if said else self.method

    def words(self, model: nn.Module, tokenizer: Any, question: Question, seed: int) -> tuple[list[float], float]:
        """The relevance of every word for the model's answer, and the error of the ledger."""
        made = explain_generation(
            model,
            tokenizer,
            question.prompt.text,
            answer=[question.answer],
            method=self.method,
            score=self.score,
            sinks=self.sinks,
            seed=seed,
        )
        return question.relevance(made.relevance[0]), made.ledgers[0].error
