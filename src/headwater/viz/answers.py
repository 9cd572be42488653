"""What a span of an answer rests on, as plain text: its sum by role, its documents, its largest sentences."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from headwater.results.answer import SpanExplanation
from headwater.results.answer_report import AnswerReport, Citation
from headwater.results.who_told import WhoTold

from ..plurals import say_count
from .plain import ledger_lines
from .reading import decimals, visible, with_sign
from .sums import round_to_sum

SHOWN = 5  # documents and sentences in a list
WIDTH = 60  # characters of a sentence
COLUMNS = 88  # characters of a line


def plain(span: SpanExplanation) -> str:
    """The span, where its relevance lies, and its ledger."""
    head = [f"span: {clip(span.text)}", f"{span.score_name}: {span.score:.4g}", f"method: {span.method}"]
    head.append(f"log-probability: {span.log_probability:.4g}")
    roles = span.by_role()
    sentences = sorted(span.by_sentence(), key=lambda one: -abs(one.relevance))[:SHOWN]
    texts = [(source_name(span, one.document, one.role, one.text), one.relevance) for one in sentences]
    lines = [*head, "", "by role:", *amount_rows(list(roles.items()), span.ledger.inputs)]
    if span.documents:
        ordered = sorted(span.by_document().items(), key=lambda one: -abs(one[1]))
        lines += ["", "by document:", *amount_rows(ordered[:SHOWN])]
        lines += [f"  and {len(ordered) - SHOWN} more"] if len(ordered) > SHOWN else []
    lines += ["", "largest sentences:", *amount_rows(texts), "", *ledger_lines(span.ledger)]
    return "\n".join(lines)


def amount_rows(named: Sequence[tuple[str, float]], total: float | None = None) -> list[str]:
    """Amounts before their names. With a total, what is shown adds up to it."""
    values = [value for _, value in named]
    places = decimals([*values, 0.0 if total is None else total])
    shown = values if total is None else round_to_sum(values, total, places)
    amounts = [with_sign(value, places) for value in shown]
    width = max(map(len, amounts), default=0)
    return [f"  {amount.rjust(width)}  {visible(name)}" for amount, (name, _) in zip(amounts, named, strict=True)]


def source_name(span: SpanExplanation, document: int | None, role: str, text: str) -> str:
    """Where a sentence is from, and its beginning."""
    where = role if document is None else span.documents[document]
    return f"{where}: {clip(text)}" if text else where


def clip(text: str) -> str:
    one_line = " ".join(visible(text).split())
    return one_line if len(one_line) <= WIDTH else f"{one_line[: WIDTH - 1]}…"


def plain_answer(report: AnswerReport) -> str:
    """The whole answer: each sentence with its verdict and its sources, then what happens without each document."""
    lines = [visible(report.text.strip())]
    for number, (span, sources) in enumerate(zip(report.spans, report.citations, strict=True)):
        said = "".join(part.text for part in report.verdict(number))
        lines += ["", f"{number + 1}. {clip(span.text)}"]
        lines += wrap(f"{said}.", COLUMNS, initial_indent="   ", subsequent_indent="   ")
        lines += [f"   {line}" for line in citation_lines(report.documents, sources)]
    if report.without:
        lines += ["", "log-probability of the same answer without a document:"]
        lines += [f"  {one.before:.2f} -> {one.after:.2f}  {clip(one.name)}" for one in report.without]
        others = len(report.documents) - len(report.without)
        less = say_count(others, "other gives less, and was not left out", "others give less, and were not left out")
        lines += [f"  {less}"] if others else []
    return "\n".join(lines)


def plain_tellers(told: WhoTold) -> str:
    """Who told it to: in a sentence, the share of every role, and the sentences that were left out."""
    said = "".join(part.text for part in told.verdict())
    lines = [f"span: {clip(told.text)}", *wrap(f"{said}.", COLUMNS), "", "share of what adds, by role:"]
    lines += [f"  {share:4.0%}  {visible(role)}" for role, share in told.shares.items()]
    lines += ["", "sentences, left out one by one:", "  share    drop  who"]
    for one in told.sentences:
        mark = " *" if one.decisive else ""
        where = one.role if one.turn is None else f"{one.role}, turn {one.turn + 1}"
        lines.append(f"  {one.share:5.0%}  {one.drop:+6.2f}  {clip(f'{where}: {one.text}')}{mark}")
    if any(one.decisive for one in told.sentences):
        lines.append("* decisive: at least ten times less likely without it")
    return "\n".join(lines)


def citation_lines(documents: Sequence[str], sources: Sequence[Citation]) -> list[str]:
    """A line per source: its share, what its loss does, and how many others' matter less."""
    if not sources:
        return []
    found = ["share    drop  sure  source"]
    for one in sources:
        sure = "   -" if one.sure is None else f"{one.sure:4.0%}"
        name = clip(f"{documents[one.document]}: {one.text}")
        found.append(f"{one.share:5.0%}  {one.drop:+6.2f}  {sure}  {name}")
    return found
