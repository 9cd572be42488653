"""Faithfulness to a language model as tables of text."""

from __future__ import annotations

from ...plurals import say_count
from ...viz.tables import Table
from ..statistics import Difference, MeanEstimate
from ..summary import format_interval
from .faithfulness import Faithfulness, TableColumn, present


def faithfulness_headline(found: Faithfulness) -> str:
    rules = ", ".join(map(str, found.protocols))
    return f"{found.made_with['model']}, half {found.about['half']}, protocol {rules}"


def faithfulness_tables(found: Faithfulness) -> list[Table]:
    """One per set, then how the best method stands to the references."""
    sets = dict.fromkeys((column.protocol, column.data) for column in found.columns)
    tables = [set_table(found, [c for c in found.columns if (c.protocol, c.data) == one]) for one in sets]
    if found.best is not None and len(found.methods) > 1:
        tables.append(reference_table(found, found.best))
    return tables


def set_table(found: Faithfulness, columns: list[TableColumn]) -> Table:
    """Means with intervals; a star where a method is first, or level with the first."""
    first = columns[0]
    heads = [f"{c.column.name}{'' if c.column.better == 'higher' else ', lower is better'}" for c in columns]
    rows = []
    for method in first.values:
        cost = found.cost(method)
        cells = [write_cell(column, method) for column in columns]
        rows.append((method, *cells, "—" if cost is None else f"{cost:.1f}"))
    title = f"{first.data}, {say_count(first.prompts, 'prompt')}, {first.protocol}"
    note = "means with 95 % intervals over prompts; * first, or level with the first"
    return Table(title, ("method", *heads, "x forward"), rows, note, left=1)


def write_cell(column: TableColumn, method: str) -> str:
    star = "*" if method in column.leaders else " "
    return write_estimate(column.estimate(method), column.column.decimals, "") + star


def reference_table(found: Faithfulness, method: str) -> Table:
    """A method minus the references, prompt by prompt; minus all others where none of the references was measured."""
    own = [column for column in found.columns if method in column.values]
    others = list(dict.fromkeys(other for column in own for other in present(column, method)))
    rows = []
    for column in own:
        here = present(column, method)
        cells = [write_difference(column, method, o) if o in here else "—" for o in others]
        rows.append((column.title, *cells))
    return Table(f"{method} minus others, prompt by prompt", ("", *(f"minus {o}" for o in others)), rows, left=1)


def write_difference(column: TableColumn, method: str, other: str) -> str:
    found: Difference = column.difference(method, other)
    return write_estimate(MeanEstimate(found.value, found.low, found.high), column.column.decimals, "+")


def write_estimate(e: MeanEstimate, places: int, sign: str) -> str:
    return f"{e.value:{sign}.{places}f} ({format_interval(e, f'{sign}.{places}f')})"
