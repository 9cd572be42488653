"""Who told it to? Whose words a span of an answer rests on, turn by turn: system, user, tool results, documents."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from .answer_report import describe_change
from .display import Shown
from .readable import visible
from .verdict import Phrase

DECISIVE = math.log(10)  # a loss that makes the span ten times less likely
OURS = ("user", "system", "question")  # who may tell a model what to do; what tools and documents say is only read
OWN = "assistant"  # the model's own earlier turns


@dataclass(frozen=True)
class ToldSentence:
    """A sentence of a chat, or of a document in it, and what it did to a span of the answer.

    `turn` is the number of its turn, from 0, None for a document; `document` that of the document. `share`: its part of
    all positive relevance that sentences of the prompt have. `before` is the span's log-probability, `drop` by how much
    that falls when the sentence is left out and the model reads the same answer again.
    """

    role: str
    turn: int | None
    document: int | None
    text: str
    relevance: float
    share: float
    before: float
    drop: float

    @property
    def after(self) -> float:
        return self.before - self.drop

    @property
    def decisive(self) -> bool:
        """Whether the span is at least ten times less likely without it."""
        return self.drop >= DECISIVE


@dataclass(frozen=True)
class WhoTold(Shown):
    """Whose words a span rests on. `roles` has the relevance of each role, and they add up to the ledger's inputs;
    `sentences` were left out one by one, and come with the largest loss first.
    """

    text: str
    log_probability: float
    roles: dict[str, float]
    sentences: tuple[ToldSentence, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Each role's part of all that roles add; what takes away has none."""
        total = sum(amount for amount in self.roles.values() if amount > 0) or 1.0
        return {role: max(amount, 0.0) / total for role, amount in self.roles.items()}

    @property
    def strangers(self) -> tuple[ToldSentence, ...]:
        """Decisive sentences of tool results, documents and others that are neither user, system nor the model itself.

        They may be data that the task needs, or an instruction that nobody gave: who reads them can tell.
        """
        return tuple(one for one in self.sentences if one.decisive and one.role not in (*OURS, OWN))

    def verdict(self) -> tuple[Phrase, ...]:
        """Who told it to, in plain words. A tool result whose loss decides is named before all others."""
        decisive = [one for one in self.sentences if one.decisive]
        if not decisive:
            return (Phrase("no single sentence of the prompt decides this"),)
        first = (self.strangers or tuple(decisive))[0]
        where = name_teller(first)
        change = describe_change(first.before, first.after)
        others = [one for one in decisive if one.role in OURS and one is not first]
        more = f"; the {others[0].role} told it, too" if others else ""
        said = Phrase(f"“{visible(first.text)}”", named=True)
        return Phrase(f"told by {where}: "), said, Phrase(f"; without it {change}{more}")

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "text": self.text,
            "log_probability": self.log_probability,
            "roles": dict(self.roles),
            "shares": self.shares,
            "verdict": "".join(part.text for part in self.verdict()),
            "sentences": [{**asdict(one), "decisive": one.decisive} for one in self.sentences],
        }


def name_teller(one: ToldSentence) -> str:
    """Where a sentence stands, as people count."""
    if one.turn is None:
        return "a document" if one.document is not None else f"the {one.role}"
    kind = {"tool": "a tool result", OWN: "the model's own earlier words"}.get(one.role, f"the {one.role}")
    return f"{kind} (turn {one.turn + 1})"
