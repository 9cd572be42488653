"""The terminal: tokens on coloured ground with their numbers, the ledger and the audit as tables.

Colour is never the only sign: a token that takes away is underlined, and its number has a minus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from headwater.results.audit import Audit
from headwater.results.explanation import Explanation
from headwater.results.ledger import Ledger
from headwater.results.verdict import Phrase

from .audits import make_tables
from .colour import INK, Shade, Theme, largest, shade
from .reading import (
    TokenCell,
    by_part,
    closing_line,
    decimals,
    headline,
    ledger_rows,
    token_cells,
    units_name,
    with_sign,
)
from .sums import large_lines, ledger_sum, round_amounts
from .tables import Named, Table, find_common_module, method_tables

NUMBERED = 60
LEAST_VISIBLE = 0.02
LEAST_SIGNED = 0.05  # of full colour: a patch that is fainter has no sign in it
FEW = ("standard", "windows")


def render(
    explanation: Explanation, *, full: bool = False, words: bool = False, theme: Theme = "dark"
) -> RenderableType:
    """The text with every token coloured by its relevance, the scale, and the ledger."""
    shown = token_cells(explanation, words)
    scale = largest(cell.relevance for cell in shown)
    body = (
        TokenLines(tuple(shown), scale, theme) if explanation.image is None else PatchTable(explanation, scale, theme)
    )
    return Group(
        verdict_line(explanation.verdict().phrases),
        facts_line(headline(explanation)),
        Text(),
        Padding(body, (0, 0, 0, 2)),
        Padding(ledger_table(explanation.ledger, full, units_name(explanation, words)), (0, 0, 0, 2)),
    )


def render_audit(audit: Audit, *, full: bool = False) -> RenderableType:
    """What was explained, and the audit's tables."""
    grids: list[RenderableType] = [facts_line(headline(audit.explanation))]
    for table in make_tables(audit, full):
        grids += [Text(), Padding(_with_title(table), (0, 0, 0, 2))]
    return Group(*grids, Text(), Padding(ledger_table(audit.explanation.ledger), (0, 0, 0, 2)))


def render_methods(methods: Named, rules: Named, variants: Named, parameters: Named = ()) -> RenderableType:
    """Every method, rule, variant of attention and parameter with its summary."""
    return Group(
        *(Padding(_with_title(table), (0, 0, 1, 0)) for table in method_tables(methods, rules, variants, parameters))
    )


@dataclass(frozen=True)
class TokenLines:
    """Tokens side by side, wrapped at the terminal's width, each with its number below it where there are few."""

    cells: tuple[TokenCell, ...]
    scale: float
    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers, colours = len(self.cells) <= NUMBERED, console.color_system
        places = decimals((cell.relevance for cell in self.cells), digits=3)
        for part, group in by_part(self.cells):
            if part:
                yield Text(part, style="dim")
            boxes = [self._box(cell, places, numbers, colours) for cell in group]
            for line in _wrap(boxes, max(options.max_width, 20)):
                yield from _stack(line, numbers)
        if not numbers:
            yield Text()
        yield colour_legend(self.scale, self.theme, colours)

    def _box(self, cell: TokenCell, places: int, numbers: bool, colours: str | None) -> _Box:
        number = with_sign(cell.relevance, places) if numbers else ""
        style = style_of(shade(cell.relevance, self.scale), self.theme, colours)
        return _Box(cell.text, number, style + Style(dim=cell.special and style.color is None), cell.gap)


@dataclass(frozen=True)
class PatchTable:
    """The patches of an image as they lie in it, and the scale."""

    explanation: Explanation
    scale: float
    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from patch_rows(self.explanation, self.scale, self.theme, console.color_system, options.max_width)
        yield Text()
        yield colour_legend(self.scale, self.theme, console.color_system, "patch")


def patch_rows(explanation: Explanation, scale: float, theme: Theme, colours: str | None, width: int) -> Iterable[Text]:
    """A line for every row of patches: each on the ground of its relevance, with its sign where it can be seen."""
    rows = explanation.patches.tolist()
    wide = max(1, min(3, width // len(rows[0])))
    for row in rows:
        text = Text(no_wrap=True, overflow="crop")
        for value in row:
            colour = shade(value, scale)
            style = style_of(colour, theme, colours) + Style(underline=False)
            sign = {1: "+", 0: " ", -1: "-"}[colour.sign if colour.opacity >= LEAST_SIGNED else 0]
            text.append(sign.center(wide), style)
        yield text


@dataclass(frozen=True)
class _Box:
    text: str
    number: str
    style: Style
    gap: bool

    @property
    def width(self) -> int:
        return max(cell_len(self.text), cell_len(self.number))


def style_of(colour: Shade, theme: Theme, colours: str | None = "truecolor") -> Style:
    """Ground by relevance, ink that can be read on it, a line under what takes away.

    `colours` are those that the terminal has, as rich calls them. One with few has one red and one blue: ground for
    what is large, ink for what is small.
    """
    if colour.opacity < LEAST_VISIBLE:
        return Style()
    takes = colour.sign < 0
    if colours in FEW:
        name = "blue" if takes else "red"
        large = colour.opacity >= 0.5
        return Style(color="white" if large else name, bgcolor=name if large else None, bold=large, underline=takes)
    ink, ground = (find_colour(rgb, colours) for rgb in (INK[theme], colour.background(theme)))
    return Style(color=ink, bgcolor=ground, underline=takes)


def find_colour(rgb: tuple[int, int, int], colours: str | None) -> Color:
    """The colour as the terminal has it.

    rich would find it as well, but keeps the sum of two styles with the codes of the terminal that it was first
    written to: another one in the same process would get those.
    """
    colour = Color.from_rgb(*rgb)
    return colour.downgrade(ColorSystem.EIGHT_BIT) if colours == "256" else colour


def colour_legend(scale: float, theme: Theme, colours: str | None = "truecolor", unit: str = "token") -> Text:
    """The scale in words and in colour."""
    if scale == 0:
        return Text(f"no {unit} has any relevance", style="dim")
    full = with_sign(scale, decimals([scale], digits=3))
    text = Text().append("scale  ", style="dim")
    for sign, meaning in ((-1, "takes away"), (1, "adds")):
        style = style_of(Shade(sign, 1.0), theme, colours)
        ground = style + Style(underline=False)
        text.append(" ", ground).append(full if sign > 0 else full.replace("+", "-"), style).append(" ", ground)
        text.append(f"  {meaning}    ", style="dim")
    return text


def verdict_line(phrases: Iterable[Phrase]) -> Text:
    """A sentence; what it names of the input is bold."""
    return Text.assemble(*((part.text, "bold italic" if part.named else "") for part in phrases))


def ledger_table(ledger: Ledger, full: bool = False, unit: str = "inputs") -> RenderableType:
    """The lines that add up to the score, their sum in a line, whether it closes, and what its large lines are."""
    rows = ledger_rows(ledger, full)
    places = decimals([ledger.score, *(row.amount for row in rows)])
    amounts = round_amounts(rows, ledger.score, places)
    grid = Grid(box=box.SIMPLE, show_footer=True, pad_edge=False, show_header=False)
    grid.add_column("ledger", footer="score")
    grid.add_column("amount", footer=with_sign(ledger.score, places), justify="right")
    for row, amount in zip(rows, amounts, strict=True):
        style = "dim" if row.depth else ""
        grid.add_row(Text("  " * row.depth + row.name, style), Text(with_sign(amount, places), style))
    said = [Padding(Text(f"{name}: {meaning}", style="dim"), (0, 0, 0, 1)) for name, meaning in large_lines(ledger)]
    closing = Text(f" {closing_line(ledger)}", style="" if ledger.closed else "bold")
    return Group(grid, Text(f" {ledger_sum(ledger, unit)}"), closing, *said)


def facts_line(facts: Iterable[tuple[str, str]]) -> Text:
    """Facts side by side, their names dim."""
    line = Text()
    for name, value in facts:
        line.append(f"{name} ", style="dim").append(value, style="bold").append("   ")
    return line


def _with_title(table: Table) -> RenderableType:
    """Title, rows and note. A prefix that all module names share is written once, in the note."""
    prefix = find_common_module([row[table.names] for row in table.rows]) if table.names is not None else ""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(table.columns))
    for i, column in enumerate(table.columns):
        grid.add_column(column, justify="left" if i < table.left else "right", overflow="fold")
    for row in table.rows:
        shown = [entry.removeprefix(f"{prefix}.") if i == table.names else entry for i, entry in enumerate(row)]
        grid.add_row(*map(Text, shown))
    note = "; ".join(filter(None, (f"names within {prefix}" if prefix else "", table.note)))
    below = [Text(f" {note}", style="dim")] if note else []
    return Group(Text(f" {table.title}", style="bold"), *([grid] if table.rows else []), *below)


def _wrap(boxes: Iterable[_Box], width: int) -> Iterable[list[_Box]]:
    """Boxes by line. With numbers below them even sub-words of one word stand a space apart."""
    line: list[_Box] = []
    used = 0
    for cell in boxes:
        needed = cell.width + (1 if line and (cell.gap or cell.number) else 0)
        if line and used + needed > width:
            yield line
            line, used, needed = [], 0, cell.width
        line.append(cell)
        used += needed
    if line:
        yield line


def _stack(line: Sequence[_Box], numbers: bool) -> Iterable[Text]:
    tokens, below = Text(no_wrap=True, overflow="fold"), Text(no_wrap=True, overflow="fold", style="dim")
    for i, cell in enumerate(line):
        if i and (cell.gap or numbers):
            tokens.append(" ")
            below.append(" ")
        left, right = _margins(cell_len(cell.text), cell.width)
        ground = cell.style + Style(underline=False)
        tokens.append(" " * left, ground).append(cell.text, cell.style).append(" " * right, ground)
        left, right = _margins(cell_len(cell.number), cell.width)
        below.append(" " * left + cell.number + " " * right)
    yield tokens
    if numbers:
        yield below
        yield Text()


def _margins(length: int, width: int) -> tuple[int, int]:
    """The spaces left and right that centre something of this length."""
    left = (width - length) // 2
    return left, width - length - left
