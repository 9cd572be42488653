"""The parts of a model for one text as a page: the words, layers by heads in colour, the largest nodes, every cut."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from headwater.results.explanation import Explanation
from headwater.results.inside import CutLedger, Inside, NodeGroup

from .colour import SIGN_CLASS, largest, shade
from .html import describe_making, document, facts_list, running_text
from .reading import decimals, headline, token_cells, visible, with_sign
from .sums import abs_zero, round_to_sum, sum_places

TOP = 20  # nodes that are listed

STYLE = """
.grid { overflow-x: auto; } .grid td { min-width: 3.6rem; text-align: right; font-variant-numeric: tabular-nums; }
.cuts { list-style: none; padding: 0; } .cuts li { margin: .3rem 0; overflow-wrap: anywhere; }
"""


def page(explanation: Explanation, *, title: str = "Headwater", more: str = "") -> str:
    """The whole page. `more` is HTML that stands after the words: what replacing parts did."""
    inside = explanation.inside
    assert inside is not None
    shown = token_cells(explanation)
    body = (
        f'<article aria-labelledby="inside">\n<h2 id="inside">Inside the model</h2>\n'
        f"{facts_list(headline(explanation))}\n{running_text(shown)}\n{more}"
        f"{heads_table(inside)}{top_table(inside)}{cuts_list(inside)}{describe_making(explanation)}</article>"
    )
    return document(body, title=title, style=STYLE)


def patch_paragraph(nodes: Iterable[str], said: str) -> str:
    """What happened when these parts were replaced."""
    names = ", ".join(escape(visible(name)) for name in nodes)
    return f'<p class="verdict"><strong>{names}</strong> {escape(visible(said))}</p>\n'


def heads_table(inside: Inside) -> str:
    """A row for each attention, a cell for each head. Colour is not the only sign: each cell has its number."""
    groups = [group for group in inside.groups if group.kind == "heads"]
    if not groups:
        return ""
    values = [float(value) for group in groups for value in group.units]
    places, scale = decimals(values), largest(values)
    columns = max(len(group.units) for group in groups)
    names = "".join(f'<th scope="col">{number}</th>' for number in range(columns))
    rows = "".join(head_row(inside, group, scale, places) for group in groups)
    return (
        '<h3>Heads</h3><div class="grid" role="region" aria-label="heads" tabindex="0"><table>'
        f'<thead><tr><th scope="col">head</th>{names}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def head_row(inside: Inside, group: NodeGroup, scale: float, places: int) -> str:
    cells = "".join(draw_cell(float(value), scale, places) for value in group.units)
    return f'<tr><th scope="row">{escape(visible(inside.label(group)))}</th>{cells}</tr>'


def draw_cell(value: float, scale: float, places: int) -> str:
    colour = shade(value, scale)
    kind = SIGN_CLASS[colour.sign]
    said = with_sign(value, places).strip()
    return f'<td><span class="t {kind}" style="--o:{colour.opacity:.3f}">{said}</span></td>'


def top_table(inside: Inside) -> str:
    nodes = inside.top(TOP)
    places = decimals([node.relevance for node in nodes])
    rows = "".join(
        f'<tr><th scope="row">{escape(visible(node.name))}</th>'
        f"<td>{with_sign(node.relevance, places).strip()}</td></tr>"
        for node in nodes
    )
    heads = '<tr><th scope="col">node</th><th scope="col">relevance</th></tr>'
    return f"<h3>The largest nodes</h3><table><thead>{heads}</thead><tbody>{rows}</tbody></table>"


def cuts_list(inside: Inside) -> str:
    return f'<h3>Every cut adds up</h3><ul class="cuts">{"".join(cut_items(inside))}</ul>'


def cut_items(inside: Inside) -> Iterable[str]:
    for group in inside.groups:
        if group.ledger is not None:
            name = f"{inside.label(group)}, {group.kind}" if group.kind != "layers" else inside.label(group)
            yield f"<li>{escape(visible(name))}: {escape(cut_sum(group.ledger))}</li>"


def cut_sum(cut: CutLedger) -> str:
    """The cut in a line, rounded such that it adds up: `nodes 1.90 + by-passing 2.24 + biases so far -0.05 = 4.09`."""
    lines = {"nodes": cut.nodes, "by-passing": cut.by_passing, "biases so far": cut.sources, "readout": cut.readout}
    lines |= {"unaccounted": cut.unaccounted}
    places = sum_places(cut.score)
    shown = round_to_sum([*lines.values()], cut.score, places)
    terms = [f"{name} {part:.{places}f}" for name, part in zip(lines, shown, strict=True) if part or name == "nodes"]
    return f"{' + '.join(terms)} = {abs_zero(round(cut.score, places)):.{places}f}"
