"""What is compared: a method, the score that it explains, and what is done with the attention sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from headwater.api.explain_generation import explain_generation
from headwater.api.token_scores import SCORES
from headwater.defaults import LANGUAGE_METHOD
from headwater.errors import UnknownName
from headwater.evaluation.language.asking import LATER
from headwater.methods import resolve_method

from .questions import Question

ASIDE = "aside"
OURS = f"{LANGUAGE_METHOD}@aside"  # the default of `explain_generation`
DEFAULT = (
    "random",
    LATER,
    "a-last",
    "rollout",
    "gi",
    "integrated-gradients",
    "attnlrp",
    "attnlrp@aside",
    "lrp",
    "lrp@aside",
    "lrp(ah+ln+act+gate=half)@aside",
    "lrp-gamma(0.05)@aside",
    "lrp-secant@aside",
    "lrp-query",
    OURS,
    "integrated-gradients@logprob",
    "attnlrp@logprob",
    "lrp-query@logprob+aside",
    "integrated-gradients@contrast",
    "attnlrp@contrast",
    "lrp-query@contrast+aside",
)


@dataclass(frozen=True)
class Setting:
    """Written `method@score`, `method@score+aside`, or only `method`, whose score is the logit."""

    method: str
    score: str = "logit"
    sinks: str = "show"

    @classmethod
    def parse(cls, text: str) -> Setting:
        method, _, rest = text.strip().partition("@")
        words = [word for word in rest.split("+") if word]
        for word in words:
            if word not in (*SCORES, ASIDE):
                raise UnknownName("score", word, (*SCORES, ASIDE))
        score = next((word for word in words if word in SCORES), "logit")
        name = LATER if method == LATER else resolve_method(method).name
        return cls(name, score, ASIDE if ASIDE in words else "show")

    def __str__(self) -> str:
        said = [self.score] * (self.score != "logit") + [ASIDE] * (self.sinks == ASIDE)
        return f"{self.method}@{'+'.join(said)}" if said else self.method

    def words(
        self, model: nn.Module, tokenizer: Any, question: Question, seed: int
    ) -> tuple[list[float], float | None]:
        """The relevance of every word for the model's answer, and the error of the ledger."""
        if self.method == LATER:
            return [float(number) for number, _ in enumerate(question.words)], None
        made = explain_generation(
            model,
            question.prompt.text,
            tokenizer=tokenizer,
            answer=[question.answer],
            method=self.method,
            score=self.score,
            sinks=self.sinks,
            seed=seed,
        )
        return question.relevance(made.relevance[0]), made.ledgers[0].error
