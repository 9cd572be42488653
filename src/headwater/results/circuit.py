"""A circuit: the parts of a model that carry most of one score, and what flows between them. A value, without a model.

Relevance of a node comes from other nodes by edges, from biases, and from parts that are left out; it goes to other
nodes by edges, and to parts that are left out. Both are measured, so that each node has a ledger that closes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from ..errors import UnknownName, UsageError
from .display import DRAWING, Shown, find_form
from .explanation import Provenance
from .files import Saved
from .ledger import TOLERANCE

WORDS, SCORE, MLPS = "words", "score", "mlps"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class CircuitNode:
    """One part of the model, a word, or the score.

    `kind` is "words", "heads", "neurons", "mlps" (all neurons of one feed-forward layer), "layers", "modules" or
    "score". `order` is its place in the order in which the model computes: words have 0, the score has the last. `text`
    is the word itself. `sources` are biases and constants that enter between this node and those below it; of the
    score, they hold what of it is not linear in the model's outputs, too.
    """

    name: str
    kind: str
    relevance: float
    order: int
    layer: int | None = None
    unit: int | None = None
    module: str = ""
    text: str = ""
    sources: float = 0.0
    from_left_out: float = 0.0
    to_left_out: float = 0.0


class CircuitEdge(NamedTuple):
    """What flows from node `end` down to node `start` by no other part of the circuit: `start` gives it to `end`."""

    start: str
    end: str
    relevance: float


@dataclass(frozen=True)
class LeftOutParts:
    """All parts that are no nodes, taken together. `size` is the sum of their absolute relevance.

    `within` flows from one of them to another. `from_nodes` + `within` + `sources` = `relevance`, and `to_nodes` +
    `within` is the same.
    """

    parts: int
    relevance: float
    size: float
    within: float
    sources: float
    from_nodes: float
    to_nodes: float


@dataclass(frozen=True)
class NodeLedger:
    """What comes into one node and what leaves it, each of which adds up to its relevance.

    incoming + sources + from_left_out = relevance = outgoing + to_left_out. Nothing comes into a word, and nothing
    leaves the score. `unaccounted` is what the first sum lacks, `lost` what the second lacks.
    """

    name: str
    relevance: float
    incoming: float
    sources: float
    from_left_out: float
    outgoing: float
    to_left_out: float
    size: float
    kind: str = ""
    dtype: str = "float32"

    @property
    def unaccounted(self) -> float:
        made = self.incoming + self.sources + self.from_left_out
        return 0.0 if self.kind == WORDS else self.relevance - made

    @property
    def lost(self) -> float:
        return 0.0 if self.kind == SCORE else self.relevance - (self.outgoing + self.to_left_out)

    @property
    def error(self) -> float:
        """The larger of |unaccounted| and |lost|, relative to `size`. 0 is a ledger that closes."""
        return max(abs(self.unaccounted), abs(self.lost)) / (max(self.size, abs(self.relevance)) or 1.0)

    @property
    def closed(self) -> bool:
        return self.error <= TOLERANCE[self.dtype]

    def __str__(self) -> str:
        parts = {"nodes": self.incoming, "biases": self.sources, "left out": self.from_left_out}
        parts |= {} if self.closed else {"unaccounted": self.unaccounted}
        goes = {"nodes": self.outgoing, "left out": self.to_left_out} | ({} if self.closed else {"lost": self.lost})
        into, out = (" + ".join(f"{name} {amount:.6g}" for name, amount in one.items()) for one in (parts, goes))
        lines = ([] if self.kind == WORDS else [f"from {into} = {self.relevance:.6g}"]) + (
            [] if self.kind == SCORE else [f"to {out} = {self.relevance:.6g}"]
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class CircuitFaithfulness:
    """What the model says with the circuit alone, by size: all other parts have their values for another input.

    `kept` are the scores when the `sizes` first nodes are kept and all others replaced, `removed` those when they are
    replaced and all others kept. `score` is that of the whole model, `empty` that with every part replaced. `parts` is
    the number of all parts. The last size is that of the circuit.
    """

    sizes: tuple[int, ...]
    kept: tuple[float, ...]
    removed: tuple[float, ...]
    score: float
    empty: float
    parts: int
    with_: str = ""

    @property
    def faithfulness(self) -> float:
        """(kept - empty) / (score - empty) of the whole circuit: 1 does what the model does."""
        return self.shares(self.kept)[-1]

    @property
    def completeness(self) -> float:
        """1 - the same for the model without the circuit: 1 where nothing is left of the score but `empty`."""
        return 1.0 - self.shares(self.removed)[-1]

    def shares(self, scores: Sequence[float]) -> tuple[float, ...]:
        """Scores on the scale from `empty`, 0, to `score`, 1."""
        whole = self.score - self.empty
        return tuple((one - self.empty) / whole if whole else float("nan") for one in scores)

    def __str__(self) -> str:
        return (
            f"{self.sizes[-1]} of {self.parts} parts: {self.kept[-1]:+.4g} of {self.score:+.4g} "
            f"(faithfulness {self.faithfulness:.3g}, without them {self.removed[-1]:+.4g}: completeness "
            f"{self.completeness:.3g}; all replaced {self.empty:+.4g})"
        )


@dataclass(frozen=True, eq=False)
class Circuit(Shown, Saved):
    """The parts that carry most of one score: `nodes`, the `edges` between them, and what is `left_out`.

    `nodes` begin with the words and end with the score, in the order in which the model computes. `edges` has one for
    each pair of nodes between which anything flows, the largest first.
    """

    kind: ClassVar[str] = "circuit"

    nodes: tuple[CircuitNode, ...]  # words first, the score last
    edges: tuple[CircuitEdge, ...]  # the largest first
    left_out: LeftOutParts  # what is in no node
    score: float  # what the lines add up to
    target: str  # what the score is of, by name
    method: str  # that was used, by the name that gives the same numbers again
    provenance: Provenance  # what is needed to repeat it
    dtype: str = "float32"  # of the computation
    prediction: str | None = None  # the model's own class
    text: str | None = None  # what was explained
    measured: CircuitFaithfulness | None = None  # what `faithfulness()` found, once it was asked

    @property
    def parts(self) -> tuple[CircuitNode, ...]:
        """The nodes that are neither words nor the score, the largest relevance first."""
        found = [node for node in self.nodes if node.kind not in (WORDS, SCORE)]
        return tuple(sorted(found, key=lambda node: -abs(node.relevance)))

    @property
    def words(self) -> tuple[CircuitNode, ...]:
        """The nodes that are words of the input."""
        return tuple(node for node in self.nodes if node.kind == WORDS)

    def find(self, name: str) -> CircuitNode:
        """The node called `name`: "layer 3 head 5", "layer 3 neurons", "word 2", "score"."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise UnknownName("node", name, [node.name for node in self.nodes])

    def into(self, name: str) -> list[CircuitEdge]:
        """The edges that lead to the node called `name`, the largest first."""
        self.find(name)
        return [edge for edge in self.edges if edge.end == name]

    def out_of(self, name: str) -> list[CircuitEdge]:
        """The edges that leave the node called `name`, the largest first."""
        self.find(name)
        return [edge for edge in self.edges if edge.start == name]

    def ledger(self, name: str) -> NodeLedger:
        """What comes into the node called `name` and what leaves it; of "left out", of all parts that are no nodes
        together.
        """
        if name == LEFT_OUT:
            return self._ledger_of_left_out()
        node, into, out = self.find(name), self.into(name), self.out_of(name)
        lines = [edge.relevance for edge in (*into, *out)]
        rest = (node.sources, node.from_left_out, node.to_left_out)
        return NodeLedger(
            name,
            node.relevance,
            sum(edge.relevance for edge in into),
            node.sources,
            node.from_left_out,
            sum(edge.relevance for edge in out),
            node.to_left_out,
            sum(map(abs, (*lines, *rest))),
            node.kind,
            self.dtype,
        )

    def _ledger_of_left_out(self) -> NodeLedger:
        rest = self.left_out
        lines = [(node.from_left_out, node.to_left_out) for node in self.nodes]
        size = sum(abs(one) for line in lines for one in line) + rest.size + abs(rest.sources)
        sums = (rest.from_nodes, rest.sources, rest.within, rest.to_nodes, rest.within)
        return NodeLedger(LEFT_OUT, rest.relevance, *sums, size, LEFT_OUT, self.dtype)

    @property
    def closed(self) -> bool:
        """Whether the ledger of every node closes, and that of what is left out."""
        return all(self.ledger(name).closed for name in (*(node.name for node in self.nodes), LEFT_OUT))

    def faithfulness(self) -> CircuitFaithfulness:
        """What the model does with these parts alone. It was measured where `hw.circuit` was asked `with_=`."""
        if self.measured is None:
            raise UsageError(
                "this takes a model, which a circuit does not hold: pass hw.circuit(…, with_=another text) or "
                "with_='zeros', and it is measured."
            )
        return self.measured

    def draw(self, edges: int = 150) -> str:
        """An SVG: words at the bottom, layers above them, the score on top; at most so many `edges`, the largest."""
        drawing = find_form(DRAWING, self)
        if drawing is None:
            raise UsageError("nothing is known that draws a circuit: import headwater.viz.forms.")
        drawn: str = drawing(self, edges)
        return drawn

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._stamp(),
            **{name: getattr(self, name) for name in _PLAIN},
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [edge._asdict() for edge in self.edges],
            "left_out": asdict(self.left_out),
            "measured": None if self.measured is None else asdict(self.measured),
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Circuit:
        cls._check_stamp(found)
        measured = found["measured"]
        return cls(
            **{name: found[name] for name in _PLAIN},
            nodes=tuple(CircuitNode(**node) for node in found["nodes"]),
            edges=tuple(CircuitEdge(**edge) for edge in found["edges"]),
            left_out=LeftOutParts(**found["left_out"]),
            measured=None if measured is None else CircuitFaithfulness(**{**measured, **as_tuples(measured)}),
            provenance=Provenance(**found["provenance"]),
        )

    def to_json(self) -> str:
        """What `save` writes into a file."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, written: str) -> Circuit:
        """The circuit again: `written` is what `to_json` gave."""
        return cls.from_dict(json.loads(written))


_PLAIN = ("score", "target", "method", "dtype", "prediction", "text")


def as_tuples(measured: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(measured[name]) for name in ("sizes", "kept", "removed")}
