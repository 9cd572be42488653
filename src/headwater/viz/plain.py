"""Plain text: for pipes, logs and screen readers. One fact a line, signs in front, no colour and no drawing."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.results.audit import Audit
from headwater.results.explanation import Explanation
from headwater.results.ledger import Ledger

from ..plurals import say_count
from .audits import make_tables
from .reading import (
    SHOWN_ENTRIES,
    closing_line,
    decimals,
    headline,
    ledger_rows,
    source_facts,
    token_cells,
    units_name,
    with_sign,
)
from .sums import large_lines, ledger_sum, round_amounts
from .tables import Named, Table, method_tables

WIDEST = 16  # columns of numbers that a line can hold


def plain(explanation: Explanation, *, full: bool = False, words: bool = False) -> str:
    """What was explained, a line for every token (or word) with its relevance, and the ledger."""
    shown = token_cells(explanation, words)
    places = decimals(cell.relevance for cell in shown)
    width = max((len(cell.text) for cell in shown), default=0)
    said = [("verdict", str(explanation.verdict())), *source_facts(explanation), *headline(explanation)]
    lines = [f"{name}: {value}" for name, value in said]
    ledger = ledger_lines(explanation.ledger, full, units_name(explanation, words))
    if explanation.image is not None:
        return "\n".join([*lines, *patch_lines(explanation), "", *ledger])
    part = ""
    for cell in shown:
        if cell.part != part:
            part = cell.part
            lines.append(f"{part}:")
        lines.append(f"  {cell.text.ljust(width)}  {with_sign(cell.relevance, places)}")
    return "\n".join([*lines, "", *ledger])


def patch_lines(explanation: Explanation) -> list[str]:
    """An image's patches as they lie in it; the largest of very many, each by its row and column."""
    rows = explanation.patches.tolist()
    places = decimals((value for row in rows for value in row), digits=3)
    if len(rows[0]) <= WIDEST:
        return [
            f"patches, {say_count(len(rows), 'row')} of {len(rows[0])}:",
            *(_number_row(row, places) for row in rows),
        ]
    shown = sorted(token_cells(explanation), key=lambda cell: -abs(cell.relevance))[:SHOWN_ENTRIES]
    head = f"patches, {say_count(len(rows), 'row')} of {len(rows[0])}, the largest {len(shown)} by row and column:"
    return [head, *(f"  {cell.text}  {with_sign(cell.relevance, places)}" for cell in shown)]


def _number_row(row: Sequence[float], places: int) -> str:
    shown = [with_sign(value, places) for value in row]
    return "  " + "  ".join(number.rjust(places + 4) for number in shown)


def ledger_lines(ledger: Ledger, full: bool = False, unit: str = "inputs") -> list[str]:
    """The lines, their sum in a line, whether it closes, and what its large lines are."""
    rows = ledger_rows(ledger, full)
    places = decimals([ledger.score, *(row.amount for row in rows)])
    width = max(len(row.name) + 2 * row.depth for row in rows)
    amounts = [with_sign(amount, places) for amount in round_amounts(rows, ledger.score, places)]
    body = [
        f"  {('  ' * row.depth + row.name).ljust(width)}  {amount}" for row, amount in zip(rows, amounts, strict=True)
    ]
    score = f"  {'score'.ljust(width)}  {with_sign(ledger.score, places)}"
    said = [f"  ({name}: {meaning})" for name, meaning in large_lines(ledger)]
    return ["ledger:", *body, score, f"  {ledger_sum(ledger, unit)}", f"  {closing_line(ledger)}", *said]


def plain_audit(audit: Audit, *, full: bool = False) -> str:
    """The audit's tables, one after another."""
    explanation = audit.explanation
    lines = [f"{name}: {value}" for name, value in [*source_facts(explanation), *headline(explanation)]]
    for table in make_tables(audit, full):
        lines += ["", f"{table.title}:", *(f"  {line}" for line in align_columns(table) if table.rows)]
        if table.note:
            lines.append(f"  ({table.note})")
    return "\n".join([*lines, "", *ledger_lines(explanation.ledger)])


def plain_methods(methods: Named, rules: Named, variants: Named, parameters: Named = ()) -> str:
    """Every method, rule, variant of attention and parameter with its summary."""
    found = method_tables(methods, rules, variants, parameters)
    return "\n".join(
        line for table in found for line in (f"{table.title}:", *(f"  {row}" for row in align_columns(table)))
    )


def align_columns(table: Table) -> list[str]:
    """The rows of a table, columns under each other: the first to the left, numbers to the right."""
    rows: list[Sequence[str]] = [table.columns, *table.rows] if any(table.columns) else [*table.rows]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(table.columns))]
    return ["  ".join(_pad(row, widths, i, table.left) for i in range(len(row))).rstrip() for row in rows]


def _pad(row: Sequence[str], widths: Sequence[int], i: int, left: int) -> str:
    return row[i].ljust(widths[i]) if i < left else row[i].rjust(widths[i])


def tables_as_text(lines: Sequence[str], tables: Sequence[Table]) -> str:
    """Some lines, then every table under its title."""
    said = list(lines)
    for table in tables:
        said += ["", f"{table.title}:", *(f"  {line}" for line in align_columns(table))]
        said += [f"  ({table.note})"] if table.note else []
    return "\n".join(said)
