"""Results as they show themselves in a notebook: fragments without script, in the notebook's own theme.

Text and lines take the colour of the notebook's text. The two colours of relevance are transparent, so that black text
on white and white text on black both stay readable in any theme. What comes from a text or a model is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headwater.errors import InputError
from headwater.results.audit import Audit
from headwater.results.comparison import Comparison
from headwater.results.display import NOTEBOOK, shows
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation

from . import generation as generations
from .audit_page import chart, layer_table, table_of
from .colour import NEGATIVE, POSITIVE, SIGN_CLASS, largest, shade
from .comparison import method_lines
from .html import describe_making, facts_list, ledger_section, running_text, verdict_paragraph
from .reading import TokenCell, headline, name_piece, token_cells, units_name, visible, with_sign
from .sums import ledger_sum

ROWS = 20  # output tokens whose sources are opened one by one
FULL = 0.62  # opacity of full colour: under it both inks are read


def fragment(body: str) -> str:
    """A result for a notebook's page, whose own style it leaves alone."""
    return f'<div class="hw"><style>{style()}</style>{body}</div>'


@shows(NOTEBOOK, Explanation)
def show_explanation(e: Explanation) -> str:
    """The coloured text, or the patches of an image, with the ledger below."""
    shown = patches(e) if e.image is not None else running_text(cells_by_word(e))
    scale = largest(cell.relevance for cell in cells_by_word(e))
    said = facts_list([*headline(e), ("full colour", f"±{scale:.3g}")])
    units = units_name(e, words=shows_words(e))
    return fragment(
        f"{verdict_paragraph(e.verdict().phrases)}{said}{shown}"
        f"{fold(f'ledger: {ledger_sum(e.ledger, units)}', ledger_section(e.ledger, unit=units))}{describe_making(e)}"
    )


@shows(NOTEBOOK, Comparison)
def show_comparison(compared: Comparison) -> str:
    """A row of coloured words for every method."""
    try:
        shown = method_lines(compared, words=all(e.offsets is not None for e in compared.explanations))
    except InputError:
        shown = method_lines(compared)
    rows = []
    for line in shown:
        size, e = line.numbers[0].strip(), line.explanation
        text = patches(e) if e.image is not None else running_text(line.cells)
        state = f"full colour ±{size}, {ledger_sum(e.ledger, units_name(e, line.unit == 'word'))}, {line.state}"
        rows.append(f'<h4>{escape(e.method)}</h4>{text}<p class="scale">{escape(state)}</p>')
        rows.append(fold(f"ledger of {e.method}", ledger_section(e.ledger, f"ledger of {e.method}")))
    rows += [f"<p><b>{escape(name)}</b> gave no explanation: {escape(reason)}</p>" for name, reason in compared.refused]
    first = compared.explanations[:1]
    said = verdict_paragraph(compared.verdict().phrases) if first else ""
    return fragment(said + "".join(facts_list(headline(e)[:-1]) for e in first) + "".join(rows))


@shows(NOTEBOOK, Generation)
def show_generation(made: Generation) -> str:
    """What was said, and for every output token what it came from, opened one by one."""
    said = "".join(escape(visible(piece) if piece.strip(" ") else piece) for piece in made.pieces[: made.prompt])
    answer = escape(visible(made.text))
    parts = [
        facts_list(generations.generation_facts(made)),
        f'<p class="text"><span class="soft">{said}</span> <b>{answer}</b></p>',
        *(sources(made, number) for number in range(min(len(made), ROWS))),
    ]
    if len(made) > ROWS:
        parts.append(f'<p class="scale">{len(made) - ROWS} more; the page of `headwater generate --html` has all.</p>')
    return fragment("".join(parts) + describe_making(made.explanation(0)))


def sources(made: Generation, number: int) -> str:
    """One output token: its sources in colour, the first one opened."""
    row = made.relevance[number].tolist()[: made.prompt + number + (made.unit != "token")]
    shown = [
        TokenCell(name_piece(piece), value, special, gap=piece.startswith(" "))
        for piece, value, special in zip(made.pieces, row, made.special, strict=False)
    ]
    piece, target = name_piece(made.output[number]), name_piece(made.targets[number])
    title = f"{piece}: {target} {with_sign(made.scores[number]).strip()}, probability {made.probabilities[number]:.3f}"
    state = "closed" if made.ledgers[number].closed else "NOT closed"
    told = verdict_paragraph(made.verdict(number).phrases)
    sums = ledger_sum(made.ledgers[number], f"{made.unit}s")
    body = f'{told}{running_text(shown)}<p class="scale">full colour ±{largest(row):.3g}, {sums}, {state}</p>'
    return fold(title, body, number == 0)


@shows(NOTEBOOK, Audit)
def show_audit(found: Audit) -> str:
    """From the score to the inputs, layer by layer."""
    e = found.explanation
    return fragment(
        f"{facts_list(headline(e))}{chart(found)}{layer_table(found)}{fold('ledger', ledger_section(e.ledger))}"
    )


def show_tables(said: str, titled: Iterable[tuple[str, Sequence[str], Iterable[Sequence[str]]]], more: str = "") -> str:
    """A headline, tables under their titles, and what else there is (HTML)."""
    shown = "".join(f"<h4>{escape(title)}</h4>{table_of(heads, rows)}" for title, heads, rows in titled)
    return fragment(f"<p>{escape(said)}</p>{shown}{more}")


def cells_by_word(e: Explanation) -> list[TokenCell]:
    """Words where the tokenizer tells them, else tokens."""
    return token_cells(e, words=shows_words(e))


def shows_words(e: Explanation) -> bool:
    return e.offsets is not None and not isinstance(e.text, tuple) and not e.segments


def patches(e: Explanation) -> str:
    """The patches of an image as they lie, without the image, which an explanation does not hold."""
    scale = largest(e.relevance.flatten().tolist())
    rows = []
    for line in e.patches.tolist():
        found = []
        for value in line:
            tone = shade(value, scale)
            kind = SIGN_CLASS[tone.sign]
            number = with_sign(value).strip()
            sign = "−" if tone.sign < 0 and tone.opacity > 0.2 else ""
            found.append(f'<td class="{kind}" style="--o:{tone.opacity:.3f}" title="{number}">{sign}</td>')
        rows.append(f"<tr>{''.join(found)}</tr>")
    return f'<table class="patches">{"".join(rows)}</table>'


def fold(title: str, body: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{body}</details>"


def style() -> str:
    """Every rule begins with `.hw`: nothing else of the notebook is touched."""
    add, take = (" ".join(map(str, hue["light"])) for hue in (POSITIVE, NEGATIVE))
    rules = (RULES.replace("ADD", add).replace("TAKE", take).replace("FULL", str(FULL))).strip().splitlines()
    return "\n".join(f".hw {rule}" for rule in rules)


# One rule a line.
RULES = """
, .hw * { color: inherit; box-sizing: border-box; }
{ font: 14px/1.55 system-ui, sans-serif; max-width: 64rem; overflow-wrap: anywhere; }
h3, .hw h4 { font-size: 1em; font-weight: 600; margin: .7em 0 .1em; }
p { margin: .25em 0; }
dl { display: flex; flex-wrap: wrap; gap: 0 1.5em; margin: 0; }
dl div { display: flex; gap: .4em; }
dt { opacity: .72; font-weight: 400; }
dd { margin: 0; }
.text { font-size: 1.2em; line-height: 1.9; }
.soft, .hw .scale, .hw .made, .hw .part, .hw summary { opacity: .75; }
.scale, .hw .made, .hw .part { font-size: .88em; }
.t { padding: .12em .12em; border-radius: .2em; }
.add { background: rgb(ADD / calc(var(--o) * FULL)); }
.take { background: rgb(TAKE / calc(var(--o) * FULL)); }
.t.take { text-decoration: underline 2px; text-underline-offset: .2em; }
.t.take { text-decoration-color: color-mix(in srgb, currentColor calc(30% + var(--o) * 70%), transparent); }
.heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
table { border-collapse: collapse; margin: .4em 0; font-variant-numeric: tabular-nums; border: 0; }
tr, .hw th, .hw td { background: none; border: 0; }
th { text-align: left; font-weight: 400; padding: .1em 1.5em .1em 0; }
td, .hw thead th + th { text-align: right; padding: .1em 0 .1em 1.2em; }
tfoot th, .hw tfoot td { border-top: 1px solid currentColor; font-weight: 600; }
thead th { opacity: .75; }
.wide { overflow-x: auto; }
.patches td { width: 1.7em; height: 1.7em; padding: 0; text-align: center; border: 1px solid rgb(128 128 128 / .35); }
.patches td.add { background: rgb(ADD / calc(var(--o) * FULL)); }
.patches td.take { background: rgb(TAKE / calc(var(--o) * FULL)); }
summary { cursor: pointer; }
.open { font-weight: 600; }
.verdict { font-size: 1.1em; }
.verdict strong { font-weight: 600; }
.chart { margin: .5em 0; max-width: 40em; }
"""
