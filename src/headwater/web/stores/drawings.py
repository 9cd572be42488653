"""Parts of a result as SVG: tables as a terminal would show them, curves as charts."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ...errors import UnknownName
from ...evaluation.charts import Series, chart_sheet, line_chart
from ...store.words import WordTotal
from ...viz.reading import visible, with_sign
from ...viz.svg import picture
from .interface import Query, Store
from .run_page import CLASSES, split_words

PARTS = ("rows", "words", "curves")
WIDTH = 130  # of a table, in characters
LONG = 90  # characters of a text in it


def draw_part(store: Store, part: str, query: Query) -> str:
    if part == "rows":
        return draw_rows(store, query)
    if part == "words":
        return draw_words(store, query.count)
    if part == "curves":
        return draw_curves(store)
    raise UnknownName("part", part, PARTS)


def draw_rows(store: Store, query: Query) -> str:
    """The rows that the query finds."""
    found = store.sheet()
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=visible(store.name), title_justify="left")
    for name in found.columns:
        grid.add_column(Text(visible(name)), overflow="fold", justify="left" if found.is_text(name) else "right")
    for row in found.find(query).rows:
        grid.add_row(*(Text(cell_text(cell)) for cell in row))
    return picture(grid, width=WIDTH + 12 * len(found.columns), theme="light", frame=False)


def cell_text(cell: object) -> str:
    if isinstance(cell, float):
        return with_sign(cell, 3).strip()
    text = "" if cell in (None, "") else visible(str(cell))
    return text if len(text) <= LONG else f"{text[:LONG]} …"


def draw_words(store: Store, count: int) -> str:
    """For each class the words that add most, and those that take away most."""
    tables = [
        draw_word_table(f"{visible(found.target)}: {title}", some)
        for found in store.words()[:CLASSES]
        for title, some in zip(("add most", "take away most"), split_words(found.words, count), strict=True)
    ]
    return picture(Group(*tables), width=80, theme="light", frame=False)


def draw_word_table(title: str, found: list[WordTotal]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    grid.add_column("word", overflow="fold")
    for name in ("times", "mean", "in all"):
        grid.add_column(name, justify="right")
    for word in found:
        grid.add_row(
            Text(visible(word.text)), str(word.count), with_sign(word.mean).strip(), with_sign(word.total).strip()
        )
    return grid


def draw_curves(store: Store) -> str:
    """The charts of all measures."""
    found = store.curves()
    charts = [
        (
            f"{one.name}: a {one.better} curve is better",
            line_chart([Series(s.method, one.fractions, s.mean) for s in one.series], *one.axes, one.name),
        )
        for one in found
    ]
    return chart_sheet(charts, [s.method for s in found[0].series])
