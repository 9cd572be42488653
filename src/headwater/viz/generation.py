"""Generated text: a page on which a token of the output, pointed at, lights up what it came from; terminal and plain.

The page works by pointer, touch and keyboard. Without its script, or on paper, it shows the first output token's
sources in colour and every token's as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from headwater.results.generation import Contribution, Generation, sum_ledgers

from .bars import share_bars
from .colour import SIGN_CLASS, Theme, hues, largest, shade
from .html import amounts, describe_making, document, facts_list, ledger_section, verdict_paragraph
from .matrix import heatmap
from .reading import closing_line, decimals, name_piece, visible, with_sign
from .sums import large_lines, ledger_sum
from .terminal import facts_line, style_of, verdict_line

SHOWN = 8  # sources of an output token, in a list
FEW = 3  # and in a line
ROOMY = 100  # characters of a terminal that has room for other tokens, too
NAMES = {
    "logit": "logit",
    "advantage": "logit above the mean of all tokens",
    "logprob": "log-probability",
    "contrast": "logit minus another's",
}


def page(generation: Generation, *, title: str = "Headwater", tested: str = "") -> str:
    """The whole page: prompt and output as text, and for every output token what it came from, with its ledger.

    `tested` is HTML: what masking showed, where the explorer was asked for it.
    """
    first = _sources(generation, 0)
    output = "".join(_output(generation, number, first) for number in range(len(generation)))
    body = (
        f'<article aria-labelledby="answer">\n<h2 id="answer">{escape(visible(generation.text.strip()))}</h2>\n'
        f"{facts_list(generation_facts(generation))}\n"
        f'<p class="hint">Point at a {generation.unit} of the output, tap it, or reach it with Tab and the arrow keys: '
        "what it came from lights up. Enter or a tap keeps it.</p>\n"
        f"{_before(generation, first)}\n"
        f'<section class="said" aria-label="output"><b class="part">output</b> <p class="text">{output}</p></section>\n'
        f"{tested}{heatmap(generation)}\n"
        f'<div id="panels">{"".join(_panel(generation, number) for number in range(len(generation)))}</div>\n'
        f"{_whole(generation)}\n{describe_making(generation.explanation(0))}</article>"
    )
    return document(body, title=title, style=STYLE, script=SCRIPT)


def generation_facts(generation: Generation) -> list[tuple[str, str]]:
    """What was explained, and how."""
    found = [("score", NAMES[generation.score]), ("method", generation.method)]
    aside = [name_piece(piece) for piece, away in zip(generation.pieces, generation.aside, strict=True) if away]
    return [*found, *([("set aside", ", ".join(dict.fromkeys(aside)))] if aside else [])]


def _sources(generation: Generation, number: int) -> list[float]:
    """One number per token, zero for what comes later."""
    return [float(value) for value in generation.relevance[number].tolist()]


def _before(generation: Generation, values: Sequence[float]) -> str:
    """The prompt; in a chat every turn under its role."""
    parts = []
    scale = largest(values)
    for role, group in groupby(range(generation.prompt), key=lambda i: generation.roles[i]):
        tokens = "".join(_source_token(generation, i, values[i], scale) for i in group)
        parts.append(
            f'<section class="said {"template" if role in ("template", "start") else "turn"}" '
            f'aria-label="{escape(role)}"><b class="part">{escape(role)}</b> <p class="text">{tokens}</p></section>'
        )
    return "\n".join(parts)


def _source_token(generation: Generation, i: int, value: float, scale: float) -> str:
    return f"{_space(generation.pieces[i])}<span {_looks(generation, i, value, scale)}>{_words(generation, i)}</span>"


def _output(generation: Generation, number: int, values: Sequence[float]) -> str:
    """An output token: a source of later ones, and a button that shows its own."""
    i = generation.prompt + number
    seen = values_as_text(_sources(generation, number)[: i + (generation.unit != "token")])
    return (
        f'{_space(generation.pieces[i])}<span role="button" tabindex="{0 if number == 0 else -1}" data-n="{number}" '
        f'data-r="{seen}" aria-pressed="false" aria-controls="p{number}" '
        f"{_looks(generation, i, values[i], largest(values), 'o ')}>{_words(generation, i)}</span>"
    )


def values_as_text(values: Sequence[float]) -> str:
    """Numbers for the script, in as few letters as colours need."""
    return " ".join(f"{value:.4g}" for value in values)


def _looks(generation: Generation, i: int, value: float, scale: float, more: str = "") -> str:
    colour = shade(value, scale)
    kind = SIGN_CLASS[colour.sign]
    marks = (" special" if generation.special[i] else "") + (" aside" if generation.aside[i] else "")
    title = ' title="set aside: a line of the ledger"' if generation.aside[i] else ""
    return f'class="{more}t {kind}{marks}" data-t="{i}" style="--o:{colour.opacity:.3f}"{title}'


def _space(piece: str) -> str:
    return piece[: len(piece) - len(piece.lstrip(" "))]


def _words(generation: Generation, i: int) -> str:
    """A token's text; a line break is shown and made."""
    text = generation.pieces[i].lstrip(" ") or (" " if generation.pieces[i] else name_piece(""))
    return escape(visible(text)).replace("↵", '↵<br class="b">')


def _panel(generation: Generation, number: int) -> str:
    """What one output token came from: its largest sources and its ledger."""
    found = generation.top(number, SHOWN)
    total = generation.ledgers[number].inputs
    others = total - sum(c.relevance for c in found)
    rows = [(name_source(c, generation), c.relevance) for c in found]
    if generation.prompt + number > len(found):
        rows.append(("all others", others))
    places = decimals([total, *(amount for _, amount in rows)])
    table = amounts((generation.unit, "relevance"), rows, ("inputs", total), places)
    piece, target = name_piece(generation.output[number]), name_piece(generation.targets[number])
    said = f"{target}: {with_sign(generation.scores[number])}, probability {generation.probabilities[number]:.3f}"
    return (
        f'<section class="panel" id="p{number}" aria-label="{escape(piece)}"><h3><q>{escape(piece)}</q> came from</h3>'
        f"{verdict_paragraph(generation.verdict(number).phrases)}"
        f'<p class="scale">{escape(said)}</p>{table}{_alternatives(generation, number)}'
        f"{ledger_section(generation.ledgers[number], unit=f'{generation.unit}s')}</section>"
    )


def _alternatives(generation: Generation, number: int) -> str:
    """The likeliest tokens in the place of an output token, as bars."""
    if not generation.alternatives:
        return ""
    found = [(visible(one.text or " "), one.probability) for one in generation.alternatives[number]]
    place = "its place" if generation.unit == "token" else f"the place of the {generation.unit}'s first token"
    return f"<h3>Likeliest in {place}</h3>{share_bars(found, name_piece(generation.output[number]))}"


def name_source(contribution: Contribution, generation: Generation) -> str:
    """A source with its role, where there are several."""
    several = len({*generation.roles[: generation.prompt]}) > 1 or contribution.role == "output"
    text = name_piece(contribution.text)
    return f"{text} ({contribution.role})" if several else text


def _whole(generation: Generation) -> str:
    """All output tokens together, folded away."""
    whole = generation.whole()
    kind = "log-probability of the whole output" if generation.score == "logprob" else "sum of all scores"
    return (
        f"<details><summary>the {kind}: {with_sign(whole.score).strip()}, as one score</summary>"
        f"{ledger_section(whole.ledger)}</details>"
    )


STYLE = """
.said { border-left: 3px solid var(--line); padding-left: .75rem; margin: .75rem 0; }
.said .text { margin: 0; white-space: pre-wrap; } .said .part { display: block; }
.template .text { font-size: 1rem; color: var(--soft); }
.o { border-bottom: 2px solid var(--soft); cursor: pointer; }
.o.now, .o:hover, .o:focus-visible { outline: 2px solid var(--ink); outline-offset: 1px; }
.o[aria-pressed=true] { outline: 3px solid var(--ink); outline-offset: 1px; }
.aside { outline: 1px dashed var(--soft); color: var(--soft); }
.hint { color: var(--soft); font-size: .9rem; margin: .5rem 0; }
.js .panel { display: none; } .js .panel.on { display: block; }
.js #panels { min-height: 24rem; }
"""

# Of a page whose `outputs` are pointed at, one of which is `kept`: what `show` shows of it, by pointer and keyboard.
CHOOSING = """
  const keep = (n) => {
    kept = n;
    outputs.forEach((output, i) => {
      output.setAttribute('aria-pressed', String(i === n));
      output.tabIndex = i === n ? 0 : -1;
    });
    show(n);
  };
  const walk = (items, act, move) => items.forEach((item, n) => {
    item.addEventListener('click', () => act(n));
    item.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = event.key === 'Home' ? 0 : event.key === 'End' ? items.length - 1 : n + (step || 0);
      if (event.key === 'Enter' || event.key === ' ') act(n);
      else if (next !== n && items[next]) {
        items.forEach((other, i) => { other.tabIndex = i === next ? 0 : -1; });
        move(next);
        items[next].focus();
      } else if (step === undefined) return;
      event.preventDefault();
    });
  });
  walk(outputs, keep, keep);
  outputs.forEach((output, n) => {
    output.addEventListener('pointerenter', () => show(n));
    output.addEventListener('pointerleave', () => show(kept));
    output.addEventListener('focus', () => show(n));
  });
"""

SCRIPT = (
    """
(() => {
  const root = document.documentElement;
  const tokens = [...document.querySelectorAll('[data-t]')];
  const outputs = [...document.querySelectorAll('[data-n]')];
  const panels = [...document.querySelectorAll('.panel')];
  if (!outputs.length) return;
  let kept = 0;
  const show = (n) => {
    const values = outputs[n].dataset.r.split(' ').map(Number);
    const scale = Math.max(...values.map(Math.abs)) || 1;
    tokens.forEach((token) => {
      const value = values[Number(token.dataset.t)] || 0;
      token.classList.toggle('add', value > 0);
      token.classList.toggle('take', value < 0);
      token.style.setProperty('--o', (Math.abs(value) / scale).toFixed(3));
      if (!token.classList.contains('aside')) token.title = value ? value.toPrecision(3) : '';
    });
    outputs.forEach((output, i) => output.classList.toggle('now', i === n));
    panels.forEach((panel, i) => panel.classList.toggle('on', i === n));
  };
"""
    + CHOOSING
    + """  root.classList.add('js');
  keep(0);
})();
"""
)


def render(generation: Generation, *, theme: Theme = "dark") -> RenderableType:
    """A terminal: what was said, and for every output token its largest sources."""
    said = Text().append(visible(_prompt(generation)), "dim").append(visible(generation.text), "bold")
    notes = [Text(f" {note}", style="dim") for note in (describe_scale(), *closing(generation))]
    listing = Listing(generation, theme)
    head = [verdict_line(generation.verdict().phrases), facts_line(generation_facts(generation))]
    return Group(*head, Text(), Padding(said, (0, 0, 0, 2)), Text(), listing, *notes)


def describe_scale() -> str:
    adds, takes = hues()
    return f"{adds} adds, {takes} takes away and is underlined; every row has a scale of its own"


@dataclass(frozen=True)
class Listing:
    """A row for every output token, its sources coloured by their share of the largest in the row."""

    generation: Generation
    theme: Theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        colours, made = console.color_system, self.generation
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        grid.add_column("output", overflow="fold")
        grid.add_column("score", justify="right")
        grid.add_column("probability", justify="right")
        grid.add_column("came from", overflow="fold")
        room = bool(made.alternatives) and options.max_width >= ROOMY
        if room:
            grid.add_column("or", overflow="fold")
        places = decimals(made.scores)
        for number in range(len(made)):
            score, chance = with_sign(made.scores[number], places), f"{made.probabilities[number]:.3f}"
            other = [Text(others(made, number), "dim")] if room else []
            grid.add_row(Text(_output_text(made, number), "bold"), score, chance, self._line(number, colours), *other)
        yield grid

    def _line(self, number: int, colours: str | None) -> Text:
        values = _sources(self.generation, number)
        scale, places = largest(values), decimals(values, digits=3)
        line = Text()
        for c in self.generation.top(number, FEW):
            style = style_of(shade(c.relevance, scale), self.theme, colours)
            line.append(f" {name_source(c, self.generation)} ", style).append(
                f" {with_sign(c.relevance, places).strip()}   ", "dim"
            )
        return line


def others(generation: Generation, number: int, count: int = 2) -> str:
    """The likeliest other tokens in a place, in one line."""
    if not generation.alternatives:
        return ""
    said = generation.output[number].strip()
    found = [one for one in generation.alternatives[number] if not said.startswith(one.text) or not one.text]
    return ", ".join(f"{visible(one.text or ' ')} {one.probability:.3f}" for one in found[:count])


def _prompt(generation: Generation) -> str:
    return "".join(generation.pieces[: generation.prompt])


def _output_text(generation: Generation, number: int) -> str:
    target = generation.targets[number] if generation.score == "contrast" else generation.output[number]
    return name_piece(target)


def plain(generation: Generation) -> str:
    """Plain text: a line for every output token with its largest sources, and whether the ledgers close."""
    lines = [f"verdict: {generation.verdict()}"]
    lines += [f"prompt: {visible(_prompt(generation))}", f"output: {visible(generation.text)}"]
    lines += [f"{name}: {value}" for name, value in generation_facts(generation)]
    width = max(len(_output_text(generation, number)) for number in range(len(generation)))
    places = decimals(generation.scores)
    for number in range(len(generation)):
        values = decimals(_sources(generation, number), digits=3)
        came = [
            f"{name_source(c, generation)} {with_sign(c.relevance, values).strip()}"
            for c in generation.top(number, FEW)
        ]
        score, chance = with_sign(generation.scores[number], places), generation.probabilities[number]
        lines.append(
            f"  {_output_text(generation, number).ljust(width)}  {score}  p {chance:.3f}  from {', '.join(came)}"
        )
    return "\n".join([*lines, *closing(generation)])


def closing(generation: Generation) -> list[str]:
    """The sum of all ledgers, whether every one closes, and what their large lines are."""
    whole = sum_ledgers(generation.ledgers)
    together = "" if len(generation) == 1 else "all together: "
    worst = max(generation.ledgers, key=lambda ledger: ledger.error)
    counted = "the ledger is" if len(generation) == 1 else f"{len(generation)} ledgers, the worst"
    said = [f"({name}: {meaning})" for name, meaning in large_lines(whole)]
    total = ledger_sum(whole, f"{generation.unit}s")
    sums = [f"{together}{total}"] if " + " in total else []  # of a single part there is nothing to add up
    return [*sums, f"{counted} {closing_line(worst)}", *said]
