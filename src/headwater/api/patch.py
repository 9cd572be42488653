"""`patch`: what happens when parts of a model are replaced, all at once or each alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..engine.compiled import run_eagerly
from ..engine.forward import NO_RULES, Run, forward, scope_for
from ..engine.options import OptionsByName, Request, refuse_unused
from ..engine.plan import make_plan
from ..engine.session import Session
from ..errors import UsageError, check_integer
from ..inputs.inside_demand import InsideDemand
from ..inputs.restoring import outside_inference, restores
from ..inputs.walking import walk_once
from ..methods.perturbation import fix_target, repeat_sample
from ..results.inside import MODULES, NodeGroup
from ..results.patching import PatchEffect
from ..rules.inside import watch_inside
from ..rules.patching import PatchScope, PlaceKey, ValueSwap, check_shape, mean_over_positions
from ..rules.scope import Scope
from ..rules.tapped import NodeTap, SamplesUntold
from .node_names import Chosen, NodeName, read_nodes
from .patch_estimates import PatchEstimate, PatchEstimator, choose_unsure
from .requests import Model, make_request

ZEROS = "zeros"
UNUSED = ("method", "inside", "sinks", "keep", "recompute", "memory_limit", "window", "stride")


@restores
def patch(
    model: Model,
    text: Any,
    nodes: Chosen | Iterable[Chosen],
    *,
    with_: Any = ZEROS,
    **options: Unpack[OptionsByName],
) -> PatchEffect:
    """The score of a text when all of these nodes are replaced at once: activation patching.

    Args:
        model: as for `explain`.
        text: one text, or what else `explain` takes as one sample.
        nodes: those of `e.inside.top()`, or their names: "layer 3 head 5", "layer 3 neuron 17", "layer 3 heads", "layer
            3" (what the layer leaves), "layer 3 expert 2", or a module by its dotted name (its output).
        with_: another text of as many tokens, whose own values are put in; a list of texts, whose mean over all
            positions is; or "zeros". Not every token goes to an expert of a mixture, so experts and their neurons take
            a list of texts or "zeros".
        options: those options of `explain`, by name, that say how the model is run and which score is read.

    Returns:
        A `PatchEffect`: the score before, and after.

    Raises:
        UsageError: there is no such node, the other text has another number of tokens, or an option would have no
            effect, such as `keep`.
        ModelError: as for `explain`.

    Example:
        >>> effect = hw.patch("headwater/sentiment", "a fine film", "layer 3 heads", with_="a dull film")
        >>> effect.score > effect.patched
        True
    """
    named = read_nodes(nodes)
    (found,) = Patcher.open(model, text, named, with_, options).run([named])
    return found


@restores
def patch_each(
    model: Model,
    text: Any,
    nodes: Chosen | Iterable[Chosen],
    *,
    with_: Any = ZEROS,
    exact: int | None = None,
    **options: Unpack[OptionsByName],
) -> list[PatchEffect]:
    """What `patch(model, text, nodes, with_=…)` gives, for each node alone, `batch_size` of them in one pass.

    Where nodes are many, `exact=16` replaces 16 of them, as many of each kind, and estimates all others by one pass
    forward and back: the change of a node's value times its gradient (attribution patching). Replaced are those whose
    estimates are sums of the largest terms, for there a gradient is not to be trusted; with another text, one more pass
    reads the terms halfway between the two as well. `effect.estimated` says which is which. Ask for output="logit" of a
    language model: the weights of the mean that an advantage subtracts are held constant.

    Args:
        model: as for `explain`.
        text: as for `patch`.
        nodes: as for `patch`.
        with_: as for `patch`.
        exact: how many nodes are replaced; None is all of them, and 0 estimates all. Nodes of one kind are heads,
            neurons, layers or modules.
        options: as for `patch`.

    Returns:
        A `PatchEffect` per node, in their order.

    Raises:
        UsageError: as for `patch`; or all heads or neurons of a place were to be estimated as one node.
        ModelError: as for `explain`.

    Example:
        >>> effects = hw.patch_each("headwater/sentiment", "a fine film", ["layer 3 head 5", "layer 3 head 0"])
        >>> [len(effect.nodes) for effect in effects]
        [1, 1]
        >>> nodes = [f"layer 3 neuron {number}" for number in range(768)]
        >>> effects = hw.patch_each("headwater/sentiment", "a fine film", nodes, exact=16)
        >>> sum(effect.estimated for effect in effects)
        752
    """
    named = read_nodes(nodes)
    if exact is not None:
        exact = check_integer("exact", exact, 0)
    patcher = Patcher.open(model, text, named, with_, options)
    if exact is None or exact >= len(named):
        return patcher.run([(node,) for node in named])
    return patcher.run_some(named, exact)


@dataclass(frozen=True)
class Patcher:
    """A model, a text, and what is put into which nodes."""

    run_of_text: Run
    demand: InsideDemand
    values: dict[int, Tensor]  # by the number of the place
    groups: list[NodeGroup]
    keys: list[PlaceKey]
    batch_size: int
    other: Run | None = None  # of the other text, where its own values are put in

    @classmethod
    def open(cls, model: Model, text: Any, nodes: Sequence[Chosen], with_: Any, options: Any) -> Patcher:
        names = [NodeName.read(node) for node in nodes]
        kinds = {name.kind for name in names} - {MODULES}
        demand = InsideDemand(frozenset(kinds), tuple({name.module for name in names if name.kind == MODULES}))
        ask = make_request(model, text, **options)
        refuse_unused(ask.options, UNUSED, "patching reads the score off the model, and explains nothing")
        with walk_once():
            session = Session.open(ask.model, ask.options)
            run = make_one_run(session, ask)
            scope, out = run_with_swaps(run, demand, {})
            run = replace(run, read=fix_target(run.read, out, run.batch))
            groups = [describe_place(place, scope.places[:number]) for number, place in enumerate(scope.places)]
            used = sorted({name.find(groups) for name in names})
            values = find_values(session, ask, demand, scope, with_, used)
            other = read_other(session, ask, with_)
        return cls(run, demand, values, groups, scope.keys, ask.options.batch_size, other)

    def run(self, questions: Sequence[Sequence[Chosen]]) -> list[PatchEffect]:
        """The score when the nodes of each question are replaced, many questions in one pass."""
        _, out = run_with_swaps(self.run_of_text, self.demand, {}, keeps=False)
        return self._ask_all(questions, self.run_of_text.read(out, self.run_of_text.batch))

    def run_some(self, nodes: Sequence[Chosen], exact: int) -> list[PatchEffect]:
        """The score when each node alone is replaced: `exact` of them are, and all others are estimated."""
        numbers = [self._find_one(name) for name in map(NodeName.read, nodes)]
        estimates, before = self._estimate()
        found = [estimates[place] for place, _ in numbers]
        terms = [float(one.terms[unit]) for one, (_, unit) in zip(found, numbers, strict=True)]
        chosen = choose_unsure([self.groups[place].kind for place, _ in numbers], terms, exact)
        patched = dict(zip(chosen, self._ask_all([(nodes[number],) for number in chosen], before), strict=True))
        score, names = float(before.score[0].detach()), (before.targets[0], before.predictions[0])
        effects = []
        for number, (one, (_, unit)) in enumerate(zip(found, numbers, strict=True)):
            said = (NodeName.read(nodes[number]).said,)
            guess = PatchEffect(said, score, score - float(one.falls[unit]), *names, estimated=True)
            effects.append(patched.get(number, guess))
        return effects

    def _find_one(self, name: NodeName) -> tuple[int, int]:
        """The place and the unit of what is one node."""
        place = name.find(self.groups)
        if name.unit is None and self.groups[place].relevance.shape[-1] > 1:
            raise UsageError(f"{name.said!r} is many nodes at once, which no estimate is of. Leave out exact=.")
        return place, name.unit or 0

    def _estimate(self) -> tuple[list[PatchEstimate], Any]:
        """Of all places, those that nothing is put into with no change; and what the score was before."""
        scope, out = run_with_swaps(self.run_of_text, self.demand, {})
        changes = [torch.zeros_like(one) for one in scope.found]
        for number, value in self.values.items():
            check_shape(scope.found[number], value, scope.places[number])
            changes[number] = scope.found[number] - value
        estimator = PatchEstimator(self.run_of_text, self.demand, scope.places, changes)
        found = estimator.estimate() if self.other is None else estimator.estimate_beside(self.other)
        return found, self.run_of_text.read(out, self.run_of_text.batch)

    def _ask_all(self, questions: Sequence[Sequence[Chosen]], before: Any) -> list[PatchEffect]:
        found: list[PatchEffect] = []
        for start in range(0, len(questions), self.batch_size):
            found += self._ask(questions[start : start + self.batch_size], before)
        return found

    def _ask(self, questions: Sequence[Sequence[Chosen]], before: Any) -> list[PatchEffect]:
        swaps: dict[PlaceKey, list[ValueSwap]] = {}
        for row, nodes in enumerate(questions):
            for name in map(NodeName.read, nodes):
                place = name.find(self.groups)
                units = None if name.unit is None else [name.unit]
                swaps.setdefault(self.keys[place], []).append(ValueSwap(row, units, self.values[place]))
        run = replace(self.run_of_text, batch=repeat_sample(self.run_of_text.batch, len(questions)))
        try:
            _, out = run_with_swaps(run, self.demand, swaps, keeps=False)
        except SamplesUntold:
            return [one for question in questions for one in self._ask([question], before)]
        after = run.read(out, run.batch)
        return [
            PatchEffect(
                tuple(NodeName.read(node).said for node in nodes),
                float(before.score[0].detach()),
                float(after.score[row].detach()),
                before.targets[0],
                before.predictions[0],
                after.predictions[row],
            )
            for row, nodes in enumerate(questions)
        ]


def make_one_run(
    session: Session, ask: Request, said: str = "patching is of one input: pass one text, and ask for each in turn."
) -> Run:
    """The run of what is one input; of several, `said` is the error."""
    plan = make_plan(ask, session.model)
    if len(plan.steps) != 1 or plan.steps[0].batch.samples != 1:
        raise UsageError(said)
    return session.make_run(plan.steps[0].batch, plan.steps[0].read, ask.options)


def run_with_swaps(run: Run, demand: InsideDemand, swaps: Any, keeps: bool = True) -> tuple[PatchScope, Any]:
    """One pass of the model with some values replaced. Nothing of it is differentiated."""

    @contextmanager
    def watch(scope: Scope) -> Iterator[None]:
        assert isinstance(scope, PatchScope)
        scope.ask(demand)
        scope.swaps, scope.keeps = swaps, keeps
        with watch_inside(run.model, scope):
            yield

    run = replace(run, scope=PatchScope, watch=watch, inside=None)
    scope = scope_for(run, NO_RULES)
    assert isinstance(scope, PatchScope)
    with outside_inference(), torch.enable_grad(), run_eagerly():
        out, _ = forward(run, scope)
    scope.release()
    return scope, out


def describe_place(place: NodeTap, before: Sequence[NodeTap]) -> NodeGroup:
    """A place as a group of nodes without relevance: what names are looked up in."""
    units = 1 if place.units is None else place.kept[place.units]
    call = sum((one.kind, one.module) == (place.kind, place.module) for one in before)
    stack, layer = place.layer or ("", None)
    expert = place.expert if place.kind == "experts" else None
    return NodeGroup(place.kind, place.module, torch.zeros(1, units), layer, stack, call, expert=expert)


def find_values(
    session: Session, ask: Request, demand: InsideDemand, scope: PatchScope, with_: Any, used: Sequence[int]
) -> dict[int, Tensor]:
    """What is put into each place that is used."""
    if isinstance(with_, str) and with_ == ZEROS:
        return {number: torch.zeros([1] * scope.found[number].dim()).to(scope.found[number]) for number in used}
    texts = with_ if isinstance(with_, list) else [with_]
    if not texts:
        raise UsageError("with_= is an empty list: name texts, whose mean is put in.")
    runs = [read_text(session, ask, text) for text in texts]
    others = [run_with_swaps(run, demand, {})[0] for run in runs]
    values = {}
    for number in used:
        place, key = scope.places[number], scope.keys[number]
        given = [other.found[other.keys.index(key)] for other in others if key in other.keys]
        if not given or (place.expert is None and len(given) < len(others)):
            raise UsageError(
                f"the other text does not go through {say_place(place)}, so nothing can be put in from it."
            )
        if isinstance(with_, list):
            values[number] = mean_over_positions(given, place)
        elif place.expert is None:
            values[number] = given[0]
        else:
            raise UsageError(
                f"not every token goes to {say_place(place)}, so values of another text have no place there: put in "
                "'zeros', or a mean, with_=[text]."
            )
    return values


def say_place(place: NodeTap) -> str:
    return repr(place.module) if place.expert is None else f"expert {place.expert[0]} of {place.module!r}"


def read_other(session: Session, ask: Request, with_: Any) -> Run | None:
    """The run of another text, if it is one."""
    return (
        None
        if isinstance(with_, list) or (isinstance(with_, str) and with_ == ZEROS)
        else read_text(session, ask, with_)
    )


def read_text(session: Session, ask: Request, text: Any) -> Run:
    return make_one_run(session, make_request(ask.model, text, **reading_options(ask)))


def reading_options(ask: Request) -> dict[str, Any]:
    """What another text of the same request is read with."""
    names = ("tokenizer", "processor", "inputs", "at", "truncate", "device", "dtype")
    return {name: getattr(ask.options, name) for name in names}
