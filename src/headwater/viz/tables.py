"""Tables of text: what terminal and plain text lay out alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from .reading import decimals, with_sign


@dataclass(frozen=True)
class Table:
    """A title, the heads of its columns, rows of text. The first `left` columns hold words, the rest numbers.

    `names` is the column that holds modules by their dotted names, which may be shortened where room is short.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    left: int = 2
    names: int | None = None


def find_common_module(names: Sequence[str]) -> str:
    """The module that all these modules lie in, by its dotted name; empty where there is none."""
    paths = [name.split(".")[:-1] for name in names if name]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    prefix = ".".join(parts[0] for parts in shared)
    return prefix if len(names) > 1 and all(name.startswith(f"{prefix}.") for name in names) else ""


def number_rows(words: Sequence[tuple[str, ...]], amounts: Sequence[tuple[float, ...]]) -> list[tuple[str, ...]]:
    """Words and amounts as rows of text, all amounts with one precision."""
    places = decimals(amount for row in amounts for amount in row)
    return [(*w, *(with_sign(a, places) for a in row)) for w, row in zip(words, amounts, strict=True)]


def markdown(table: Table) -> list[str]:
    """A table as Markdown has it, without its title."""
    return markdown_rows(table.columns, table.rows)


def markdown_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head, *lines = ("| " + " | ".join(row) + " |" for row in (columns, *rows))
    return [head, "|" + "---|" * len(columns), *lines]


Named = Iterable[tuple[str, str]]


def method_tables(methods: Named, rules: Named, variants: Named, parameters: Named = ()) -> tuple[Table, ...]:
    """Names and summaries, without heads."""
    titled = {
        "methods": methods,
        "rules, to be combined as in lrp(ah+ln)": rules,
        "variants of attention, as in lrp(ah=half+ln+act+gate)": variants,
        "parameters, as in integrated-gradients(steps=64,baseline=zero)": parameters,
    }
    return tuple(Table(title, ("", ""), [*rows]) for title, rows in titled.items() if rows)
