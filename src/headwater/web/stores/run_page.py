"""A run as one HTML page: the words that matter most over all, and the rows with the largest scores."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...viz.html import amounts, document, facts_list
from ...viz.reading import decimals, visible, with_sign
from .interface import Query, Sheet, Words, WordTotal

WORDS, ROWS = 40, 50


def run_page(name: str, facts: Sequence[tuple[str, str]], words: Words, sheet: Sheet) -> str:
    best, least = words.words[:WORDS], list(reversed(words.words[-WORDS:]))
    both = "".join(
        f"<div><h3>{title}</h3>{word_amounts(found)}</div>"
        for title, found in (("Add most over all", best), ("Take away most", least))
        if found
    )
    body = (
        f"<article><h2>{escape(name)}</h2>{facts_list(facts)}"
        f'<h3>Words, over {words.rows:,} rows</h3><div class="pair">{both}</div>'
        f"{row_table(sheet, True, 'Largest scores')}{row_table(sheet, False, 'Smallest scores')}</article>"
    )
    return document(body, title="Headwater", style=STYLE)


def word_amounts(found: Sequence[WordTotal]) -> str:
    rows = [(f"{visible(word.text)} ({word.count})", word.total) for word in found]
    total = sum(amount for _, amount in rows)
    return amounts(("word (how often)", "relevance"), rows, ("sum of these", total), decimals(a for _, a in rows))


def row_table(sheet: Sheet, down: bool, title: str) -> str:
    if not len(sheet) or "score" not in sheet.columns:
        return ""
    names = list(sheet.columns)
    found = sheet.find(Query(sort="score", down=down, count=ROWS)).rows
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    rows = "".join("<tr>" + "".join(f"<td>{cell_html(cell)}</td>" for cell in row) + "</tr>" for row in found)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>{title}</summary><div class="wide">{table}</div></details>'


def cell_html(cell: object) -> str:
    if isinstance(cell, float):
        return with_sign(cell, 3).strip()
    return escape(visible(str(cell))) if cell not in (None, "") else ""


STYLE = """
main { max-width: 80rem; } .wide { overflow-x: auto; } .wide td { text-align: left; padding-right: 1rem;
  white-space: normal; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 2rem; }
"""
