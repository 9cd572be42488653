"""Generated text as a heatmap: a row for every output token, a column for everything that stands before it."""

from __future__ import annotations

from html import escape

from headwater.results.generation import Generation

from ..plurals import say_count
from .colour import largest, shade
from .reading import name_piece, with_sign

COLUMNS = 80  # the most that are drawn: those with most relevance, in their order
CELL, SIDE, LETTER = 18, 110, 5.4  # units: a cell, the names at the side, what a letter of a slanted name takes
LONG = 13  # characters of a name
FAINT = 0.05  # of full colour: what is fainter has no sign


def heatmap(generation: Generation) -> str:
    """The matrix as SVG inside its frame, and what is left out in words."""
    columns = pick_columns(generation)
    left = len(source_columns(generation)) - len(columns)
    said = say_count(left, "column with less relevance is left out", "columns with less relevance are left out")
    note = f'<p class="scale">{said}</p>' if left else ""
    return (
        f"<details open><summary>all of it: a row for every {generation.unit} of the output, a column for what came "
        f"before it</summary>{note}"
        f'<div class="wide" role="region" aria-label="heatmap" tabindex="0" style="overflow-x:auto">'
        f"{draw_matrix(generation, columns)}</div></details>"
    )


def source_columns(generation: Generation) -> list[int]:
    """What may have relevance: not what was set aside, nor the last token, from which nothing comes."""
    count = len(generation.pieces) - (generation.unit == "token")
    return [i for i in range(count) if not generation.aside[i]]


def pick_columns(generation: Generation) -> list[int]:
    """The columns with most relevance over all rows, in the order of the text."""
    sizes = generation.relevance.abs().sum(0).tolist()
    best = sorted(source_columns(generation), key=lambda i: -sizes[i])[:COLUMNS]
    return sorted(best)


def draw_matrix(generation: Generation, columns: list[int]) -> str:
    """Every row has full colour at its own largest relevance; a line in a cell says that it takes away."""
    top = round(18 + LETTER * max((len(short_name(generation.pieces[i])) for i in columns), default=0))
    width, height = SIDE + CELL * len(columns) + 30, top + CELL * len(generation) + 8
    heads = "".join(
        f'<text transform="translate({SIDE + CELL * k + 13} {top - 6}) rotate(-55)">{_name(generation, i)}</text>'
        for k, i in enumerate(columns)
    )
    rows = "".join(_row(generation, number, columns, top + CELL * number) for number in range(len(generation)))
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="relevance of every {generation.unit} for every {generation.unit} of the output" '
        f'style="font:11px system-ui,sans-serif;fill:currentColor">{heads}{rows}</svg>'
    )


def _row(generation: Generation, number: int, columns: list[int], y: int) -> str:
    values = [float(value) for value in generation.relevance[number].tolist()]
    scale = largest(values)
    cells = "".join(
        _cell(SIDE + CELL * k, y, values[i], scale, f"{_name(generation, i)} for {_output_name(generation, number)}")
        for k, i in enumerate(columns)
        if i < generation.prompt + number + (generation.unit != "token")
    )
    return f'<text x="{SIDE - 6}" y="{y + 13}" text-anchor="end">{_output_name(generation, number)}</text>{cells}'


def _cell(x: int, y: int, value: float, scale: float, name: str) -> str:
    colour = shade(value, scale)
    hue = "--take" if colour.sign < 0 else "--add"
    box = f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}"'
    minus = f'<path d="M{x + 5} {y + 8.5}h7" stroke="currentColor"/>'
    return (
        f'<g><title>{name}: {with_sign(value, 4).strip()}</title>{box} fill="none" stroke="rgb(var(--pen) / .12)"/>'
        f'{box} style="fill:rgb(var({hue}) / {colour.opacity:.3f})"/>'
        f"{minus if colour.sign < 0 and colour.opacity > FAINT else ''}</g>"
    )


def _name(generation: Generation, i: int) -> str:
    return escape(short_name(generation.pieces[i]))


def _output_name(generation: Generation, number: int) -> str:
    return escape(short_name(generation.output[number]))


def short_name(piece: str) -> str:
    text = name_piece(piece)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"
