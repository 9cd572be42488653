"""What happens to a score when parts of the model are replaced, and which parts make two answers differ."""

from __future__ import annotations

from dataclasses import dataclass

from .explanation import Explanation
from .inside import CutLedger, Inside


@dataclass(frozen=True)
class PatchEffect:
    """A score before and after `nodes` were replaced. The model was run both ways, unless `estimated` is true."""

    nodes: tuple[str, ...]  # what was replaced
    score: float  # before
    patched: float  # after
    target: str  # what the score is of
    prediction: str | None = None  # before
    patched_prediction: str | None = None  # after; of an estimate there is none
    estimated: bool = False  # whether `patched` was estimated from gradients

    @property
    def effect(self) -> float:
        """How much the score fell: what these nodes held up. Negative where it rose."""
        return self.score - self.patched

    def __str__(self) -> str:
        said = ", ".join(self.nodes[:3]) + (f" and {len(self.nodes) - 3} more" if len(self.nodes) > 3 else "")
        return f"{said}: {self.target} {self.score:+.4g} -> {self.patched:+.4g}{' (estimated)' * self.estimated}"


@dataclass(frozen=True)
class InsideDifference:
    """Two explanations of one score for two inputs, and `inside`, the relevance of the first minus that of the second.

    Every cut of `inside` adds up to the difference of the two scores.
    """

    clean: Explanation
    other: Explanation
    inside: Inside

    @property
    def score(self) -> float:
        """The difference of the two scores."""
        return self.clean.score - self.other.score

    def ledger(self, name: str) -> CutLedger:
        return self.inside.ledger(name)
