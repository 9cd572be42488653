"""What several methods say of the same prediction: `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import Unpack

from ..engine.kind import allows_reference, default_method
from ..engine.options import Options, OptionsByName, Request
from ..engine.plan import make_plan
from ..engine.session import Session
from ..engine.sharing import share_plain_pass
from ..engine.steps import Step
from ..errors import HeadwaterError, UsageError
from ..inputs.restoring import restores
from ..inputs.walking import walk_once
from ..memory.estimate import fit_to_limit
from ..methods.registry import Method, resolve_method
from ..results.comparison import Comparison
from ..results.explanation import Explanation
from .requests import Model, make_request

PAPER = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma")


@restores
def compare(
    model: Model, data: Any, *, methods: Sequence[str | Method] | None = None, **options: Unpack[OptionsByName]
) -> Comparison:
    """One input, many methods.

    Methods that need the plain forward and backward pass (attention, GAE, Gradient x Input) share one. A method that
    does not apply to the model is named in `refused`.

    Args:
        model: as for `explain`.
        data: one sample, as for `explain`; a long text may go in windows.
        methods: names, or methods; None takes the paper's and the default for the kind of model.
        options: all other options of `explain`, by name; `sinks="aside"` puts the first token aside in all
            explanations.

    Returns:
        A `Comparison`: for each method what `explain` gives by it.

    Raises:
        UsageError: there are several samples, or an option is wrong. A method that does not exist is an `UnknownName`,
            before any work is done.
        ModelError: the model cannot be explained at all.

    Example:
        >>> c = hw.compare("headwater/sentiment", "a fine film", methods=["gi", "lrp"])
        >>> [(e.method, e.ledger.closed) for e in c.explanations]
        [('gi', False), ('lrp', True)]
    """
    if isinstance(methods, str):
        raise UsageError(f"methods= is a list: methods=[{methods!r}].")
    if "method" in options:
        raise UsageError("a comparison is of several methods: methods=[…], not method=.")
    chosen = None if methods is None else [resolve_method(name) for name in methods]
    if chosen is not None and not chosen:
        raise UsageError("compare needs at least one method.")
    ask = make_request(model, data, **options)
    if isinstance(ask.data, list):
        raise UsageError(f"a comparison is of one input, not of {len(ask.data)}.")
    entries = [MethodAnswers(resolve_method(name)) for name in chosen or usual_methods(ask)]
    with walk_once():
        return compare_methods(ask, entries)


def usual_methods(ask: Request) -> tuple[str, ...]:
    """The paper's methods, and what `explain` would take where it is none of them."""
    return tuple(dict.fromkeys((*PAPER, default_method(ask.model, allows_reference(ask.options)))))


def compare_methods(ask: Request, entries: list[MethodAnswers]) -> Comparison:
    session = Session.open(ask.model, ask.options)
    for entry in entries:
        entry.fit(ask)
    size = min(entry.options.batch_size for entry in entries)
    plan = make_plan(replace(ask, options=replace(ask.options, batch_size=size)), session.model)
    samples = sum(step.batch.samples for step in plan.steps)
    if samples != 1 and not ask.of_texts:
        raise UsageError(f"a comparison is of one input, not of {samples}.")
    for step in plan.steps:  # a text has one, a long one in windows several; one plain pass is kept at a time
        with share_plain_pass():
            for entry in entries:
                entry.take(session, step)
    return Comparison(
        tuple(plan.gather(entry.parts)[0] for entry in entries if entry.refused is None),
        tuple((entry.method.name, entry.refused) for entry in entries if entry.refused is not None),
    )


@dataclass
class MethodAnswers:
    """What one method has said so far, batch by batch, or why it says nothing."""

    method: Method
    options: Options = field(default_factory=Options)
    parts: list[list[Explanation]] = field(default_factory=list)
    refused: str | None = None

    def fit(self, ask: Request) -> None:
        """What is asked, within the limit of memory. Only where rules act can blocks be computed again."""
        self.options = replace(ask.options, method=self.method)
        if self.options.memory_limit is not None:
            self.options = fit_to_limit(replace(ask, options=self.options)).options
        if not self.method.rules:
            self.options = replace(self.options, recompute=None)

    def take(self, session: Session, step: Step) -> None:
        """The next batch, unless the method was refused before."""
        if self.refused is not None:
            return
        try:
            self.parts.append(session.explain_step(step, self.method, self.options))
        except UsageError:
            raise
        except HeadwaterError as error:
            self.refused = str(error)
