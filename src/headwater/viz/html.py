"""One HTML page that needs nothing else: no font, no image, nothing from elsewhere.

Everything that comes from a text or a model is escaped. The page also forbids scripts, except its own, which is allowed
by its hash. The sign of relevance is shown in three ways: by colour, by a line under negative tokens, and as a number
that a screen reader reads out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from markupsafe import Markup

from headwater.results.explanation import Explanation
from headwater.results.ledger import Ledger, Lines
from headwater.results.readable import readable
from headwater.results.verdict import Phrase

from .bars import BARS, ledger_bars
from .colour import NEGATIVE, POSITIVE, SIGN_CLASS, Rgb, largest, shade
from .pages import render_page
from .reading import TokenCell, closing_line, decimals, headline, token_cells, units_name, with_sign
from .sums import large_lines, ledger_sum, round_to_sum

__all__ = ["page"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(
    explanations: Explanation | Sequence[Explanation],
    *,
    words: bool = False,
    title: str = "Headwater",
    pictures: Sequence[str] | None = None,
) -> str:
    """The whole page: for each explanation the coloured text, a table of its tokens, and the ledger line by line.

    Args:
        explanations: one, or several.
        words: sums tokens to words.
        title: of the page.
        pictures: of images, for each the sheet that `viz.images` draws, which stands in place of the text.

    Returns:
        HTML, which needs no other file.

    Example:
        >>> from headwater.viz.html import page
        >>> page(hw.explain("headwater/sentiment", "a fine film"), title="Mine").startswith("<!doctype html>")
        True
    """
    many = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    drawn = [None] * len(many) if pictures is None else list(pictures)
    articles = [_article(e, words, i, svg) for i, (e, svg) in enumerate(zip(many, drawn, strict=True), 1)]
    return document("\n".join(articles), title=title, images=pictures is not None)


def document(body: str, *, title: str, style: str = "", script: str = "", images: bool = False) -> str:
    """A page around `body`, which is HTML: its head, the rules that forbid other scripts, the key to the colours."""
    return render_page(
        "document.html",
        title=title,
        policy=Markup(policy(script, images)),
        style=Markup(colour_rules() + STYLE + BARS + style),
        body=Markup(f"{_key()}\n{body}"),
        script=Markup(script),
    )


def policy(script: str = "", images: bool = False) -> str:
    """What the page may do: nothing but its own style, its own script to the letter, and pictures that it holds."""
    allowed = f"{POLICY}; img-src data:" if images else POLICY
    if not script:
        return allowed
    found = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{allowed}; script-src 'sha256-{found}'"


def frame_sheet(svg: str) -> str:
    """A picture that the page holds, wide ones scrolling in their own frame. Its ground is white in any theme."""
    return f'<div class="sheet" role="region" aria-label="picture" tabindex="0">{svg}</div>'


def _article(explanation: Explanation, words: bool, number: int, svg: str | None = None) -> str:
    shown = token_cells(explanation, words)
    body = f"{running_text(shown)}\n{_scale(shown)}" if svg is None else frame_sheet(svg)
    unit = "patch" if explanation.image is not None else "word" if words else "token"
    return (
        f'<article aria-labelledby="e{number}">\n'
        f'<h2 id="e{number}">{escape(readable(explanation.target))} '
        f'<span class="n">{with_sign(explanation.score)}</span></h2>\n'
        f"{verdict_paragraph(explanation.verdict().phrases)}\n"
        f"{facts_list(_facts(explanation))}\n{body}\n{_token_table(shown, unit)}\n"
        f"{ledger_section(explanation.ledger, unit=units_name(explanation, words))}\n"
        f"{describe_making(explanation)}</article>"
    )


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    """What the heading does not say already."""
    facts = [(name, value) for name, value in headline(explanation) if name not in ("target", "score")]
    return [("as", explanation.output), *facts, ("at", explanation.at)]


def verdict_paragraph(phrases: Iterable[Phrase]) -> str:
    """A sentence; what it names of the input stands out."""
    said = "".join(f"<strong>{escape(part.text)}</strong>" if part.named else escape(part.text) for part in phrases)
    return f'<p class="verdict">{said}</p>'


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Facts side by side."""
    return f"<dl>{''.join(f'<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>' for k, v in facts)}</dl>"


def running_text(shown: Sequence[TokenCell]) -> str:
    """Every token on the ground of its relevance, full colour at the largest."""
    scale, places = _size(shown)
    parts: list[str] = []
    for i, cell in enumerate(shown):
        if cell.part and (i == 0 or shown[i - 1].part != cell.part):
            parts.append(f'{"<br>" if i else ""}<b class="part">{escape(cell.part)}</b> ')
        parts.append((" " if cell.gap and i else "") + _token(cell, scale, places))
    return f'<p class="text">{"".join(parts)}</p>'


def _size(shown: Sequence[TokenCell]) -> tuple[float, int]:
    """The relevance of full colour, and the places that numbers beside it have."""
    return largest(cell.relevance for cell in shown), decimals((cell.relevance for cell in shown), digits=3)


def _scale(shown: Sequence[TokenCell]) -> str:
    size = with_sign(*_size(shown)).lstrip("+")
    return f'<p class="scale">full colour: {size}; positive and negative on the same scale</p>'


def _token(cell: TokenCell, scale: float, places: int) -> str:
    colour, number = shade(cell.relevance, scale), with_sign(cell.relevance, places).strip()
    kind = SIGN_CLASS[colour.sign] + (" special" if cell.special else "")
    return (
        f'<span class="t {kind}" style="--o:{colour.opacity:.3f}" title="{number}">{escape(cell.text)}'
        f'<span class="heard"> ({number})</span></span>'
    )


def _token_table(shown: Sequence[TokenCell], name: str) -> str:
    places = decimals(cell.relevance for cell in shown)
    rows = [(cell.text, cell.relevance) for cell in shown]
    total = sum(cell.relevance for cell in shown)
    table = amounts((name, "relevance"), rows, ("sum", total), places)
    return f"<details><summary>every {name} with its number</summary>{table}</details>"


def ledger_section(ledger: Ledger, name: str = "ledger", unit: str = "inputs") -> str:
    """The lines that add up to the score, their sum in a line, whether it closes, and what its lines are."""
    groups = ledger.groups
    lines = [amount for group in groups.values() for amount in group.values()]
    places = decimals([ledger.score, ledger.inputs, ledger.readout, *lines])
    rows = [("inputs", ledger.inputs), *((group, lines.total) for group, lines in groups.items())]
    if ledger.readout:
        rows.append(("readout", ledger.readout))
    rows.append(("unaccounted", ledger.unaccounted))
    folded = "".join(_lines(group, lines, places) for group, lines in groups.items())
    state = "closed" if ledger.closed else "open"
    table = amounts(("line", "amount"), rows, ("score", ledger.score), places)
    said = "".join(f"<p class='scale'><strong>{escape(n)}</strong>: {escape(m)}</p>" for n, m in large_lines(ledger))
    return (
        f'<section aria-label="{escape(name)}"><h3>Ledger</h3>{ledger_bars(ledger)}{table}'
        f'<p class="sum">{escape(ledger_sum(ledger, unit))}</p>'
        f'<p class="{state}">{escape(closing_line(ledger))}</p>{said}{folded}</section>'
    )


def _lines(name: str, lines: Lines, places: int) -> str:
    if not lines:
        return ""
    table = amounts(("module", "amount"), lines.items(), ("sum", lines.total), places)
    return f"<details><summary>{name}, line by line ({len(lines)})</summary>{table}</details>"


def amounts(heads: tuple[str, str], rows: Iterable[tuple[str, float]], foot: tuple[str, float], places: int) -> str:
    """Names and amounts, and what they add up to; rounded such that what is shown adds up, too."""
    many = list(rows)
    shown = round_to_sum([amount for _, amount in many], foot[1], places)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{with_sign(amount, places).strip()}</td></tr>'
        for (name, _), amount in zip(many, shown, strict=True)
    )
    return (
        f'<table><thead><tr><th scope="col">{heads[0]}</th><th scope="col">{heads[1]}</th></tr></thead>'
        f'<tbody>{body}</tbody><tfoot><tr><th scope="row">{foot[0]}</th>'
        f"<td>{with_sign(foot[1], places).strip()}</td></tr></tfoot></table>"
    )


def describe_making(explanation: Explanation) -> str:
    """What made it: versions, model, device, precision."""
    made = explanation.provenance
    facts = {name: getattr(made, name) for name in made.__dataclass_fields__}
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return f'<p class="made">{escape(said)}</p>\n'


def _key() -> str:
    return (
        '<p class="key"><span class="t add" style="--o:1">adds to the score</span> '
        '<span class="t take" style="--o:1">takes away from it</span></p>'
    )


def _css(colour: Rgb) -> str:
    return " ".join(map(str, colour))


def colour_rules() -> str:
    """The two colours of the palette in force, for each theme."""
    light, dark = (f"--add: {_css(POSITIVE[t])}; --take: {_css(NEGATIVE[t])};" for t in ("light", "dark"))
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


STYLE = """
:root { --ink: #111; --pen: 17 17 17; --soft: #595959; --line: #d4d4d8; --ground: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #f5f5f5; --pen: 245 245 245; --soft: #a1a1aa; --line: #3f3f46; --ground: #18181b; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 50rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.1rem; margin: 0; } h2 { font-size: 1.4rem; margin: 0; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
article { border-top: 1px solid var(--line); margin-top: 1.5rem; padding-top: 1.25rem; }
dl { display: flex; flex-wrap: wrap; gap: 0 1.5rem; margin: .25rem 0 0; color: var(--soft); }
dl div { display: flex; gap: .4rem; } dd { margin: 0; color: var(--ink); }
.text { font-size: 1.25rem; line-height: 2; margin: 1rem 0 .25rem; overflow-wrap: anywhere; }
.t { padding: .15em .1em; border-radius: .2em; }
.add { background: rgb(var(--add) / var(--o)); }
.take { background: rgb(var(--take) / var(--o)); text-decoration: underline 2px; text-underline-offset: .2em;
  text-decoration-color: rgb(var(--pen) / max(.3, var(--o))); }
.special, .scale, .made, .part { color: var(--soft); }
.add.special, .take.special { color: inherit; }
.scale, .made, .key, .part { font-size: .85rem; margin: .25rem 0; }
.heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
  user-select: none; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: normal; padding: .1rem 2rem .1rem 0; overflow-wrap: anywhere; }
td, th[scope=col]:last-child { text-align: right; padding-right: 0; }
thead th { color: var(--soft); font-size: .85rem; }
td { white-space: nowrap; } tfoot th, tfoot td { border-top: 1px solid var(--line); font-weight: 600; }
.sheet { overflow-x: auto; margin: 1rem 0; } .sheet svg { display: block; background: #fff; }
summary { cursor: pointer; color: var(--soft); padding: .25rem 0; } .open { font-weight: 600; }
h2, h3, dd, li, p, small { overflow-wrap: anywhere; }
.verdict { font-size: 1.15rem; margin: .5rem 0; } .verdict strong { font-weight: 650; }
"""
