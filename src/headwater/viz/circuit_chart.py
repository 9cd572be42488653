"""A circuit as text, and as a drawing: words at the bottom, layers above them, the score on top.

A line is an edge, the thicker the more flows along it; what takes away is dashed, too, so that colour is not the only
sign. A grey stub below a node is what comes to it from parts that are left out. The drawing is SVG with a ground of
its own. Each node has its number among `circuit.nodes` as `data-item`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise

from headwater.results.circuit import MLPS, SCORE, WORDS, Circuit, CircuitEdge, CircuitNode
from headwater.results.display import DRAWING, NOTEBOOK, TEXT, shows

from ..plurals import say_count
from .colour import NEGATIVE, POSITIVE, blend_colours, hues, largest, shade
from .notebook import fragment
from .two_texts import write_colour

SHOWN = 10  # parts and edges in a text
MOST_WORDS = 40  # in a drawing
LEAST_SHARE = 0.005  # of the largest edge: a smaller one is not drawn
LEFT, RIGHT, TOP, BOTTOM = 128, 40, 30, 62  # pixels around the nodes
ROW, NEAR, TALL = 66, 46, 26  # between rows, between those of one layer, of a node
GAP, LETTER, COLUMN = 10, 7.4, 110  # between nodes, of a letter, of the nodes on the right
THICK, WIDTH = 11.0, 760
INK, SOFT = "#18181b", "#71717a"
FONT = "font-family='system-ui, sans-serif'"


@shows(TEXT, Circuit)
def plain_circuit(circuit: Circuit) -> str:
    """The score, the parts with the largest relevance, the largest edges, and what is left out."""
    rest, parts = circuit.left_out, circuit.parts
    direct, count = circuit.find(SCORE).from_left_out, len(parts) + rest.parts
    texts = {node.name: node_text(node) for node in circuit.nodes}
    ends = [f"  {edge.relevance:+.4f}  {texts[edge.start]} -> {texts[edge.end]}" for edge in circuit.edges[:SHOWN]]
    state = "every node's ledger closes" if circuit.closed else "NOT every node's ledger closes"
    return "\n".join(
        [
            f"{circuit.target} {circuit.score:+.4f} ({circuit.method}): {len(parts)} of {count} parts, "
            f"{say_count(len(circuit.edges), 'edge')}, {state}",
            "",
            "parts:",
            *(f"  {node.relevance:+.4f}  {node.name}" for node in parts[:SHOWN]),
            "",
            "edges:",
            *ends,
            "",
            f"left out: {say_count(rest.parts, 'part')}; {direct:+.4f} of the score comes from them directly",
            *([] if circuit.measured is None else [str(circuit.measured)]),
        ]
    )


def node_text(node: CircuitNode) -> str:
    return repr(without_marks(node.text)) if node.kind == WORDS else node.name


@shows(NOTEBOOK, Circuit)
def show_circuit(circuit: Circuit) -> str:
    return fragment(draw_circuit(circuit))


@dataclass(frozen=True)
class Box:
    """Where a node is drawn: the middle of its box, and its width."""

    number: int
    node: CircuitNode
    label: str
    x: float
    y: float
    wide: float


@shows(DRAWING, Circuit)
def draw_circuit(circuit: Circuit, edges: int = 150) -> str:
    """The drawing, with at most so many edges, the largest."""
    least = LEAST_SHARE * largest(edge.relevance for edge in circuit.edges)
    words = choose_words(circuit)
    kept = [one for one in circuit.edges if abs(one.relevance) >= least and is_drawn(one, words)]
    drawn = kept[:edges]
    rows = group_rows(circuit, words)
    width = find_width(rows)
    boxes = place_boxes(rows, width)
    height = find_heights(rows)[0] + TALL / 2 + BOTTOM
    said = f"circuit of {circuit.target}: {len(circuit.nodes)} nodes, {len(drawn)} of {len(circuit.edges)} edges drawn"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"height='{height:.0f}' role='img'><title>{escape(said)}</title>"
        f"<rect width='{width:.0f}' height='{height:.0f}' rx='8' fill='#ffffff'/>"
        f"{draw_bands(rows, boxes, width)}{draw_edges(drawn, boxes)}{draw_stubs(boxes)}"
        f"{draw_nodes(boxes)}{draw_foot(circuit, words, len(drawn), height)}</svg>"
    )


def choose_words(circuit: Circuit) -> set[str]:
    """The words that are drawn: all of them, or those with the largest relevance."""
    ordered = sorted(circuit.words, key=lambda word: -abs(word.relevance))
    return {word.name for word in ordered[:MOST_WORDS]}


def is_drawn(edge: CircuitEdge, words: set[str]) -> bool:
    """Whether both its ends are drawn: an edge may begin at a word that is not."""
    return edge.start in words or not edge.start.startswith("word ")


Row = list[tuple[int, CircuitNode, str]]


def group_rows(circuit: Circuit, words: set[str]) -> list[Row]:
    """Nodes by row, from the bottom: words, one row per layer and kind, the score."""
    numbered = [(i, node) for i, node in enumerate(circuit.nodes) if node.kind != WORDS or node.name in words]
    return [
        [(number, node, label_node(node)) for number, node in row]
        for _, row in groupby(numbered, key=lambda one: row_key(one[1]))
    ]


def row_key(node: CircuitNode) -> tuple[str, object]:
    """Places of one layer that follow each other, such as its experts, share a row."""
    return node.kind, node.order if node.layer is None and node.kind not in (WORDS, SCORE) else node.layer


def label_node(node: CircuitNode) -> str:
    if node.kind == WORDS:
        return cut_label(without_marks(node.text) or "·", 14)
    if node.kind == SCORE:
        return cut_label(f"{without_marks(node.text)} {node.relevance:+.3f}", 40)
    if node.kind == MLPS:
        return "mlp"
    if node.unit is not None:
        return f"{node.kind[:-1]} {node.unit}" if node.kind != "neurons" else str(node.unit)
    return "stream" if node.kind == "layers" else cut_label(node.module.rpartition(".")[2], 14)


def without_marks(token: str) -> str:
    """A token without what stands for the space before it."""
    return token.replace("Ġ", " ").replace("▁", " ").strip()


def cut_label(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def width_of(label: str) -> float:
    return max(30.0, LETTER * len(label) + 14)


def find_width(rows: Sequence[Row]) -> float:
    needed = max(sum(width_of(label) + GAP for *_, label in row) for row in rows)
    return LEFT + RIGHT + max(WIDTH - LEFT - RIGHT, needed)


def place_boxes(rows: Sequence[Row], width: float) -> dict[str, Box]:
    """Words lie side by side, heads by their number, and what is one node of its layer in a column on the right."""
    columns = max((node.unit + 1 for row in rows for _, node, _ in row if has_column(node)), default=1)  # type: ignore[operator]
    boxes: dict[str, Box] = {}
    for row, y in zip(rows, find_heights(rows), strict=True):
        ordered = sorted(row, key=lambda one: (one[1].unit or 0, one[1].order))
        wides = [width_of(label) for *_, label in ordered]
        wanted = [find_wanted(node, i, len(row), columns, width) for i, (_, node, _) in enumerate(ordered)]
        for (number, node, label), x, wide in zip(ordered, spread(wanted, wides, width), wides, strict=True):
            boxes[node.name] = Box(number, node, label, x, y, wide)
    return boxes


def has_column(node: CircuitNode) -> bool:
    """Whether nodes of its kind have the same place in every layer."""
    return node.unit is not None and node.kind == "heads"


def find_heights(rows: Sequence[Row]) -> list[float]:
    """The middle of every row, the last at the top; rows of one layer lie closer together."""
    layers = [row[0][1].layer for row in rows]
    steps = [NEAR if one is not None and one == other else ROW for one, other in pairwise(layers)]
    total = sum(steps)
    return [TOP + TALL / 2 + total - sum(steps[:i]) for i in range(len(rows))]


def find_wanted(node: CircuitNode, place: int, count: int, columns: int, width: float) -> float:
    """Where a node would lie if there were room."""
    first, last = LEFT, width - RIGHT
    if node.kind == SCORE:
        return (first + last) / 2
    if has_column(node):
        assert node.unit is not None
        return first + (last - COLUMN - first) * (node.unit + 0.5) / columns
    if node.unit is None:
        return last - COLUMN / 2
    return first + (last - first) * (place + 0.5) / count


def spread(wanted: Sequence[float], wides: Sequence[float], width: float) -> list[float]:
    """The places nearest to those that are wanted, from left to right, such that no two boxes meet."""
    found: list[float] = []
    edge = float(LEFT)
    for x, wide in zip(wanted, wides, strict=True):
        found.append(max(x, edge + wide / 2))
        edge = found[-1] + wide / 2 + GAP
    edge = width - RIGHT
    for i in range(len(found) - 1, -1, -1):
        found[i] = min(found[i], edge - wides[i] / 2)
        edge = found[i] - wides[i] / 2 - GAP
    return found


def draw_bands(rows: Sequence[Row], boxes: dict[str, Box], width: float) -> str:
    """The name of every row, and a line on which its nodes lie."""
    drawn = []
    for row in rows:
        y = boxes[row[0][1].name].y
        drawn.append(
            f"<line x1='{LEFT - 8}' x2='{width - RIGHT:.0f}' y1='{y:.1f}' y2='{y:.1f}' stroke='#e4e4e7'/>"
            f"<text x='{LEFT - 16}' y='{y + 4:.1f}' text-anchor='end' font-size='12' fill='{SOFT}' {FONT}>"
            f"{escape(name_row(row[0][1]))}</text>"
        )
    return "".join(drawn)


def name_row(node: CircuitNode) -> str:
    if node.kind in (WORDS, SCORE):
        return node.kind
    place = cut_label(node.module, 16) if node.layer is None else f"layer {node.layer}"
    return place if node.kind in ("layers", "modules") else f"{place} {'mlp' if node.kind == MLPS else node.kind}"


def draw_edges(edges: Sequence[CircuitEdge], boxes: dict[str, Box]) -> str:
    """The weakest first, so that the strong ones lie above."""
    scale = largest(edge.relevance for edge in edges) or 1.0
    return "".join(draw_edge(edge, boxes, scale) for edge in reversed(edges))


def draw_edge(edge: CircuitEdge, boxes: dict[str, Box], scale: float) -> str:
    start, end = boxes[edge.start], boxes[edge.end]
    low, high = start.y - TALL / 2, end.y + TALL / 2
    bend = max(14.0, (low - high) / 2)
    aside = find_bow(start, end)
    share = abs(edge.relevance) / scale
    hue = POSITIVE if edge.relevance > 0 else NEGATIVE
    dash = "" if edge.relevance > 0 else " stroke-dasharray='5 3'"
    said = f"{node_text(start.node)} to {node_text(end.node)}: {edge.relevance:+.4g}"
    return (
        f"<path d='M{start.x:.1f} {low:.1f}C{start.x + aside:.1f} {low - bend:.1f} "
        f"{end.x + aside:.1f} {high + bend:.1f} {end.x:.1f} {high:.1f}' fill='none' "
        f"stroke='{write_colour(hue['light'])}' stroke-width='{max(0.7, THICK * share):.2f}' "
        f"stroke-opacity='{0.35 + 0.45 * share:.2f}'{dash}><title>{escape(said)}</title></path>"
    )


def find_bow(start: Box, end: Box) -> float:
    """How far a line goes aside, so that one that is almost upright does not run through the nodes between."""
    distance = start.y - end.y
    if distance < 2 * ROW or abs(start.x - end.x) > TALL:
        return 0.0
    return min(54.0, distance / 6)


def draw_stubs(boxes: dict[str, Box]) -> str:
    """What comes to a node from parts that are left out, on the scale of the score."""
    scale = largest(box.node.relevance for box in boxes.values()) or 1.0
    return "".join(draw_stub(box, scale) for box in boxes.values() if abs(box.node.from_left_out) > 1e-3 * scale)


def draw_stub(box: Box, scale: float) -> str:
    share = min(1.0, abs(box.node.from_left_out) / scale)
    x, y = box.x + box.wide / 2 - 8, box.y + TALL / 2
    dash = "" if box.node.from_left_out > 0 else " stroke-dasharray='3 2'"
    return (
        f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y:.1f}' y2='{y + 12:.1f}' stroke='#a1a1aa' "
        f"stroke-width='{max(1.0, THICK * share):.2f}'{dash}>"
        f"<title>{escape(f'from parts that are left out: {box.node.from_left_out:+.4g}')}</title></line>"
    )


def draw_nodes(boxes: dict[str, Box]) -> str:
    parts = [box.node.relevance for box in boxes.values() if box.node.kind not in (SCORE, WORDS)]
    words = [box.node.relevance for box in boxes.values() if box.node.kind == WORDS]
    scales = {WORDS: largest(words), SCORE: largest([box.node.relevance for box in boxes.values()])}
    return "".join(draw_node(box, scales.get(box.node.kind, largest(parts))) for box in boxes.values())


def draw_node(box: Box, scale: float) -> str:
    node, tone = box.node, shade(box.node.relevance, scale)
    line = write_colour((POSITIVE if node.relevance >= 0 else NEGATIVE)["light"])
    dash = " stroke-dasharray='4 2'" if node.relevance < 0 else ""
    ground = write_colour(blend_colours((255, 255, 255), tone.background("light"), 0.75))
    return (
        f"<g data-item='{box.number}'><rect x='{box.x - box.wide / 2:.1f}' y='{box.y - TALL / 2:.1f}' "
        f"width='{box.wide:.1f}' height='{TALL}' rx='6' fill='{ground}' stroke='{line}' stroke-width='1.3'{dash}/>"
        f"<text x='{box.x:.1f}' y='{box.y + 4.5:.1f}' text-anchor='middle' font-size='13' fill='{INK}' {FONT}>"
        f"{escape(box.label)}</text><title>{escape('; '.join(describe_node(node)))}</title></g>"
    )


def describe_node(node: CircuitNode) -> Iterable[str]:
    yield f"{node_text(node)} {node.relevance:+.4g}"
    if node.kind != WORDS:
        yield f"biases {node.sources:+.4g}"
        yield f"from parts that are left out {node.from_left_out:+.4g}"
    if node.kind != SCORE:
        yield f"to parts that are left out {node.to_left_out:+.4g}"


def draw_foot(circuit: Circuit, words: set[str], drawn: int, height: float) -> str:
    """What is not in the drawing."""
    rest, hidden = circuit.left_out, len(circuit.words) - len(words)
    parts = [f"{drawn} of {len(circuit.edges)} edges", f"{say_count(rest.parts, 'part')} left out"]
    parts += [f"{say_count(hidden, 'word')} not drawn"] if hidden else []
    second = f"{hues()[0]} adds, {hues()[1]} and dashed takes away; grey stubs: from parts that are left out"
    lines = ("; ".join(parts), second)
    return "".join(
        f"<text x='{LEFT - 8}' y='{height - 30 + 17 * i:.0f}' font-size='12' fill='{SOFT}' {FONT}>{escape(line)}</text>"
        for i, line in enumerate(lines)
    )
