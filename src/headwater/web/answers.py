"""Whole answers: a question about documents, and which of their sentences the model's answer rests on."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..inputs.document_files import read_content
from ..results.answer_report import AnswerReport, Citation, LeftOut, describe_change, label_source
from ..viz import answer_page
from ..viz.colour import palette
from ..viz.reading import visible
from .answer_schemas import (
    AnswerAsked,
    AnswerSentence,
    CitationShown,
    DocumentAsked,
    DocumentFileAsked,
    DocumentLoss,
    DocumentRead,
    DocumentShown,
    SentenceSources,
    SourcesAnswer,
    WholeAnswer,
    WithoutAnswer,
)
from .models import Loaded
from .reports import write_json
from .schemas import TEXT, LedgerEntry
from .texts import ledger_answer, show_phrases

if TYPE_CHECKING:
    from ..api.answers import AnswerExplainer

LETTERS = 40_000  # of all documents of a request together


def answer_question(loaded: Loaded, ask: AnswerAsked) -> AnswerExplainer:
    return loaded.session.answer(
        ask.question,
        tokenizer=loaded.reader,
        documents=name_documents(ask.documents),
        answer=ask.answer,
        max_new_tokens=ask.new_tokens,
        method=ask.method,
        score=ask.score,
        sinks="aside" if ask.aside else "show",
    )


def read_document_file(ask: DocumentFileAsked) -> DocumentRead:
    """A file as the command line reads it. Of its name only the end counts; no file of the server is opened."""
    try:
        raw = base64.b64decode(ask.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("the file's content is no base64.") from error
    return DocumentRead(name=ask.name, text=read_content(raw, Path(ask.name), TEXT))


def name_documents(documents: list[DocumentAsked]) -> dict[str, str]:
    """Documents by their names; one without is numbered, and of two with the same the second says so."""
    letters = sum(len(one.text) for one in documents)
    if letters > LETTERS:
        raise InputError(f"all documents together may have {LETTERS:,} characters, and these have {letters:,}.")
    named: dict[str, str] = {}
    for number, one in enumerate(documents, 1):
        name, again = one.name.strip() or f"Document {number}", 1
        while (shown := name if again == 1 else f"{name} ({again})") in named:
            again += 1
        named[shown] = one.text
    return named


def whole_answer(found: AnswerExplainer) -> WholeAnswer:
    """What can be said without leaving anything out: one forward pass, and few backward passes."""
    spans = found.all_sentences()
    return WholeAnswer(
        text=visible(found.text.strip()),
        documents=[
            DocumentShown(name=visible(name), sentences=list(map(visible, sentences)))
            for name, sentences in zip(found.documents, found.document_sentences, strict=True)
        ],
        sentences=[
            AnswerSentence(
                text=visible(span.text),
                score=span.score,
                log_probability=span.log_probability,
                sources=[
                    [one.relevance for one in span.by_sentence() if one.document == number and one.text]
                    for number in range(len(found.documents))
                ],
                roles=[LedgerEntry(name=role, amount=amount) for role, amount in span.by_role().items()],
                ledger=ledger_answer(span.ledger, "tokens"),
            )
            for span in spans
        ],
        method=spans[0].method,
        score=spans[0].score_name,
        model=spans[0].provenance.model,
    )


def sources_answer(report: AnswerReport) -> SourcesAnswer:
    return SourcesAnswer(
        sentences=[
            SentenceSources(
                verdict=show_phrases(report.verdict(number)),
                citations=[show_citation(report.documents[one.document], one) for one in cited],
            )
            for number, cited in enumerate(report.citations)
        ],
        without=[
            DocumentLoss(name=visible(one.name), change=describe_change(one.before, one.after))
            for one in report.without
        ],
    )


def show_citation(document: str, one: Citation) -> CitationShown:
    return CitationShown(
        document=one.document,
        sentence=one.source,
        name=label_source(document, one.source),
        text=visible(one.text),
        share=one.share,
        drop=one.drop,
        change=describe_change(one.before, one.after),
        sure=one.sure,
    )


def leave_sources_out(found: AnswerExplainer, ask: AnswerAsked) -> LeftOut | None:
    """What was left out on the screen, if anything."""
    sources = [(one.document, one.sentence) for one in ask.left_out]
    return found.without_all(sources) if sources else None


def without_answer(left_out: LeftOut) -> WithoutAnswer:
    pairs = zip(left_out.sentences_before, left_out.sentences_after, strict=True)
    return WithoutAnswer(
        name=visible(left_out.name),
        before=left_out.before,
        after=left_out.after,
        change=describe_change(left_out.before, left_out.after),
        sentences=[describe_change(before, after) for before, after in pairs],
    )


def answer_report(report: AnswerReport, left_out: LeftOut | None, form: str, colours: str) -> str:
    if form == "json":
        more = {} if left_out is None else {"left_out": left_out.to_dict()}
        return write_json({**report.summary(), **more})
    with palette(colours):
        return answer_page.page(report, left_out=left_out)
