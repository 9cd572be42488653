"""`difference`: which parts of a model make its answers to two inputs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import Unpack

from ..engine.options import OptionsByName, Request, refuse_unused
from ..engine.session import Session
from ..errors import UsageError
from ..inputs.inside_demand import InsideDemand
from ..inputs.restoring import restores
from ..inputs.targets import Span, Target, Token
from ..inputs.walking import walk_once
from ..methods.perturbation import fix_target
from ..methods.registry import Method
from ..results.explanation import Explanation
from ..results.inside import KINDS, CutLedger, Inside, NodeGroup
from ..results.patching import InsideDifference
from .explain import explain
from .patch import make_one_run, run_with_swaps
from .requests import Model, make_request

TWO = "a difference is that of two inputs: pass one sample and another."


@restores
def difference(
    model: Model,
    clean: Any,
    other: Any,
    *,
    inside: str | Sequence[str],
    method: str | Method | None = None,
    **options: Unpack[OptionsByName],
) -> InsideDifference:
    """Which parts of a model make its answers to two inputs differ: relevance for `clean` minus that for `other`.

    Both are explained for the same target, by default what is predicted for `clean`. Where both cuts close, the
    difference of theirs closes, too: nodes + what by-passes them + biases so far = difference of the scores.

    Args:
        model: as for `explain`.
        clean: one sample, as for `explain`.
        other: another one.
        inside: the parts, as for `explain`.
        method: as for `explain`.
        options: all other options of `explain`, by name.

    Returns:
        An `InsideDifference`. It has relevance by token where both inputs have as many tokens.

    Raises:
        UsageError: an option is wrong, or there is no such part.
        ModelError: as for `explain`.

    Example:
        >>> d = hw.difference("headwater/sentiment", "a fine film", "a dull film", inside="layers")
        >>> d.ledger("layer 0").closed
        True
    """
    if InsideDemand.read(inside) is None:
        raise UsageError(f"no parts were named: inside= takes {', '.join(KINDS)}, or modules by name.")
    ask = make_request(model, clean, **options)
    if ask.options.window:
        raise UsageError("a difference is of one pass for each input, and window= makes several: use truncate=.")
    refuse_unused(ask.options, ("stride",), "a difference is of one pass for each input")
    options["tokenizer"], options["processor"] = ask.options.tokenizer, ask.options.processor
    if options.get("score") is None:
        options["target"] = fix_answer(ask)
    one, two = (take_one(explain(ask.model, text, inside=inside, method=method, **options)) for text in (clean, other))
    return InsideDifference(one, two, subtract(one, two))


def take_one(found: Explanation | list[Explanation]) -> Explanation:
    """The explanation of one sample, also of a batch of one."""
    several = found if isinstance(found, list) else [found]
    if len(several) != 1:
        raise UsageError(TWO)
    return several[0]


def fix_answer(ask: Request) -> Target:
    """The target of a difference by number, as it is for the first input: a name or None may mean another for each."""
    with walk_once():
        session = Session.open(ask.model, ask.options)
        run = make_one_run(session, ask, TWO)
        _, out = run_with_swaps(run, InsideDemand(frozenset()), {}, keeps=False)
        asked, fixed = ask.options.target, fix_target(run.read, out, run.batch).target
    if not isinstance(fixed, Token) or isinstance(asked, Span):
        return fixed if asked is None else asked
    if isinstance(asked, Token):
        return replace(asked, label=fixed.label, versus=fixed.versus)
    return fixed.label if fixed.versus is None else asked


def subtract(one: Explanation, two: Explanation) -> Inside:
    assert one.inside is not None
    assert two.inside is not None
    places = [[(g.kind, g.place, g.expert) for g in e.inside.groups] for e in (one, two) if e.inside is not None]
    if places[0] != places[1]:
        raise UsageError(
            "the two inputs meet other parts of the model, such as other experts: no difference is theirs."
        )
    pairs = zip(one.inside.groups, two.inside.groups, strict=True)
    return Inside(tuple(subtract_group(a, b) for a, b in pairs), one.tokens)


def subtract_group(a: NodeGroup, b: NodeGroup) -> NodeGroup:
    alike = a.relevance.shape == b.relevance.shape
    relevance = a.relevance - b.relevance if alike else (a.units - b.units).unsqueeze(0)
    ledger = None if a.ledger is None or b.ledger is None else subtract_ledger(a.ledger, b.ledger)
    padding = a.padding - b.padding
    return replace(a, relevance=relevance, by_token=a.by_token and alike, padding=padding, ledger=ledger)


def subtract_ledger(a: CutLedger, b: CutLedger) -> CutLedger:
    lines = ("score", "nodes", "by_passing", "sources", "readout")
    return replace(a, size=a.size + b.size, **{name: getattr(a, name) - getattr(b, name) for name in lines})
