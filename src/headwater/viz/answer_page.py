"""A whole answer as one page: documents on one side, the answer on the other, lines from a sentence to its sources.

Point at a sentence of the answer, tap it, or reach it by keyboard: its sources light up. A source that is pressed says
what its loss does. Without its script, or on paper, the page shows the first sentence's sources in colour and every
sentence's in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headwater.results.answer_report import AnswerReport, Citation, LeftOut, describe_change, label_source

from ..plurals import say_count
from .colour import SIGN_CLASS, largest, shade
from .generation import CHOOSING, NAMES, values_as_text
from .html import amounts, describe_making, document, facts_list, ledger_section, verdict_paragraph
from .reading import decimals, visible


def page(report: AnswerReport, *, left_out: LeftOut | None = None, title: str = "Headwater") -> str:
    """The whole page. `left_out`: what was left out on the screen when it was saved."""
    span = report.spans[0]
    facts = [("score", NAMES[span.score_name]), ("method", span.method)]
    question = visible((report.question or report.text).strip())
    body = (
        f'<article aria-labelledby="answer">\n<h2 id="answer">{escape(question)}</h2>\n{facts_list(facts)}\n'
        '<p class="hint">Point at a sentence of the answer, tap it, or reach it with Tab and the arrow keys: its '
        "sources light up. Enter or a tap keeps it. Press a source to read what happens without it.</p>\n"
        f"{_left_out(report, left_out)}"
        f'<div class="pair">{_documents(report)}{_answer(report)}<svg class="lines" aria-hidden="true"></svg></div>\n'
        '<p id="left" class="verdict" role="status"></p>\n'
        f'<div id="panels">{"".join(_sentence_panel(report, number) for number in range(len(report.spans)))}</div>\n'
        f"{_without(report)}{describe_making(span.as_explanation())}</article>"
    )
    return document(body, title=title, style=STYLE, script=SCRIPT)


def _documents(report: AnswerReport) -> str:
    parts = []
    for number, (name, sources) in enumerate(zip(report.documents, report.sources_of(0), strict=True)):
        shown = " ".join(_source(report, number, place) for place in range(len(sources)))
        shown = shown or '<span class="soft">empty</span>'
        parts.append(f'<h3>{escape(visible(name))}</h3><p class="document">{shown}</p>')
    return f'<section class="documents" aria-label="documents">{"".join(parts)}</section>'


def _source(report: AnswerReport, document: int, place: int) -> str:
    """A sentence of a document: coloured for the answer's first, and a button that says what its loss does."""
    values = flat_values(report, 0)
    found = report.sources_of(0)[document][place]
    number = sum(len(one) for one in report.sources_of(0)[:document]) + place
    colour = shade(found.relevance, largest(values))
    kind = SIGN_CLASS[colour.sign]
    tried = next((one for one in report.tried if one.sources == ((document, place),)), None)
    changes = [] if tried is None else [describe_change(*pair) for pair in list_changes(tried)]
    name = label_source(report.documents[document], place)
    return (
        f'<span role="button" tabindex="{0 if number == 0 else -1}" aria-pressed="false" class="s t {kind}" '
        f'data-t="{number}" data-name="{escape(name)}" data-w="{escape("|".join(changes))}" '
        f'style="--o:{colour.opacity:.3f}">{escape(visible(found.text))}</span>'
    )


def flat_values(report: AnswerReport, sentence: int) -> list[float]:
    """What every sentence of every document gave to one sentence of the answer, in order."""
    return [one.relevance for sources in report.sources_of(sentence) for one in sources]


def list_changes(left_out: LeftOut) -> list[tuple[float, float]]:
    return list(zip(left_out.sentences_before, left_out.sentences_after, strict=True))


def _answer(report: AnswerReport) -> str:
    items = "".join(
        f'<li><span role="button" tabindex="{0 if number == 0 else -1}" class="o" data-n="{number}" '
        f'data-r="{values_as_text(flat_values(report, number))}" aria-pressed="false" aria-controls="p{number}">'
        f"{escape(visible(span.text))}</span></li>"
        for number, span in enumerate(report.spans)
    )
    return f'<section class="said" aria-label="answer"><h3>Answer</h3><ol>{items}</ol></section>'


def _sentence_panel(report: AnswerReport, number: int) -> str:
    """What one sentence rests on: in words, its sources, whose words gave what, its ledger."""
    span = report.spans[number]
    roles = list(span.by_role().items())
    places = decimals([span.ledger.inputs, *(amount for _, amount in roles)])
    said = verdict_paragraph(report.verdict(number))
    return (
        f'<section class="panel" id="p{number}" aria-label="sentence {number + 1}">'
        f"<h3><q>{escape(visible(span.text))}</q></h3>{said}"
        f"{sources_table(report.documents, report.citations[number])}"
        f"<h3>Whose words</h3>{amounts(('role', 'relevance'), roles, ('inputs', span.ledger.inputs), places)}"
        f"{ledger_section(span.ledger, unit='tokens')}</section>"
    )


def sources_table(documents: Sequence[str], sources: Sequence[Citation]) -> str:
    if not sources:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(label_source(documents[one.document], one.source))}<br>'
        f"<small>{escape(visible(one.text))}</small></th><td>{one.share:.0%}</td>"
        f'<td class="change">{escape(describe_change(one.before, one.after))}</td>'
        f"<td>{'' if one.sure is None else f'{one.sure:.0%}'}</td></tr>"
        for one in sources
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("source", "share", "without it", "sure"))
    return f'<table class="sources"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _left_out(report: AnswerReport, left_out: LeftOut | None) -> str:
    """What was left out on the screen, and how likely each sentence was then."""
    if left_out is None:
        return ""
    rows = "".join(
        f"<li><q>{escape(visible(span.text))}</q> {escape(describe_change(*pair))}</li>"
        for span, pair in zip(report.spans, list_changes(left_out), strict=True)
    )
    return (
        f'<section aria-label="left out"><p class="verdict">Without <strong>{escape(visible(left_out.name))}</strong>, '
        f"the whole answer: {escape(describe_change(left_out.before, left_out.after))}</p><ul>{rows}</ul></section>"
    )


def _without(report: AnswerReport) -> str:
    if not report.without:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(visible(one.name))}</th><td class="change">'
        f"{escape(describe_change(one.before, one.after))}</td></tr>"
        for one in report.without
    )
    heads = '<th scope="col">document</th><th scope="col">the whole answer without it</th>'
    table = f'<table class="sources"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    others = len(report.documents) - len(report.without)
    less = say_count(others, "other gives less, and was not left out", "others give less, and were not left out")
    more = f'<p class="hint">{less}.</p>' if others else ""
    return f"<h3>Without a document</h3>{table}{more}"


STYLE = """
main { max-width: 76rem; } .soft { color: var(--soft); }
.hint { color: var(--soft); font-size: .9rem; margin: .5rem 0; }
.pair { position: relative; isolation: isolate; display: grid;
  grid-template-columns: minmax(0, 1.25fr) minmax(0, 1fr); gap: 0 5rem; }
.pair h3 { margin: 1rem 0 .25rem; overflow-wrap: anywhere; } .lines { position: absolute; inset: 0; width: 100%;
  height: 100%; z-index: -1; pointer-events: none; overflow: visible; }
.lines path { fill: none; stroke: rgb(var(--add)); }
.document { margin: 0; line-height: 1.9; overflow-wrap: anywhere; } .s, .o { cursor: pointer; }
.s { -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.s[aria-pressed=true] { text-decoration: line-through; outline: 2px dashed var(--ink); outline-offset: 1px; }
.said ol { padding-left: 1.4rem; margin: 0; } .said li { margin: .5rem 0; overflow-wrap: anywhere; }
.o { font-size: 1.15rem; line-height: 1.7; border-bottom: 2px solid var(--soft); }
.o.now, .o:hover, .o:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
.o[aria-pressed=true] { outline: 3px solid var(--ink); outline-offset: 2px; } .s:focus-visible { outline: 2px solid; }
.sources { width: 100%; } .sources th, .sources td { vertical-align: top; padding: .1rem 0 .1rem 1rem; }
.sources th:first-child { padding-left: 0; } .sources th[scope=col] + th { text-align: right; }
.sources th[scope=col] { overflow-wrap: normal; }
td.change { white-space: normal; overflow-wrap: anywhere; } small { color: var(--soft); }
.js .panel { display: none; } .js .panel.on { display: block; }
@media (max-width: 48rem) { .pair { grid-template-columns: minmax(0, 1fr); } .said { order: -1; }
  .lines { display: none; } .sources th, .sources td { padding-left: .4rem; } }
@media print { .lines { display: none; } }
"""

SCRIPT = (
    """
(() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const [sources, outputs, panels] = [all('[data-t]'), all('[data-n]'), all('.panel')];
  const [lines, pair, left] = ['.lines', '.pair', '#left'].map((what) => document.querySelector(what));
  let kept = 0;
  let shown = 0;
  const draw = (values, total) => {
    lines.replaceChildren();
    const frame = pair.getBoundingClientRect();
    const end = outputs[shown].getClientRects()[0];
    const edge = pair.firstElementChild.getBoundingClientRect().right - frame.left;
    values.forEach((value, i) => {
      if (!(value > 0.05 * total)) return;
      const box = [...sources[i].getClientRects()].at(-1);
      const [x0, y0] = [box.right - frame.left, box.bottom + 4 - frame.top];
      const [x1, y1] = [end.left - frame.left - 26, (end.top + end.bottom) / 2 - frame.top];
      const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      path.setAttribute('d', `M${x0} ${y0} H${edge} C${(edge + x1) / 2} ${y0} ${(edge + x1) / 2} ${y1} ${x1} ${y1}`);
      path.setAttribute('stroke-width', String(1 + 7 * value / total));
      path.setAttribute('stroke-opacity', String(0.35 + 0.6 * value / total));
      lines.append(path);
    });
  };
  const say = () => {
    const pressed = sources.find((source) => source.getAttribute('aria-pressed') === 'true');
    const tried = pressed && pressed.dataset.w;
    const told = tried ? tried.split('|')[shown] : 'this was not tried when the page was made';
    left.textContent = pressed ? `Sentence ${shown + 1} of the answer without ${pressed.dataset.name}: ${told}` : '';
  };
  const show = (n) => {
    shown = n;
    const values = outputs[n].dataset.r.split(' ').filter(Boolean).map(Number);
    const scale = Math.max(...values.map(Math.abs), 0) || 1;
    const total = values.reduce((sum, value) => sum + Math.max(value, 0), 0) || 1;
    sources.forEach((source, i) => {
      source.classList.toggle('add', values[i] > 0);
      source.classList.toggle('take', values[i] < 0);
      source.style.setProperty('--o', (Math.abs(values[i]) / scale).toFixed(3));
      source.title = values[i] > 0 ? `${(100 * values[i] / total).toFixed(0)} % of what documents give` : '';
    });
    outputs.forEach((output, i) => output.classList.toggle('now', i === n));
    panels.forEach((panel, i) => panel.classList.toggle('on', i === n));
    draw(values, total);
    say();
  };
  const press = (n) => {
    const was = sources[n].getAttribute('aria-pressed') === 'true';
    sources.forEach((source, i) => source.setAttribute('aria-pressed', String(i === n && !was)));
    say();
  };
"""
    + CHOOSING
    + """  walk(sources, press, () => {});
  document.documentElement.classList.add('js');
  keep(0);
  addEventListener('resize', () => show(shown));
})();
"""
)
