"""What an audit finds: relevance into and out of every module, what the paper's propositions predict, what leaked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from .display import Plotted, Shown
from .explanation import Explanation
from .files import Saved


@dataclass(frozen=True)
class ModuleFlow:
    """Relevance at one call of a module. `into` leaves it towards the inputs, `out` arrives from the score.

    Both are taken at the module's own copy of its tensors, so a residual stream beside it does not blur them.
    `sources` is what its biases and constants took; `lost` = out - into - sources.
    """

    name: str
    kind: str
    out: float
    into: float
    sources: float

    @property
    def lost(self) -> float:
        return self.out - self.into - self.sources


@dataclass(frozen=True)
class NormFlow:
    """The paper's second proposition at one normalisation: of the relevance that arrives, which share passes on?

    `predicted` is 1 - Var/(eps + Var) where the gradient acts and 1 where the LN-rule does, weighted by the
    relevance of each token (after the affine part); `measured` is what the backward pass gave. `collapse` is the
    gradient's ratio in either case.
    """

    name: str
    out: float
    into: float
    predicted: float
    measured: float
    collapse: float


@dataclass(frozen=True)
class HeadFlow:
    """The paper's first proposition at one attention head: relevance invented by the path through the softmax.

    `predicted` is sum_j Cov_j(a + b, v)^T df/dy_j where the gradient acts (a and b: how the scores move along keys'
    and queries' own inputs, biases left out) and 0 where the AH-rule does; `measured` = into + sources - out, where
    `sources` is what biases of the values took.
    """

    module: str
    head: int
    out: float
    into: float
    sources: float
    predicted: float
    measured: float


@dataclass(frozen=True)
class Leak:
    """One operation that did not pass on all it received. `amount` > 0 was lost, < 0 was invented."""

    operation: str
    module: str
    amount: float


@dataclass(frozen=True, eq=False)
class Audit(Shown, Plotted, Saved):
    """The paper's section 3 as a report: where a method keeps relevance and where it loses it."""

    kind: ClassVar[str] = "audit"

    explanation: Explanation  # what was followed through the model
    modules: tuple[ModuleFlow, ...]  # what comes in and goes out, by module
    norms: tuple[NormFlow, ...]  # the second proposition, by normalisation
    heads: tuple[HeadFlow, ...]  # the first proposition, by head
    leaks: tuple[Leak, ...]  # operations that lose relevance, the worst first

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the audit back."""
        rows = {name: [dict(vars(row)) for row in getattr(self, name)] for name in ROWS}
        return {**self._stamp(), "explanation": self.explanation.to_dict(), **rows}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Audit:
        cls._check_stamp(found)
        rows: dict[str, Any] = {name: tuple(row(**one) for one in found[name]) for name, row in ROWS.items()}
        return cls(Explanation.from_dict(found["explanation"]), **rows)


AuditRow: TypeAlias = ModuleFlow | NormFlow | HeadFlow | Leak
ROWS: dict[str, type[AuditRow]] = {"modules": ModuleFlow, "norms": NormFlow, "heads": HeadFlow, "leaks": Leak}
