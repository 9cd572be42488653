"""The circuit of one text: the parts that carry most of its score, as a drawing and node by node."""

from __future__ import annotations

from ..api.circuit import circuit
from ..results.circuit import WORDS, Circuit, CircuitNode
from ..viz.circuit_chart import draw_circuit, without_marks
from ..viz.reading import visible
from .inside import text_options
from .inside_schemas import CircuitAnswer, CircuitAsked, CircuitEdgeShown, CircuitNodeShown
from .models import Loaded


def trace_circuit(loaded: Loaded, ask: CircuitAsked) -> CircuitAnswer:
    session = loaded.session
    options = {**text_options(loaded, ask), "dtype": session.dtype}
    return circuit_answer(circuit(session.model, ask.text, nodes=ask.nodes, method=ask.method, **options))


def circuit_answer(found: Circuit) -> CircuitAnswer:
    numbers = {node.name: number for number, node in enumerate(found.nodes)}
    lines = ("kind", "relevance", "sources", "from_left_out", "to_left_out")
    return CircuitAnswer(
        svg=draw_circuit(found),
        nodes=[
            CircuitNodeShown(label=visible(name_part(node)), **{name: getattr(node, name) for name in lines})
            for node in found.nodes
        ],
        edges=[
            CircuitEdgeShown(start=numbers[edge.start], end=numbers[edge.end], relevance=edge.relevance)
            for edge in found.edges
        ],
        left_out=found.left_out.parts,
        closed=found.closed,
    )


def name_part(node: CircuitNode) -> str:
    """A word is called by itself, a part by its name."""
    return without_marks(node.text) if node.kind == WORDS else node.name
