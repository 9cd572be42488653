"""Rows that are questions about documents: each is answered, and its answer explained sentence by sentence.

A row of the results is the explanation of the whole answer, as of any text, with the answer's own columns beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from ..api.explain_answer import check_room, explain_answer
from ..errors import HeadwaterError, InputError
from ..inputs.documents import Documents, Material
from ..results.answer_report import AnswerReport
from ..results.explanation import Explanation
from ..results.generation import OUTPUT_OF
from ..store.columns import ANSWER_COLUMNS, answer_types
from .explaining import Explainer, TokenisedRow, to_arrays
from .reading.rows import EMPTY, NOT_TEXT, TOO_LONG, Bad, escape_beginning
from .reading.sources import InputFiles
from .settings import JobSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class QuestionRow(TokenisedRow):
    """A question that can be asked. `encoded` is always None: its prompt is made when it is asked."""

    documents: Documents = ()
    answer: str | None = None


class AnswerRows(Explainer):
    """A language model with its settings, ready for chunks of questions."""

    def __init__(self, model: nn.Module, tokenizer: Any, settings: JobSettings, sources: InputFiles) -> None:
        super().__init__(model, tokenizer, settings, sources)
        self.score: str = {output: score for score, output in OUTPUT_OF.items()}.get(settings.output, settings.output)
        self.reports: dict[int, AnswerReport] = {}

    def read_beside(self, texts: Sequence[str | Bad | None], carried: pa.Table | None) -> Sequence[Any]:
        """The other columns of each question, its documents among them."""
        assert carried is not None
        return list(carried.to_pylist())

    def row(self, row: int, text: str | Bad, known: Any) -> TokenisedRow | Bad:
        if isinstance(text, Bad):
            return text
        if not text.strip():
            return Bad(EMPTY, "the question is empty", escape_beginning(text))
        try:
            documents = read_row_documents(known, self.settings.documents or ())
            answer = None if self.settings.answer is None else read_answer(known[self.settings.answer])
        except InputError as error:
            return Bad(NOT_TEXT, str(error), escape_beginning(text))
        try:
            material = Material.of(text, documents, None, None)
            said, _ = material.render(self.job.tokenizer)
            check_room(said, material, self.job.limit)
        except HeadwaterError as error:
            return Bad(TOO_LONG, str(error), escape_beginning(text))
        return QuestionRow(row, text, len(said.ids), None, documents, answer)

    def explain_batch(self, batch: Sequence[TokenisedRow]) -> list[Explanation]:
        """Rows come one by one: each has a prompt and an answer of its own."""
        made = []
        for row in batch:
            assert isinstance(row, QuestionRow)
            found = explain_answer(
                self.session.model,
                row.text,
                tokenizer=self.job.tokenizer,
                documents=row.documents,
                answer=row.answer,
                max_new_tokens=self.settings.max_new_tokens,
                method=self.settings.method,
                score=self.score,
                sinks=self.settings.sinks,
                at=self.settings.at,
                dtype=self.settings.dtype,
                seed=self.settings.seed,
            )
            self.reports[row.id] = found.report()
            made.append(replace(found.whole().as_explanation(), text=row.text))
        return made

    def more_columns(self, ids: Sequence[int]) -> dict[str, pa.Array]:
        """The answers beside them."""
        rows = [answer_row(self.reports[i]) for i in ids]
        self.reports.clear()
        return to_arrays(rows, answer_types())


def answer_row(report: AnswerReport) -> dict[str, Any]:
    """The columns of one answer: its text, its sentences with their sources, and what happens without each document."""
    sentences = [
        {
            "text": span.text,
            "verdict": "".join(part.text for part in report.verdict(number)),
            "log_probability": span.log_probability,
            "score": span.score,
            "closed": span.ledger.closed,
            "by_role": list(span.by_role().items()),
            "by_document": list(span.by_document().items()),
            "citations": [
                {
                    "document": report.documents[one.document],
                    "sentence": one.source,
                    "text": one.text,
                    "share": one.share,
                    "drop": one.drop,
                    "sure": one.sure,
                }
                for one in cited
            ],
        }
        for number, (span, cited) in enumerate(zip(report.spans, report.citations, strict=True))
    ]
    drops = [(one.name, one.drop) for one in report.without]
    return dict(zip(ANSWER_COLUMNS, (report.text, sentences, drops), strict=True))


def read_row_documents(row: Mapping[str, Any], columns: Sequence[str]) -> Documents:
    """The documents of a row. One column: a text, a list, or {name: text}, also as JSON. Several: a text each."""
    if len(columns) != 1:
        return {column: read_answer(row[column]) or "" for column in columns}
    value = row[columns[0]]
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError:  # a text that begins with a bracket
            return [value]
    if value is None or value == "":
        return []
    if isinstance(value, Mapping):
        return {str(name): check_document(text) for name, text in value.items() if text is not None}
    if isinstance(value, (list, tuple)):
        return [check_document(text) for text in value]
    return [check_document(value)]


def check_document(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"a document holds {type(value).__name__}, not a text.")
    return value


def read_answer(value: Any) -> str | None:
    """A given answer; where the cell is empty the model answers by itself."""
    if value is not None and not isinstance(value, str):
        raise InputError(f"the cell holds {type(value).__name__}, not a text.")
    return value or None
