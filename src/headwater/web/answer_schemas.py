"""What the routes of answers about documents take and give."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from .schemas import (
    FILE,
    MASKED,
    NAME,
    PROMPT,
    TEXT,
    LedgerEntry,
    LedgerShown,
    ModelChosen,
    Name,
    PhraseShown,
    ScoreName,
    Strict,
)

DOCUMENTS = 200


class DocumentAsked(Strict):
    """A document that is put into the prompt, under its name."""

    name: str = Field(default="", max_length=NAME, description="Without one it is numbered.")
    text: str = Field(max_length=TEXT, description="The document itself.")


class DocumentFileAsked(Strict):
    """A file to be read as a document, as base64. What its name ends in says what it is: text, Markdown, HTML, PDF."""

    name: Annotated[Name, Field(description="The file's name, with its ending.")]
    content: str = Field(max_length=FILE, description="The file, as base64.")


class DocumentRead(BaseModel):
    """The text of a file, as it is put into a prompt."""

    name: str
    text: str


class SourceAsked(Strict):
    """A source: a document, and one of its sentences or all of it. Both count from 0."""

    document: int = Field(ge=0, le=DOCUMENTS - 1)
    sentence: int | None = Field(default=None, ge=0, le=TEXT - 1)


class AnswerAsked(Strict):
    """A question about documents. The model answers it, or `answer` is explained as if it had."""

    question: str = Field(min_length=1, max_length=PROMPT, description="What the model is asked.")
    documents: list[DocumentAsked] = Field(default=[], max_length=DOCUMENTS, description="In the prompt's order.")
    answer: str | None = Field(
        default=None, min_length=1, max_length=PROMPT, description="Explain this in place of its own."
    )
    new_tokens: int = Field(default=60, ge=1, le=120, description="How many it writes at most.")
    method: Name | None = Field(default=None, description="By default the one of the model's kind.")
    score: ScoreName = "advantage"
    aside: bool = Field(default=True, description="Move the attention sink, the first token, to a line of the ledger.")
    model: ModelChosen = None
    left_out: list[SourceAsked] = Field(
        default=[], max_length=MASKED, description="Sources without which the same answer is read again."
    )


class DocumentShown(BaseModel):
    name: str
    sentences: list[str]


class AnswerSentence(BaseModel):
    """A sentence of the answer: what every sentence of every document gave to it, and whose words gave what."""

    text: str
    score: float
    log_probability: float
    sources: list[list[float]] = Field(description="Relevance by document, by sentence of it.")
    roles: list[LedgerEntry]
    ledger: LedgerShown


class WholeAnswer(BaseModel):
    text: str
    documents: list[DocumentShown]
    sentences: list[AnswerSentence]
    method: str
    score: str
    model: str


class CitationShown(BaseModel):
    """A source that carries a sentence; `change` says in words what happens without it."""

    document: int
    sentence: int
    name: str
    text: str
    share: float
    drop: float
    change: str
    sure: float | None


class SentenceSources(BaseModel):
    verdict: list[PhraseShown] = Field(description="What the sentence rests on, in plain words.")
    citations: list[CitationShown]


class DocumentLoss(BaseModel):
    name: str
    change: str


class SourcesAnswer(BaseModel):
    """What every sentence rests on, after its sources were left out one by one."""

    sentences: list[SentenceSources]
    without: list[DocumentLoss] = Field(
        description="The whole answer without each document, of many those that matter most."
    )


class WithoutAnswer(BaseModel):
    """The same answer, read again without some sources: log-probabilities, and how they moved in words."""

    name: str
    before: float
    after: float
    change: str
    sentences: list[str] = Field(description="How each sentence moved.")
