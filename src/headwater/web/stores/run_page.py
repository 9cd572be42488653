"""A run as one HTML page: the words that matter most for each class, and the rows with the largest scores."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ...plurals import say_count
from ...store.words import WordTotal, WordTotals
from ...viz.html import document, facts_list
from ...viz.reading import decimals, visible, with_sign
from ...viz.sums import round_to_sum
from .interface import Query, Sheet

WORDS, ROWS, CLASSES = 40, 50, 12
PARTS = ("inputs", "biases", "constants", "cut_off", "held", "readout", "unaccounted")  # of a score: they add up to it
PLACES = 3


def run_page(name: str, facts: Sequence[tuple[str, str]], words: Sequence[WordTotals], sheet: Sheet) -> str:
    body = (
        f"<article><h2>{escape(name)}</h2>{facts_list(facts)}{''.join(map(class_words, words[:CLASSES]))}"
        f"{row_table(sheet, True, 'Largest scores')}{row_table(sheet, False, 'Smallest scores')}</article>"
    )
    return document(body, title="Headwater", style=STYLE)


def class_words(found: WordTotals) -> str:
    """The words of the rows that explain one class."""
    positive, negative = split_words(found.words, WORDS)
    both = "".join(
        f"<div><h4>{title}</h4>{word_table(some)}</div>"
        for title, some in (("Add most", positive), ("Take away most", negative))
        if some
    )
    signs = f"<details><summary>punctuation</summary>{word_table(found.punctuation)}</details>"
    return (
        f"<h3>Words for {escape(visible(found.target))}, over {say_count(found.rows, 'row')}</h3>"
        f'<div class="pair">{both}</div>{signs if found.punctuation else ""}'
    )


def split_words(words: Sequence[WordTotal], count: int) -> tuple[list[WordTotal], list[WordTotal]]:
    """Those that add most, and those that take away most, the largest first."""
    adds, takes = [w for w in words if w.total > 0], [w for w in words if w.total < 0]
    return adds[:count], takes[::-1][:count]


def word_table(found: Sequence[WordTotal]) -> str:
    places = decimals((word.total for word in found), digits=4)
    rows = "".join(
        f'<tr><th scope="row">{escape(visible(word.text))}</th><td>{word.count}</td>'
        f"<td>{with_sign(word.mean, places).strip()}</td><td>{with_sign(word.total, places).strip()}</td></tr>"
        for word in found
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("word", "times", "mean", "in all"))
    return f'<table class="counted"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def row_table(sheet: Sheet, down: bool, title: str) -> str:
    if not len(sheet) or "score" not in sheet.columns:
        return ""
    names = list(sheet.columns)
    found = sheet.find(Query(sort="score", down=down, count=ROWS)).rows
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = [round_row(dict(zip(names, row, strict=True))) for row in found]
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell_html(cell)}</td>" for cell in line.values()) + "</tr>" for line in lines
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>{title}</summary><div class="wide">{table}</div></details>'


def round_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its parts of the score rounded such that they add up to it as they are shown."""
    names = [name for name in PARTS if name in row]
    if row["score"] is None or any(row[name] is None for name in names):
        return row
    return row | dict(zip(names, round_to_sum([row[name] for name in names], row["score"], PLACES), strict=True))


def cell_html(cell: object) -> str:
    if isinstance(cell, float):
        return with_sign(cell, PLACES).strip()
    return escape(visible(str(cell))) if cell not in (None, "") else ""


STYLE = """
main { max-width: 80rem; } .wide { overflow-x: auto; } .wide td { text-align: left; padding-right: 1rem;
  white-space: normal; }
.counted td, .counted th[scope=col] + th { text-align: right; padding-right: 1rem; } h4 { margin: .5rem 0 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 2rem; }
"""
