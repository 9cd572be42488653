"""A model made ready to be explained, and the runs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ..defaults import DEFAULT_METHOD
from ..errors import HiddenOperation, NotApplicable, UsageError
from ..inputs.batch import Batch
from ..inputs.inside_demand import InsideDemand
from ..inputs.places import check_ids
from ..inputs.restoring import restores_steps
from ..inputs.text import find_special_tokens, first_of
from ..inputs.walking import walk_once
from ..methods.registry import Method, resolve_method
from ..results.explanation import Explanation, Provenance
from ..rules.tapped import SamplesUntold
from .assemble import coarser, make_explanations
from .forward import Run
from .inside_results import InsideBuilder, split_batch
from .kind import choose_for, choose_sinks, settle_output
from .model import describe_model, place_batch, prepare_model, where_it_is
from .options import Options, Request
from .outcome import Outcome
from .plan import make_plan
from .run_plans import (
    ModelChanged,
    forget_plans,
    forget_stale_plans,
    look_later,
    recall_model,
    remember_ready,
)
from .steps import Plan, Step

Change = Callable[[Run], Run]


def keep_run(run: Run) -> Run:
    return run


@dataclass(frozen=True)
class Session:
    """A model as it is to be computed, with the facts about it that results carry. Knows nothing of the data."""

    model: nn.Module
    device: torch.device
    dtype: torch.dtype | None
    lasts: bool = False  # whether the model is there for further explanations

    @classmethod
    def open(cls, model: nn.Module, options: Options) -> Session:
        """The caller's own model, or a copy where device or dtype must differ."""
        own, wanted = getattr(model, "_orig_mod", model), (options.device, options.dtype)
        if isinstance(own, nn.Module) and recall_model(own, wanted):
            return cls(own, *where_it_is(own), lasts=True)
        ready = prepare_model(model, *wanted)
        if ready is own:
            remember_ready(own, wanted)
        else:
            forget_stale_plans(own)
        return cls(ready, *where_it_is(ready), lasts=ready is own)

    def close(self) -> None:
        """Let go of what explanations learned of the model."""
        forget_plans(self.model)

    def describe(self, seed: int) -> Provenance:
        return describe_model(self.model, self.device, self.dtype, seed)

    def explain_step(
        self, step: Step, method: Method, options: Options, change: Change = keep_run
    ) -> list[Explanation]:
        """The explanations of one batch; `change` may add to the run what watches it."""
        options = settle_output(options, self.model)
        run = change(self.make_run(step.batch, step.read, options))
        if run.inside is not None:
            return self.explain_inside(run, method, options)
        facts = ResultFacts(self, run.batch, method, options)
        outcome = run_method(method, replace(run, meanwhile=facts.prepare), options)
        return make_explanations(run.batch, outcome, method, options, facts.provenance, facts.sinks)

    def explain_inside(self, run: Run, method: Method, options: Options) -> list[Explanation]:
        """The same with relevance inside the model; sample by sample where a shape inside does not tell them apart."""
        assert run.inside is not None
        check_inside(run.inside, method, options)
        try:
            outcome = run_method(method, run, options)
        except SamplesUntold:
            singles = [replace(run, batch=one) for one in split_batch(run.batch)]
            return [e for single in singles for e in self.explain_inside(single, method, options)]
        sinks, provenance = choose_sinks(options.sinks, method, self.model), self.describe(options.seed)
        dtype = coarser(provenance.dtype, outcome.coarsest)
        inside = InsideBuilder.of(run.inside, run.batch, outcome, dtype)
        made = make_explanations(run.batch, outcome, method, options, provenance, sinks)
        return [replace(e, inside=inside.make(index, e.tokens)) for index, e in enumerate(made)]

    @restores_steps
    def explain_scores(
        self, batch: Batch, readers: Sequence[Any], method: Method, options: Options, change: Change = keep_run
    ) -> Iterator[Explanation]:
        """Several scores of one sample's prediction, in one forward pass and few backward ones where the method can."""
        options = settle_output(options, self.model)
        run = change(self.make_run(batch, readers[0], options))
        if options.saves_memory:
            run = replace(run, scores_at_once=1)  # what was kept elsewhere comes back for one score
        provenance, sinks = self.describe(options.seed), choose_sinks(options.sinks, method, self.model)
        with options.memory.open(self.model) as kept:
            run = kept(run)
            outcomes = (
                method.each(run, readers)
                if method.each is not None
                else (method.run(replace(run, read=reader)) for reader in readers)
            )
            for outcome in outcomes:
                yield from make_explanations(run.batch, outcome, method, options, provenance, sinks)

    def make_run(self, batch: Batch, read: Any, options: Options) -> Run:
        placed = place_batch(self.model, batch)
        planned = self.lasts and options.plans
        special = find_special_tokens(options.tokenizer)
        run = Run(self.model, placed, read, options.seed, first_of(special), special, planned=planned)
        return run if options.inside is None else replace(run, inside=InsideDemand.read(options.inside))


@dataclass(frozen=True)
class ResultFacts:
    """What no number of a run decides about its results: found out while a card is at work, or when it is asked for."""

    session: Session
    batch: Batch
    method: Method
    options: Options

    @cached_property
    def provenance(self) -> Provenance:
        return self.session.describe(self.options.seed)

    @cached_property
    def sinks(self) -> str:
        return choose_sinks(self.options.sinks, self.method, self.session.model)

    def prepare(self) -> None:
        _ = self.provenance, self.sinks, self.batch.items[:1]


def check_followed(method: Method) -> None:
    """Whether its relevance passes through the model, so that parts of it have some."""
    if method.group != "rules":
        raise NotApplicable(
            f"{method.name!r} gives no relevance to parts of the model. The methods that do are those of rules, such "
            "as 'lrp', 'lrp-language' and 'gi'."
        )


def check_inside(demand: InsideDemand, method: Method, options: Options) -> None:
    """Whether relevance passes through the model's parts, once for each explanation."""
    check_followed(method)
    if options.window:
        raise UsageError("inside= explains one pass of the model, and window= makes several: use truncate=.")
    if options.recompute:
        raise UsageError("inside= notes every operation, so no block can be computed again: leave out recompute=.")


def run_method(method: Method, run: Run, options: Options) -> Outcome:
    """Runs the method. Only where memory is to be saved does the run pass through the memory policy."""
    try:
        if not options.saves_memory:
            return method.run(run)
        with options.memory.open(run.model) as kept:
            return method.run(kept(run))
    except IndexError:
        check_ids(run.model, run.batch.ids)
        raise


def answer_request(ask: Request, change: Change = keep_run) -> Explanation | list[Explanation]:
    """The explanations that a request asks for: one, or a list of them."""
    plan, made = run_plan(ask, change)
    return made[0] if plan.single else made


def answer_all(ask: Request, change: Change = keep_run) -> list[Explanation]:
    """The same, as a list also where it is one."""
    return run_plan(ask, change)[1]


def run_plan(ask: Request, change: Change) -> tuple[Plan, list[Explanation]]:
    """A request's plan and its explanations: once more, where its model turns out to have changed meanwhile."""
    with suppress(ModelChanged), look_later():
        return run_plan_once(ask, change)
    return run_plan_once(ask, change)


def run_plan_once(ask: Request, change: Change) -> tuple[Plan, list[Explanation]]:
    """Without a method named, what refuses the model's own default is explained by the default of all models."""
    with walk_once():
        session = Session.open(ask.model, ask.options)
        method = choose_for(ask.options, session.model, watched=change is not keep_run)
        plan = make_plan(ask, session.model)
        try:
            return plan, explain_steps(session, plan, method, ask.options, change)
        except (HiddenOperation, NotApplicable):
            usual = resolve_method(DEFAULT_METHOD)
            if ask.options.method is not None or method.name == usual.name:
                raise
            return plan, explain_steps(session, plan, usual, ask.options, change)


def explain_steps(session: Session, plan: Plan, method: Method, options: Options, change: Change) -> list[Explanation]:
    made = {i: session.explain_step(plan.steps[i], method, options, change) for i in order_steps(plan.steps)}
    return plan.gather([made[i] for i in range(len(plan.steps))])


def order_steps(steps: Sequence[Step]) -> list[int]:
    """The longest and the shortest first: what they do is written down, and serves all lengths between them."""
    numbers = sorted(range(len(steps)), key=lambda i: steps[i].batch.length or 0)
    return [*numbers[-1:], *numbers[:-1]]
