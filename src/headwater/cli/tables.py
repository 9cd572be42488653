"""Results that are a few lines and some tables: JSON, a drawing on a terminal, plain text in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .screen import print_json, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.viz.tables import Table


class Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


def print_tables(
    found: Result, summary: Callable[[], tuple[Sequence[str], Sequence[Table]]], as_json: bool, plain: bool
) -> None:
    """`summary` gives the lines before the tables, and the tables."""
    if as_json:
        from headwater.evaluation.files import to_json as plain_types

        print_json(plain_types(found.to_dict()))
        return

    def write() -> str:
        from headwater.viz.plain import tables_as_text

        return tables_as_text(*summary())

    show(lambda _: draw_tables(*summary()), write, plain)


def draw_tables(lines: Sequence[str], tables: Sequence[Table]) -> RenderableType:
    """The first line is a heading, the others are what it found; the best row of a table is bold."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    parts: list[RenderableType] = [Text(f" {line}", style="bold" if i else "dim") for i, line in enumerate(lines)]
    for table in tables:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(table.columns):
            side = "left" if i < table.left else "right"
            grid.add_column(column, justify=side, style="dim" if column == "95 %" else "")  # type: ignore[arg-type]
        for row in table.rows:
            grid.add_row(*map(Text, row), style="bold" if "best" in row else "")
        parts += [Text(f"\n {table.title}", style="bold"), grid]
        parts += [Text(f" {table.note}", style="dim")] if table.note else []
    return Group(*parts)
