"""`single-token`: disruption and recovery of one answer token, after Dual Path Attribution (2026).

Disruption takes out the most relevant words first, recovery puts them back first into an emptied prompt; both follow
the answer's probability relative to that after the whole prompt. *total* is 100 times the area under recovery minus
the area under disruption: higher is better. Counts are rounded up, so that chance lies a little above 0 where prompts
are short; the row `random` says how much. *rho* is the rank correlation of relevance with what is lost of the answer's
log-probability when each word alone is taken out.

A word is taken out in two ways: its embedding is zeros ("zero"), or a token of another prompt stands in its place
("swap"), so that the model reads what it might read there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError
from ..protocols import TENTHS, counts
from ..ranking import Counts, Floats, only_top, without_top
from ..statistics import area_under
from .asking import AnsweringModel, PerturbedAnswers, PosedPrompt
from .prompts import OWN, TOKEN_SETS, PromptCase, read_own_prompts, read_token_cases, seed_of
from .protocols import CaseSet, LanguageProtocol, PosedCase, ProtocolColumn, correlate_ranks

REMOVALS = ("zero", "swap")


@dataclass(frozen=True)
class TokenPool:
    """The tokens of a set's prompts, each as often as it occurs; `owner`: the prompt that it stands in."""

    tokens: Counts
    owner: Counts

    @classmethod
    def of(cls, tokenizer: Any, cases: Sequence[PromptCase]) -> TokenPool:
        special = set(tokenizer.all_special_ids)
        rows = [[t for t in tokenizer(case.text)["input_ids"] if t not in special] for case in cases]
        owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        return cls(np.array([token for row in rows for token in row], dtype=np.intp), owner)

    def draw(self, number: int, count: int, seed: int) -> list[int]:
        """Tokens of the prompts but this one."""
        others = self.tokens[self.owner != number]
        if not len(others):
            raise DataError("swapping takes tokens of other prompts: give at least two prompts.")
        return [int(token) for token in np.random.default_rng(seed).choice(others, count)]


@dataclass(frozen=True)
class SingleToken(LanguageProtocol):
    """`fractions`: the shares of words taken out or put back, ceil(f · words) of them."""

    name: ClassVar[str] = "single-token"
    version: ClassVar[int] = 2
    sets: ClassVar[tuple[str, ...]] = tuple(TOKEN_SETS)
    takes_own: ClassVar[bool] = True

    least_tokens: int = 4
    fractions: tuple[Fraction, ...] = TENTHS
    removals: tuple[str, ...] = REMOVALS

    @property
    def columns(self) -> tuple[ProtocolColumn, ...]:
        return tuple(
            column
            for way in self.removals
            for column in (ProtocolColumn(f"{way} total", decimals=1), ProtocolColumn(f"{way} rho"))
        )

    def read(self, data: str, half: str, tokenizer: Any, own: Path | None = None) -> CaseSet:
        cases = read_own_prompts(own) if own is not None else read_token_cases(self.check_set(data), half)
        return CaseSet(OWN if own is not None else data, cases, TokenPool.of(tokenizer, cases))

    def pose(self, model: AnsweringModel, case: PromptCase, cases: CaseSet) -> PosedToken | None:
        prompt = model.pose(case.text, case.answer)
        if not self.least_tokens <= len(prompt.ids) <= self.most_tokens or not model.fits(prompt):
            return None
        posed = PosedToken(self, model, prompt, self.fills(prompt, case, cases))
        return posed if posed.probability > self.least_probability else None

    def fills(self, prompt: PosedPrompt, case: PromptCase, cases: CaseSet) -> dict[str, list[int] | None]:
        """What stands in for each token, by the way in which it is taken out."""
        found: dict[str, list[int] | None] = {}
        for way in self.removals:
            number = next(i for i, other in enumerate(cases.cases) if other.id == case.id)
            drawn = way == "swap"
            found[way] = cases.pool.draw(number, len(prompt.ids), seed_of(self.seed, case.id)) if drawn else None
        return found


class PosedToken(PosedCase):
    """A prompt with one answer token, and what the model says with words taken out of it."""

    def __init__(
        self, rule: SingleToken, model: AnsweringModel, prompt: PosedPrompt, fills: dict[str, list[int] | None]
    ) -> None:
        self.rule = rule
        self.prompt = prompt
        self.answers: dict[str, PerturbedAnswers] = {
            way: PerturbedAnswers(model, prompt, prompt.words, fill) for way, fill in fills.items()
        }

    @property
    def probability(self) -> float:
        return float(np.exp(next(iter(self.answers.values())).whole))

    def measure(self, relevance: Floats) -> dict[str, float]:
        values, found = relevance[self.prompt.words], {}
        for way, answers in self.answers.items():
            found[f"{way} total"] = disrupt_and_recover(answers, values, self.rule.fractions)
            found[f"{way} rho"] = correlate_ranks(values, answers.drops())
        return found


def disrupt_and_recover(answers: PerturbedAnswers, values: Floats, fractions: Sequence[Fraction]) -> float:
    """100 times (area of recovery - area of disruption) of the answer's relative probability."""
    steps = counts(fractions, len(values))
    disrupted, recovered = (np.exp(answers.of(kept(values, steps)) - answers.whole) for kept in (without_top, only_top))
    return 100 * (area_under(recovered, fractions) - area_under(disrupted, fractions))
