"""A comparison: one row per method, the same tokens in each, and what every method's relevance adds up to.

Methods differ in unit and size, so every row has full colour at its own largest relevance, and says how large that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from headwater.results.comparison import Comparison
from headwater.results.explanation import Explanation

from . import html
from .colour import Shade, Theme, largest, shade
from .plain import align_columns
from .reading import (
    TokenCell,
    by_part,
    closing_line,
    decimals,
    headline,
    source_facts,
    token_cells,
    units_name,
    with_sign,
)
from .sums import ledger_sum
from .tables import Table, number_rows
from .terminal import facts_line, patch_rows, style_of, verdict_line

NARROW = 96
PATCHES = 42  # characters that a row of patches may take
SCALE = "each row has full colour at its own largest relevance"
SUMS = ("largest", "sum", "score")


@dataclass(frozen=True)
class Line:
    """A method's row as it is shown: the tokens in their order, `largest`, `sum` and `score` as numbers.

    `unit` says what a cell is, a token or a word.
    """

    explanation: Explanation
    cells: tuple[TokenCell, ...]
    unit: str

    @property
    def scale(self) -> float:
        return largest(cell.relevance for cell in self.cells)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(cell.text for cell in self.cells)

    @property
    def numbers(self) -> tuple[str, str, str]:
        """Largest |relevance|, sum and score, each with digits of its own: methods differ by orders of magnitude."""
        ledger = self.explanation.ledger
        size, total, score = (with_sign(a, decimals([a], digits=3)) for a in (self.scale, ledger.inputs, ledger.score))
        return size.strip("+ "), total, score

    @property
    def sum(self) -> str:
        """Its lines as a sum."""
        return ledger_sum(self.explanation.ledger, units_name(self.explanation, self.unit == "word"))

    @property
    def state(self) -> str:
        return closing_line(self.explanation.ledger).partition(":")[0]


def method_lines(comparison: Comparison, words: bool = False) -> list[Line]:
    return [Line(e, tuple(token_cells(e, words)), _unit(e, words)) for e in comparison.explanations]


def _unit(explanation: Explanation, words: bool) -> str:
    return "patch" if explanation.image is not None else "word" if words else "token"


def plural(shown: Sequence[Line]) -> str:
    """The head of the column that holds the coloured text."""
    unit = shown[0].unit if shown else "token"
    return "patches" if unit == "patch" else f"{unit}s"


def facts_of_all(comparison: Comparison) -> list[tuple[str, str]]:
    """What all rows share."""
    return [fact for e in comparison.explanations[:1] for fact in headline(e) if fact[0] != "method"]


# terminal


def render(comparison: Comparison, *, words: bool = False, theme: Theme = "dark") -> RenderableType:
    """A line of coloured tokens for every method, the size of its full colour, and whether its ledger closes."""
    shown: list[RenderableType] = [
        *([verdict_line(comparison.verdict().phrases)] if comparison.explanations else []),
        facts_line(facts_of_all(comparison)),
        MethodRows(tuple(method_lines(comparison, words)), theme),
    ]
    for name, reason in comparison.refused:
        shown.append(Text.assemble((name, "bold"), (" gave no explanation: ", "dim"), reason))
    return Group(*shown)


@dataclass(frozen=True)
class MethodRows:
    """The rows as a table; where room is short, the numbers of a row stand below its tokens."""

    lines: tuple[Line, ...]
    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < NARROW:
            yield from (Text(), self._stack(), Key(self.theme))
        else:
            yield from (self._grid(), Padding(Key(self.theme), (0, 0, 0, 1)))

    def _grid(self) -> RenderableType:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        grid.add_column("method", no_wrap=True)
        grid.add_column(plural(self.lines))
        for name in ("full colour", "sum", "score"):
            grid.add_column(name, justify="right", no_wrap=True)
        grid.add_column("ledger", no_wrap=True)
        for i, line in enumerate(self.lines):
            size, total, score = line.numbers
            body = Group(Heat(line, self.theme), Text(line.sum, "dim"))
            heat = Padding(body, (0, 0, 0 if i == len(self.lines) - 1 else 1, 0))
            state = Text(line.state, "" if line.explanation.ledger.closed else "bold")
            grid.add_row(Text(line.explanation.method, "bold"), heat, f"±{size}", total, score, state)
        return grid

    def _stack(self) -> RenderableType:
        grid = Grid.grid(padding=(0, 2, 0, 0))
        for line in self.lines:
            size, total, score = (number.strip() for number in line.numbers)
            said = line.sum if line.explanation.ledger.closed else f"sum {total}, score {score}"
            below = Text(f"full colour ±{size}, {said}, {line.state}", "dim")
            grid.add_row(Text(line.explanation.method, "bold"), Group(Heat(line, self.theme), below, Text()))
        return grid


@dataclass(frozen=True)
class Heat:
    """The running text, every token on the ground of its relevance. Wraps between words."""

    line: Line
    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._texts(console.color_system)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Group(*self._texts(None)))

    def _texts(self, colours: str | None) -> Iterable[Text]:
        if self.line.explanation.image is not None:
            yield from patch_rows(self.line.explanation, self.line.scale, self.theme, colours, PATCHES)
            return
        for part, group in by_part(self.line.cells):
            if part:
                yield Text(part, style="dim")
            text = Text()
            for i, cell in enumerate(group):
                style = style_of(shade(cell.relevance, self.line.scale), self.theme, colours)
                text.append(" " if i and cell.gap else "")
                text.append(cell.text, style + Style(dim=cell.special and style.color is None))
            yield text


@dataclass(frozen=True)
class Key:
    """What the two colours mean, and how large full colour is."""

    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Text()
        for sign, meaning in ((-1, "takes away"), (1, "adds")):
            style = style_of(Shade(sign, 1.0), self.theme, console.color_system)
            ground = style + Style(underline=False)
            text.append(" ", ground).append(meaning, style).append(" ", ground).append("  ")
        yield text.append(SCALE, style="dim")


# plain text


def plain(comparison: Comparison, *, words: bool = False) -> str:
    """A line for every token with what each method gives it, then a line for every method with its sums."""
    shown = method_lines(comparison, words)
    first = [("verdict", str(comparison.verdict())), *source_facts(comparison.explanations[0])] if shown else []
    said = [f"{name}: {value}" for name, value in [*first, *facts_of_all(comparison)]]
    tables = [*(relevance_table(group) for group in alike(shown)), *([sums_table(shown)] if shown else [])]
    for table in tables:
        said += ["", f"{table.title}:", *(f"  {row}" for row in align_columns(table))]
    said += [f"  {line.explanation.method}: {line.sum}" for line in shown]
    if comparison.refused:
        said += ["", "gave no explanation:", *(f"  {name}: {reason}" for name, reason in comparison.refused)]
    return "\n".join(said).lstrip("\n")


def alike(shown: Sequence[Line]) -> list[list[Line]]:
    """Lines by their tokens: one group for a text; for a bare tensor each method has largest entries of its own."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in shown:
        groups.setdefault(line.names, []).append(line)
    return list(groups.values())


def relevance_table(group: Sequence[Line]) -> Table:
    """Tokens by methods. Every method has digits of its own, enough to read off its largest number."""
    columns = [[number for (number,) in number_rows([()] * len(line.cells), _column(line))] for line in group]
    rows = [(name, *numbers) for name, *numbers in zip(group[0].names, *columns, strict=True)]
    return Table("relevance", (group[0].unit, *(line.explanation.method for line in group)), rows, left=1)


def _column(line: Line) -> list[tuple[float, ...]]:
    return [(cell.relevance,) for cell in line.cells]


def sums_table(shown: Sequence[Line]) -> Table:
    rows = [(line.explanation.method, line.state, *line.numbers) for line in shown]
    return Table("what each adds up to", ("method", "ledger", *SUMS), rows)


# HTML


def page(
    comparison: Comparison,
    *,
    words: bool = False,
    title: str = "Headwater",
    picture: str | None = None,
    more: str = "",
    before: str = "",
) -> str:
    """The whole page: the table of heatmaps, every number in a table that folds away, and what gave none.

    Of an image, `picture` is the sheet that `viz.images` draws, in place of heatmaps. `before` is HTML that comes above
    the rows, `more` what comes below them.
    """
    shown = method_lines(comparison, words)
    maps = _heatmaps(shown) if picture is None else f"{html.frame_sheet(picture)}\n{_sums(shown)}"
    ledgers = "".join(_ledger(line, is_open=i == 0) for i, line in enumerate(shown))
    parts = (
        _heading(comparison, picture is not None),
        before,
        maps,
        more,
        *map(_number_table, alike(shown)),
        ledgers,
        _refusals(comparison),
    )
    made = "".join(html.describe_making(line.explanation) for line in shown[:1])
    body = "\n".join(part for part in parts if part)
    drawn = picture is not None
    return html.document(f"<article>\n{body}\n{made}</article>", title=title, style=STYLE, images=drawn)


def _heading(comparison: Comparison, drawn: bool = False) -> str:
    said = html.facts_list(facts_of_all(comparison))
    scale = f"{SCALE.replace('row', 'picture')}, said above it" if drawn else f"{SCALE}, said below it"
    told = html.verdict_paragraph(comparison.verdict().phrases) if comparison.explanations else ""
    return f"{told}<h2>What each method says</h2>\n{said}\n<p class='scale'>{scale}</p>"


def _heatmaps(shown: Sequence[Line]) -> str:
    names = {"method": "", plural(shown): ' class="heat"', "ledger": ""}  # a row ends in its sum
    heads = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in names.items())
    return _scrolling("heatmaps", heads, map(_heat_row, shown)) if shown else ""


def _heat_row(line: Line) -> str:
    size = line.numbers[0].strip()
    ledger, text = line.explanation.ledger, html.running_text(line.cells)
    state = (
        f'<td class="{"closed" if ledger.closed else "open"}" title="{escape(closing_line(ledger))}">{line.state}</td>'
    )
    return (
        f'<tr><th scope="row">{escape(line.explanation.method)}</th>'
        f'<td class="heat">{text}<p class="scale">full colour: ±{size}; {escape(line.sum)}</p></td>{state}</tr>'
    )


def _sums(shown: Sequence[Line]) -> str:
    names = ("method", "full colour", "sum", "score", "ledger")
    rows = []
    for line in shown:
        size, total, score = (number.strip() for number in line.numbers)
        cells = "".join(f"<td>{text}</td>" for text in (f"±{size}", total, score, line.state))
        rows.append(f'<tr><th scope="row">{escape(line.explanation.method)}</th>{cells}</tr>')
    return _scrolling("sums", "".join(f'<th scope="col">{name}</th>' for name in names), rows)


def _number_table(group: Sequence[Line]) -> str:
    table = relevance_table(group)
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = (
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{number.strip()}</td>" for number in numbers)}</tr>'
        for name, *numbers in table.rows
    )
    inside = _scrolling("numbers", heads, rows)
    return f"<details><summary>every {table.columns[0]} with its numbers</summary>{inside}</details>"


def _ledger(line: Line, is_open: bool) -> str:
    method, ledger = line.explanation.method, line.explanation.ledger
    inside = html.ledger_section(ledger, f"ledger of {method}", units_name(line.explanation, line.unit == "word"))
    state = " open" if is_open else ""
    return f"<details{state}><summary>ledger of {escape(method)}: {line.state}</summary>{inside}</details>"


def _scrolling(name: str, heads: str, rows: Iterable[str]) -> str:
    """A table that scrolls sideways in its own frame, by keyboard too, while its first column stays."""
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _refusals(comparison: Comparison) -> str:
    if not comparison.refused:
        return ""
    said = "".join(f"<li><b>{escape(name)}</b>: {escape(reason)}</li>" for name, reason in comparison.refused)
    return f"<h3>Gave no explanation</h3>\n<ul>{said}</ul>"


STYLE = """
main { max-width: 72rem; }
.wide { overflow-x: auto; } .wide table { min-width: 100%; }
.wide th, .wide td { padding: .25rem 1rem .25rem 0; vertical-align: top; }
.wide td, .wide thead th { text-align: right; } .wide tr > :last-child { padding-right: .25rem; }
.wide tbody tr { border-top: 1px solid var(--line); }
.wide tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--ground); text-align: left;
  overflow-wrap: normal; white-space: nowrap; }
.wide tr > .heat { text-align: left; white-space: normal; min-width: min(26rem, 62vw); width: 100%;
  position: relative; }
.heat .text { font-size: 1rem; line-height: 1.8; margin: 0; } .heat .scale { margin: 0; }
"""
