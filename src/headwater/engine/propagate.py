"""One forward pass inside the rules, the score outside them, one backward pass: relevance and its books."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import HiddenOperation
from ..inputs.batch import Batch, map_leaves
from ..inputs.places import Captured
from ..inputs.readouts import ScoreReading
from ..inputs.restoring import outside_inference
from ..results.ledger import BASELINE_SCORE
from ..rules import Books, RuleSet, Scope
from ..rules.difference import DifferenceScope
from ..rules.sources import Sort, wide
from .at_once import AtOnce
from .backward import backward
from .checks import (
    check_met,
    check_prediction,
    check_score,
    check_visible,
    cut_off_changing,
    find_escapes,
    find_tables,
    find_ways_around,
    forget_look_on_error,
    is_due,
    look_at_others,
    other_input,
    predict_plainly,
    settle_choices,
)
from .compiled import run_eagerly
from .finite import check_finite
from .forward import Demand, Read, Run, asks_links, forward, read_score, scope_for
from .outcome import FetchingOutcome, Outcome
from .reference import Reference, find_references, read_reference
from .run_plans import can_be_planned, find_kind, look_now
from .run_playing import Played, RunPlan, play_run
from .run_writing import RunWriter

CLOSING = Demand(RuleSet(frozenset(("ah", "ln", "act", "gate"))))


def propagate(run: Run, demand: Demand) -> Outcome:
    """Relevance is input times gradient of the score, where the rules have replaced gradients of operations.

    By the plan of such runs where there is one; else plainly, and written down for a plan.

    Args:
        run: what a method is given.
        demand: the rules; `NO_RULES` leaves every gradient as it is.

    Returns:
        An `Outcome`.

    Raises:
        ModelError: the model cannot be explained so.

    Example:
        >>> from headwater.methods import Demand, Method, RuleSet, propagate
        >>> demand = Demand(RuleSet(frozenset({"ah", "ln", "act"})))
        >>> mine = Method("mine", "three rules", lambda run: propagate(run, demand))
        >>> hw.explain("headwater/sentiment", "a fine film", method=mine).ledger.closed
        True
    """
    close = run.noise is None and is_due(run, demand)
    kind = find_kind(run, demand) if can_be_planned(run, demand) else None
    if kind is None or kind.given_up:
        (outcome,) = propagate_each(run, demand, [run.read], close=close)
        return outcome
    played = None if close else kind.play(run, partial(confirm_plan, run, demand))
    if played is not None:
        fetching = FetchingOutcome(make_played_outcome(played), run.batch.real)
        run.meanwhile()
        look_now()
        outcome = fetching.wait()
        check_finite(run, demand, outcome)
        return outcome
    (outcome,) = propagate_each(run, demand, [run.read], close=close, writer=kind.writer(run, close))
    return outcome


def confirm_plan(run: Run, demand: Demand, plan: RunPlan) -> bool | None:
    """Whether a plan gives what a plain run gives, on another input: on the same one memory may still hold it.

    A kernel that is launched past torch is seen by nobody who writes a run down; but then a played run is another. None
    where the plan is left, so that nothing can be said.
    """
    for other in (turn_tensor(replace(other_input(run), noise=None)), run):
        try:
            (plain,) = propagate_each(other, demand, [run.read], close=False)
        except Exception:  # a model may refuse what it never saw
            if other is run:
                raise
            continue
        played = play_run(plan, other)
        if played is not None:
            return agree(FetchingOutcome(make_played_outcome(played)).wait(), plain)
        plan.left = 0  # of another input, other numbers may be asked for
    return None


def turn_tensor(run: Run) -> Run:
    """The same for the tensor that is explained, turned round along its last axis."""
    old = run.batch.tensor
    if old is None:
        return run
    new = old.flip(-1)
    args, kwargs = map_leaves((run.batch.args, run.batch.kwargs), lambda leaf: new if leaf is old else leaf)
    return replace(run, batch=replace(run.batch, args=args, kwargs=kwargs, tensor=new))


def make_played_outcome(played: Played) -> Outcome:
    outcome = outcome_of(played.read, played.linear, played.inputs, played.gradients, played.books, played)
    return replace(take_differences(outcome, played.reference), way=played.way)


def agree(found: Outcome, expected: Outcome) -> bool:
    """Equal but for rounding: another kernel may have been at work. Lines of the ledger are compared by their names."""
    pairs = [(found.score, expected.score), *zip(found.relevance, expected.relevance, strict=True)]
    highest = max(float(theirs.abs().max()) for _, theirs in pairs)
    coarse = found.coarsest in (torch.float16, torch.bfloat16)
    coarse |= any(ours.dtype in (torch.float16, torch.bfloat16) for ours in found.gradients)
    room = (5e-2 if coarse else 1e-3) * highest + 1e-12
    for sort in Sort:
        ours, theirs = found.books.totals(sort), expected.books.totals(sort)
        nothing = torch.zeros_like(found.score).cpu()
        pairs += [(ours.get(name, nothing), theirs.get(name, nothing)) for name in ours | theirs]
    if found.inside is not None and expected.inside is not None:
        noted = expected.inside.amounts
        pairs += [
            (amount, noted.get(index, torch.zeros_like(amount))) for index, amount in found.inside.amounts.items()
        ]
    return all(ours.shape == theirs.shape and bool(((ours - theirs).abs() <= room).all()) for ours, theirs in pairs)


def propagate_each(
    run: Run,
    demand: Demand,
    readers: Sequence[Callable[[Any, Batch], ScoreReading]],
    *,
    close: bool | None = None,
    writer: RunWriter | None = None,
) -> Iterator[Outcome]:
    """Explains several scores of one prediction: one forward pass for all, as few backward passes as memory allows.

    `close`: whether the model is looked at closely. A `writer` writes the run down, for one score.
    """
    if close is None:
        close = run.noise is None and is_due(run, demand)
    with forget_look_on_error(run, demand, close):
        look_now()  # from here on the model itself runs, and may change
        yield from run_passes(run, demand, readers, close, writer)


def run_passes(
    run: Run,
    demand: Demand,
    readers: Sequence[Callable[[Any, Batch], ScoreReading]],
    close: bool,
    writer: RunWriter | None,
) -> Iterator[Outcome]:
    scope = scope_for(run, demand)
    books = scope.books
    if close and isinstance(scope, DifferenceScope):
        refuse_cuts(replace(run, read=readers[0]))
    if close:
        find_tables(run)
        find_ways_around(run)
    plain = predict_plainly(run) if close else None
    looks = close and not isinstance(scope, DifferenceScope)
    others = look_at_others(run, demand) if looks else []  # first, for what a model keeps is then of this input
    scope.entered = [] if looks else None
    written = nullcontext() if writer is None else writer.forwards(run)
    with outside_inference(), torch.enable_grad(), run_eagerly(), written:
        if isinstance(scope, DifferenceScope):
            scope.references = find_references(run)
        out, inputs = forward(run, scope, beside=asks_links(run, demand))
    settle_choices(scope)
    if isinstance(scope, DifferenceScope):
        pass  # it was looked at under other rules
    elif close or (run.noise is None and scope.cuts.unclear()):
        find_escapes(run, demand, scope, inputs, others)
    else:
        cut_off_changing(run, scope)
    at_once = AtOnce.of(run, demand, scope, inputs)
    for number, reader in enumerate(readers, 1):
        with outside_inference(), torch.enable_grad():
            pulled = at_once.ready.popleft() if at_once.ready else None
            read = pulled.read if pulled is not None else read_score(replace(run, read=reader), out)
            if number == 1:
                check_visible(read.ends, demand, scope)
                check_met(scope, demand)
                if plain is not None:
                    check_prediction(run, plain, read, scope)
                    check_score(replace(run, read=reader), out, read)
            pulled = pulled or at_once.pull(read, readers[number:], out)
            if pulled is not None:
                gradients = pulled.gradients
            elif demand.backward:
                keep = run.inspect is not None or number < len(readers)
                gradients = backward(read, inputs, books, keep, writer)
            else:
                gradients = [torch.zeros_like(one.leaf) for one in inputs]
            if run.inspect is not None:
                run.inspect(scope, read)
            linear = read.linear_part()
            reference = read_reference(read, scope.reference_values(read.ends))
        if writer is not None:
            writer.finish(run, out, read, inputs, scope)
        last = number == len(readers)
        if last:
            scope.release()
        own = pulled.books if pulled is not None else books if last else books.take()
        made = take_differences(outcome_of(read, linear, inputs, gradients, own, scope), reference)
        outcome = FetchingOutcome(made, run.batch.real).wait()
        check_finite(run, demand, outcome)
        yield outcome


def refuse_cuts(run: Run) -> None:
    """Differences cannot follow what the model computes from its input without a gradient, nor tell how much it is.

    Rules that hold parts constant can: it is a line of their ledger.
    """
    (plain,) = propagate_each(run, CLOSING, [run.read], close=True)
    size = float(plain.score.abs().sum()) + sum(float(part.abs().sum()) for part in plain.relevance)
    for name, amount in plain.books.totals(Sort.CUT_OFF).items():
        if float(amount.abs().max()) > 1e-6 * size:
            raise HiddenOperation(
                f"the model makes {name!r} from its input, and no gradient leads back there, so that its rise from a "
                "reference would not be seen. 'lrp' has a line for it."
            )


def outcome_of(
    read: Read,
    linear: Tensor,
    inputs: list[Captured],
    gradients: list[Tensor],
    books: Books,
    scope: Scope | Played,
) -> Outcome:
    score = read.reading.score.detach().double()
    items = [(one, gradient) for one, gradient in zip(inputs, gradients, strict=True) if not one.beside]
    relevance = [wide(one.leaf.detach()) * wide(gradient) for one, gradient in items]
    return Outcome(
        read.reading,
        score,
        score - linear,
        [one for one, _ in items],
        relevance,
        books,
        scope.met,
        coarsest=scope.coarsest,
        beside=[(one, gradient) for one, gradient in zip(inputs, gradients, strict=True) if one.beside],
        gradients=[gradient for _, gradient in items],
        inside=scope.inside,
    )


def take_differences(outcome: Outcome, reference: Reference | None) -> Outcome:
    """The outcome with x - b in place of x, and with the score of the reference b as a line of the ledger."""
    if reference is None:
        return outcome
    relevance = [
        (wide(one.leaf.detach()) - wide(other)) * wide(gradient)
        for one, other, gradient in zip(outcome.captured, reference.inputs, outcome.gradients, strict=True)
    ]
    same = [(one, torch.zeros_like(gradient)) for one, gradient in outcome.beside]  # as in the reference
    return replace(outcome, relevance=relevance, constants={BASELINE_SCORE: reference.score.tolist()}, beside=same)
