"""`circuit`: the parts of a model that carry most of one score, and what flows between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Unpack

from ..engine.forward import Read, Run
from ..engine.node_flows import FlowTable, FlowTracer, NodeFlow, UnitAddress
from ..engine.options import SHOWN, OptionsByName, Request, refuse_unused
from ..engine.session import answer_all, check_followed
from ..errors import NotApplicable, UsageError, check_integer
from ..inputs.inside_demand import InsideDemand
from ..inputs.restoring import restores
from ..methods.registry import Method, resolve_method
from ..results.circuit import MLPS, SCORE, WORDS, Circuit, CircuitEdge, CircuitNode, LeftOutParts
from ..results.explanation import Explanation
from ..results.inside import KINDS, Inside, NodeGroup
from ..rules.flow_gates import FlowScope
from ..rules.inside import watch_inside
from ..rules.scope import Scope
from .keep_parts import measure_circuit
from .patch import describe_place
from .requests import Model, make_request

PARTS = ("heads", MLPS)
ROLES = ("queries", "keys", "values")


@restores
def circuit(
    model: Model,
    text: Any,
    *,
    nodes: int = 100,
    parts: str | Sequence[str] = PARTS,
    with_: Any = None,
    method: str | Method | None = None,
    **options: Unpack[OptionsByName],
) -> Circuit:
    """The `nodes` parts of a model with the largest relevance for one score, and what flows between them.

    An edge is what flows from one node to another by no other part. What flows by parts that are no nodes is left out,
    and measured as well: for every node, edges + biases + what is left out = its relevance. It takes one backward pass
    per node, up to `batch_size` of them at once, and one for all that is left out.

    Args:
        model: as for `explain`.
        text: one sample, as for `explain`.
        nodes: how many parts.
        parts: what a part is: "heads", "mlps" (all neurons of a feed-forward layer together), "neurons" (each by
            itself), "layers" (the residual stream), or modules by name or pattern. Words and the score are nodes, too.
        with_: as for `patch`. The circuit is then tested as well: `c.faithfulness()` says what the model's score is
            when all other parts are replaced, and when these are.
        method: as for `explain`.
        options: all other options of `explain`, by name.

    Returns:
        A `Circuit`.

    Raises:
        UsageError: an option is wrong, or there is no such part.
        ModelError: as for `explain`.

    Example:
        >>> c = hw.circuit("headwater/sentiment", "a fine film", nodes=5)
        >>> len(c.parts), c.edges[0].end
        (5, 'score')
    """
    demand = read_part_names(parts)
    nodes = check_integer("nodes", nodes, 1)
    ask = make_request(model, text, method=method, **{**options, "plans": False})
    check_options(ask)
    ask = replace(ask, options=replace(ask.options, sinks=SHOWN))
    tracing = Tracing(demand, nodes, ask.options.batch_size)
    explanation = explain_with_trace(ask, tracing)
    assert tracing.table is not None
    made = CircuitBuilder(tracing.table, explanation, MLPS in demand.asked).make()
    if with_ is None:
        return made
    return replace(made, measured=measure_circuit(ask, demand.inside, demand.whole, tracing.table, with_))


@dataclass(frozen=True)
class PartsDemand:
    """What was asked for as `parts`, and which places inside the model that is."""

    asked: frozenset[str]
    inside: InsideDemand

    @property
    def whole(self) -> frozenset[str]:
        """Kinds whose units are one node together."""
        return frozenset(["neurons"] if MLPS in self.asked else [])


def read_part_names(parts: str | Sequence[str]) -> PartsDemand:
    names = [parts] if isinstance(parts, str) else list(parts or ())
    if {"neurons", MLPS} <= {*names}:
        raise UsageError(f"{MLPS!r} are the neurons of a layer together: ask for them or for 'neurons', not for both.")
    if "experts" in names:
        raise UsageError("experts are no parts of a circuit by themselves. 'mlps' has one part for each of them.")
    for name in names:
        if name in ROLES:
            raise UsageError(f"{name} of attention are no part of a circuit by themselves. Ask for its heads.")
    found = InsideDemand.read(["neurons" if name == MLPS else name for name in names])
    if found is None:
        raise UsageError(f"no parts were named: there are {', '.join((*PARTS, *KINDS[1:3]))}, and modules by name.")
    return PartsDemand(frozenset(names), found)


def check_options(ask: Request) -> None:
    """A circuit follows one pass of the model, by a method whose relevance passes through its parts."""
    method = ask.options.method
    if method is not None:
        check_followed(resolve_method(method))
    unused = ("window", "stride", "recompute", "memory_limit")
    refuse_unused(ask.options, unused, "a circuit follows one pass of the model many times back")
    refuse_unused(ask.options, ("sinks",), "a circuit has every word that its parts read")
    if ask.options.keep != "device":
        raise UsageError(
            "a circuit goes back through the model many times, so nothing is kept elsewhere: leave out keep=."
        )


@dataclass
class Tracing:
    """What is to be traced in one run, and what was found."""

    demand: PartsDemand
    nodes: int
    batch_size: int
    table: FlowTable | None = None

    def watch_run(self, run: Run) -> Run:
        if run.batch.samples != 1:
            raise UsageError(f"a circuit is of one input, not of {run.batch.samples}.")

        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            assert isinstance(scope, FlowScope)
            scope.ask(self.demand.inside)
            scope.whole = self.demand.whole
            with watch_inside(run.model, scope):
                yield

        def inspect(scope: Scope, read: Read) -> None:
            assert isinstance(scope, FlowScope)
            check_parts(scope, self.demand)
            self.table = FlowTracer.of(run.batch, scope, read, self.batch_size).trace(self.nodes)

        return replace(run, scope=FlowScope, watch=watch, inspect=inspect, links=False)


def check_parts(scope: FlowScope, demand: PartsDemand) -> None:
    """Every kind of part that was asked for is there."""
    if scope.record.untold:
        raise NotApplicable(
            f"the heads of {scope.record.untold[0]!r} cannot be told: its attention mixes values in a shape that does "
            "not say which axis the heads are. Ask for parts=['layers'], or for modules by name."
        )
    missing = demand.inside.kinds - {place.kind for place in scope.places}
    if missing:
        raise NotApplicable(
            f"the model has no {', '.join(sorted(missing))} that can be told on the way from the explained input to "
            "the score. Ask for parts=['layers'], or for modules by name."
        )


def explain_with_trace(ask: Request, tracing: Tracing) -> Explanation:
    found = answer_all(ask, tracing.watch_run)
    if len(found) != 1:
        raise UsageError(f"a circuit is of one input, not of {len(found)}.")
    return found[0]


@dataclass
class CircuitBuilder:
    """Makes a circuit of what flows between places."""

    table: FlowTable
    explanation: Explanation
    mlps: bool

    def make(self) -> Circuit:
        e, table = self.explanation, self.table
        words, parts, score = self.make_words(), self.make_parts(), self.make_score()
        nodes = (*words, *parts, score)
        flows = [(score, table.score), *zip(parts, table.nodes, strict=True)]
        return Circuit(
            nodes,
            tuple(sorted(self.make_edges(words, parts, flows), key=lambda edge: -abs(edge.relevance))),
            self.make_left_out(nodes),
            e.ledger.score,
            e.target,
            e.method,
            e.provenance,
            e.ledger.dtype,
            e.prediction,
            e.text if isinstance(e.text, str) else None,
        )

    def make_words(self) -> list[CircuitNode]:
        e = self.explanation
        amounts = e.relevance.double() if e.tokens and e.relevance.dim() == 1 else e.relevance.double().sum().reshape(1)
        texts = e.tokens if len(amounts) == len(e.tokens) else ("input",)
        left = self.to_left_out_words(len(amounts))
        return [
            CircuitNode(f"word {i}", WORDS, amount, 0, unit=i, text=text, to_left_out=left[i])
            for i, (text, amount) in enumerate(zip(texts, amounts.tolist(), strict=True))
        ]

    def to_left_out_words(self, count: int) -> list[float]:
        rest = self.table.rest
        return [0.0] * count if rest is None else rest.words.tolist()

    def make_parts(self) -> list[CircuitNode]:
        table, groups = self.table, self.describe_places()
        inside = Inside(tuple(groups))
        return [
            self.make_part(inside, groups[unit.place], unit, flow)
            for unit, flow in zip(table.chosen, table.nodes, strict=True)
        ]

    def make_part(self, inside: Inside, group: NodeGroup, unit: UnitAddress, flow: NodeFlow) -> CircuitNode:
        kind = MLPS if self.mlps and group.kind == "neurons" else group.kind
        single = kind == MLPS or group.kind not in ("heads", "neurons")
        named = f"{inside.label(group)} neurons" if kind == MLPS else inside.name_unit(group, unit.unit)
        return CircuitNode(
            named,
            kind,
            float(self.table.relevance[unit.place][unit.unit]),
            unit.place + 1,
            group.layer,
            None if single else unit.unit,
            group.place,
            sources=flow.sources,
            from_left_out=self.sum_unchosen(flow),
            to_left_out=0.0 if self.table.rest is None else amount_of(self.table.rest, unit),
        )

    def make_score(self) -> CircuitNode:
        e, flow = self.explanation, self.table.score
        sources, left = flow.sources + e.ledger.readout, self.sum_unchosen(flow)
        order = len(self.table.places) + 1
        return CircuitNode(SCORE, SCORE, e.ledger.score, order, text=e.target, sources=sources, from_left_out=left)

    def describe_places(self) -> list[NodeGroup]:
        places = self.table.places
        return [describe_place(place, places[:number]) for number, place in enumerate(places)]

    def sum_unchosen(self, flow: NodeFlow) -> float:
        """What flows to parts that are no nodes."""
        all_of_it = sum(float(amount.sum()) for amount in flow.units.values())
        return all_of_it - sum(amount_of(flow, unit) for unit in self.table.chosen)

    def make_edges(
        self, words: Sequence[CircuitNode], parts: Sequence[CircuitNode], flows: Sequence[tuple[CircuitNode, NodeFlow]]
    ) -> Iterator[CircuitEdge]:
        for end, flow in flows:
            amounts = [*flow.words.tolist(), *(amount_of(flow, unit) for unit in self.table.chosen)]
            for start, amount in zip((*words, *parts), amounts, strict=True):
                if amount:
                    yield CircuitEdge(start.name, end.name, amount)

    def make_left_out(self, nodes: Sequence[CircuitNode]) -> LeftOutParts:
        table, rest = self.table, self.table.rest
        if rest is None:
            return LeftOutParts(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        left = [
            float(a)
            for p, row in table.relevance.items()
            for u, a in enumerate(row)
            if UnitAddress(p, u) not in self.chosen
        ]
        return LeftOutParts(
            len(left),
            sum(left),
            sum(map(abs, left)),
            self.sum_unchosen(rest),
            rest.sources,
            sum(node.to_left_out for node in nodes),
            sum(node.from_left_out for node in nodes),
        )

    @property
    def chosen(self) -> frozenset[UnitAddress]:
        return frozenset(self.table.chosen)


def amount_of(flow: NodeFlow, unit: UnitAddress) -> float:
    """What of a flow arrives at one unit; nothing where the flow does not come there."""
    found = flow.units.get(unit.place)
    return 0.0 if found is None else float(found[unit.unit])
