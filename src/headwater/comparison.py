"""What several methods say of the same prediction: `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .api import Request, answer
from .errors import HeadwaterError, UsageError
from .explanation import Explanation
from .methods import Method, resolve
from .methods.propagation import Run
from .methods.sharing import shared

PAPER = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma")


@dataclass(frozen=True)
class Comparison:
    """Explanations of one prediction, in the order asked for. `refused` says why a method gave none."""

    explanations: tuple[Explanation, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, method: str) -> Explanation:
        for e in self.explanations:
            if e.method == resolve(method).name:
                return e
        raise UsageError(f"{method!r} is not in this comparison: {', '.join(e.method for e in self.explanations)}.")

    def __len__(self) -> int:
        return len(self.explanations)

    def to_dict(self) -> dict[str, object]:
        """Plain types, ready for JSON."""
        return {"explanations": [e.to_dict() for e in self.explanations], "refused": dict(self.refused)}


def compare(model: nn.Module, data: Any, *, methods: Sequence[str | Method] = PAPER, **options: Any) -> Comparison:
    """One input, many methods. Takes the arguments of `explain` for one sample.

    Methods that need the plain forward and backward pass (attention, GAE, Gradient x Input) share one. A method that
    does not apply to the model is named in `refused`; a name that does not exist is an error before any work.
    """
    chosen = [resolve(name) for name in methods]
    if not chosen:
        raise UsageError("compare needs at least one method.")
    if isinstance(data, list):
        raise UsageError(f"a comparison is of one input, not of {len(data)}.")
    found: list[Explanation] = []
    refused: list[tuple[str, str]] = []
    with shared():
        for method in chosen:
            try:
                e = answer(Request(model, data, method=method, **options), one_sample)
            except HeadwaterError as error:
                if isinstance(error, UsageError):
                    raise
                refused.append((method.name, str(error)))
                continue
            found.append(e[0] if isinstance(e, list) else e)
    return Comparison(tuple(found), tuple(refused))


def one_sample(run: Run) -> Run:
    if run.batch.samples != 1:
        raise UsageError(f"a comparison is of one input, not of {run.batch.samples}.")
    return run
