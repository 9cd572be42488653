"""What several methods say of the same prediction: `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..engine.plan import Step
from ..engine.sharing import shared
from ..errors import HeadwaterError, UsageError
from ..inputs.restoring import restores
from ..inputs.walking import walked_once
from ..methods import Method, resolve
from ..results.explanation import Explanation
from .explain import Request, Work, is_text

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

    def _repr_html_(self) -> str:
        """How it shows itself in a notebook."""
        from ..viz.notebook import comparison

        return comparison(self)

    def to_dict(self) -> dict[str, object]:
        """Plain types, ready for JSON."""
        return {"explanations": [e.to_dict() for e in self.explanations], "refused": dict(self.refused)}


@restores
def compare(model: nn.Module, data: Any, *, methods: Sequence[str | Method] = PAPER, **options: Any) -> Comparison:
    """One input, many methods. Takes the arguments of `explain` for one sample; a long text may go in windows.

    Methods that need the plain forward and backward pass (attention, GAE, Gradient x Input) share one. A method that
    does not apply to the model is named in `refused`; a name that does not exist is an error before any work.
    """
    entries = [Entry(resolve(name)) for name in methods]
    if not entries:
        raise UsageError("compare needs at least one method.")
    if isinstance(data, list):
        raise UsageError(f"a comparison is of one input, not of {len(data)}.")
    with walked_once():
        return compared(Work.of(Request(model, data, **options)), entries)


def compared(work: Work, entries: list[Entry]) -> Comparison:
    samples = sum(step.batch.samples for step in work.plan.steps)
    if samples != 1 and not (is_text(work.ask.data) and not work.ask.of_images):
        raise UsageError(f"a comparison is of one input, not of {samples}.")
    for step in work.plan.steps:  # a text has one, a long one in windows several; one plain pass is kept at a time
        with shared():
            for entry in entries:
                entry.take(work, step)
    made = [work.gather(entry.parts) for entry in entries if entry.refused is None]
    return Comparison(
        tuple(e[0] if isinstance(e, list) else e for e in made),
        tuple((entry.method.name, entry.refused) for entry in entries if entry.refused is not None),
    )


@dataclass
class Entry:
    """What one method has said so far, batch by batch, or why it says nothing."""

    method: Method
    parts: list[list[Explanation]] = field(default_factory=list)
    refused: str | None = None

    def take(self, work: Work, step: Step) -> None:
        """The next batch, unless the method was refused before."""
        if self.refused is not None:
            return
        try:
            self.parts.append(work.explained(step, self.method))
        except UsageError:
            raise
        except HeadwaterError as error:
            self.refused = str(error)
