"""The result of comparing methods on one prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .display import Plotted, Shown
from .explanation import Explanation
from .files import Saved
from .verdict import VerdictSentence


@dataclass(frozen=True, eq=False)
class Comparison(Shown, Plotted, Saved):
    """Explanations of one prediction, in the order asked for. `refused` says why a method gave none."""

    kind: ClassVar[str] = "comparison"

    explanations: tuple[Explanation, ...]  # one per method, in the order asked for
    refused: tuple[tuple[str, str], ...] = ()  # methods that gave none, and why

    def __getitem__(self, method: str) -> Explanation:
        for e in self.explanations:
            if normalise_name(e.method) == normalise_name(method):
                return e
        raise UsageError(f"{method!r} is not in this comparison: {', '.join(e.method for e in self.explanations)}.")

    def __len__(self) -> int:
        return len(self.explanations)

    def verdict(self, probability: float | None = None) -> VerdictSentence:
        """The verdict of the first method whose ledger closes, else of the first: `probability` as for
        `Explanation.verdict`.
        """
        if not self.explanations:
            raise UsageError("no method gave an explanation, so there is no verdict.")
        closed = (e for e in self.explanations if e.ledger.closed)
        return next(closed, self.explanations[0]).verdict(probability)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the comparison back."""
        made = [e.to_dict() for e in self.explanations]
        return {**self._stamp(), "explanations": made, "refused": dict(self.refused)}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Comparison:
        cls._check_stamp(found)
        return cls(tuple(map(Explanation.from_dict, found["explanations"])), tuple(found["refused"].items()))


def normalise_name(method: str) -> tuple[str, ...]:
    """A method's name whatever its spaces and capitals, and the order of rules in it: LRP(ln + ah) is lrp(ah+ln)."""
    plain = "".join(method.split()).lower().removesuffix(")")
    name, _, rules = plain.partition("(")
    return name, *sorted(rules.split("+"))
