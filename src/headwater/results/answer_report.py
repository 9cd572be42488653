"""A whole answer as one value: its sentences, the sources that carry each, and what happens without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .answer import OUTPUT, SourceSentence, SpanExplanation
from .display import Shown
from .files import Saved
from .readable import visible
from .verdict import Phrase

MATTERS = 0.4  # of a log-probability: what takes less (the sentence is a third less likely) is not what it rests on
SHOWN = 0.005  # a probability from which on it is written as a percentage; below it, how many times less likely
TINY = 1e-5  # of a probability, where percentages end


@dataclass(frozen=True)
class Citation:
    """A sentence of a document that carries a sentence of the answer.

    `sentence` is the number of the answer's sentence, `source` that of the document's own; both count from 0. `share`:
    this source's part of all positive relevance that sentences of documents have for it. `before`: the log-probability
    of the answer's sentence. `drop`: by how much that falls when the source is left out of the prompt and the model
    reads the same answer again. `sure`: of other sources that were left out likewise, the part whose drop is smaller; 1
    where none matters as much, None where there was no other. `weight` is that of a sparse model of random halves of
    all sources, where it was asked for; `sure` is then how often it is above zero.
    """

    sentence: int
    document: int
    source: int
    text: str
    relevance: float
    share: float
    before: float
    drop: float
    sure: float | None
    weight: float | None = None

    @property
    def after(self) -> float:
        """The log-probability of the answer's sentence without this source."""
        return self.before - self.drop


@dataclass(frozen=True)
class LeftOut:
    """The same answer, read again without some sources: log-probabilities before and after, whole and by sentence.

    `document` is the number of the (first) document that was left out or lost sentences, `name` says what is missing.
    `sources` are all of it: a document and one of its sentences, or None where all of it is missing.
    """

    document: int
    name: str
    before: float
    after: float
    sentences_before: tuple[float, ...]
    sentences_after: tuple[float, ...]
    sources: tuple[tuple[int, int | None], ...] = ()

    @property
    def drop(self) -> float:
        """By how much the log-probability of the answer falls. Below zero, the source stood against the answer."""
        return self.before - self.after

    @property
    def drops(self) -> tuple[float, ...]:
        """The same for every sentence of the answer."""
        return tuple(a - b for a, b in zip(self.sentences_before, self.sentences_after, strict=True))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "drop": self.drop}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> LeftOut:
        kept = {name: value for name, value in found.items() if name != "drop"}
        for name in ("sentences_before", "sentences_after"):
            kept[name] = tuple(kept[name])
        return cls(**{**kept, "sources": tuple((document, sentence) for document, sentence in kept["sources"])})


@dataclass(frozen=True, eq=False)
class AnswerReport(Shown, Saved):
    """An answer with all that is known of it. It needs no model, and is what pages, tables and files are made of.

    `spans` has what each sentence rests on, `citations` its sources, `without` what happens without each document, and
    `tried` what happens without single sentences: those that are cited, and others to compare with.
    """

    kind: ClassVar[str] = "answer"

    question: str | None
    text: str
    documents: tuple[str, ...]
    spans: tuple[SpanExplanation, ...]
    citations: tuple[tuple[Citation, ...], ...]
    without: tuple[LeftOut, ...]
    tried: tuple[LeftOut, ...] = ()

    def sources_of(self, sentence: int) -> tuple[tuple[SourceSentence, ...], ...]:
        """By document, what each of its sentences gave to one sentence of the answer. An empty document has none."""
        found = [one for one in self.spans[sentence].by_sentence() if one.text]
        numbers = range(len(self.documents))
        return tuple(tuple(one for one in found if one.document == number) for number in numbers)

    def verdict(self, sentence: int) -> tuple[Phrase, ...]:
        """What one sentence of the answer rests on, in plain words."""
        if not 0 <= sentence < len(self.spans):
            raise UsageError(f"no sentence {sentence}: the answer has {len(self.spans)}.")
        return judge_sources(self.spans[sentence], self.citations[sentence], self.documents)

    def summary(self) -> dict[str, Any]:
        """Plain types, ready for JSON: what people read of it, without a number for every token."""
        return {
            "question": self.question,
            "answer": self.text,
            "documents": list(self.documents),
            "sentences": [
                {
                    "text": span.text,
                    "verdict": "".join(part.text for part in self.verdict(number)),
                    "score": span.score,
                    "log_probability": span.log_probability,
                    "by_role": span.by_role(),
                    "by_document": span.by_document(),
                    "citations": [asdict(one) for one in self.citations[number]],
                    "ledger": span.ledger.to_dict(),
                }
                for number, span in enumerate(self.spans)
            ],
            "without": [one.to_dict() for one in self.without],
            "tried": [one.to_dict() for one in self.tried],
        }

    def to_dict(self) -> dict[str, Any]:
        """The summary and every span in full; `from_dict` gives the report back."""
        return {**self._stamp(), **self.summary(), "spans": [span.to_dict() for span in self.spans]}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> AnswerReport:
        """What `to_dict` gave, also where it went through JSON."""
        cls._check_stamp(found)
        return cls(
            question=found["question"],
            text=found["answer"],
            documents=tuple(found["documents"]),
            spans=tuple(map(SpanExplanation.from_dict, found["spans"])),
            citations=tuple(tuple(Citation(**source) for source in one["citations"]) for one in found["sentences"]),
            without=tuple(map(LeftOut.from_dict, found["without"])),
            tried=tuple(map(LeftOut.from_dict, found["tried"])),
        )


def judge_sources(span: SpanExplanation, sources: Sequence[Citation], documents: Sequence[str]) -> tuple[Phrase, ...]:
    """What a sentence rests on. A source is named only where leaving it out matters; relevance alone proves nothing."""
    if not sources:
        return (Phrase(f"rests on no sentence of a document; {largest_role(span)}"),)
    best = max(sources, key=lambda one: one.drop)
    name = Phrase(label_source(documents[best.document], best.source), named=True)
    change = describe_change(best.before, best.after)
    if best.drop < MATTERS:
        return Phrase("rests on no single sentence of a document; without "), name, Phrase(f": {change}")
    return Phrase("rests on "), name, Phrase(f"; without it {change}")


def largest_role(span: SpanExplanation) -> str:
    """Whose words gave most to a span, as the end of a sentence."""
    roles = span.by_role()
    named = {OUTPUT: "the answer's own beginning", "document": "the documents as a whole", "template": "the template"}
    best = max(roles, key=lambda role: roles[role])
    return (
        f"most comes from {named.get(best, f'the {best}')}"
        if roles[best] > 0
        else "no words of the prompt speak for it"
    )


def label_source(document: str, sentence: int | None) -> str:
    """A source as people count: sentences from 1."""
    return visible(document) if sentence is None else f"{visible(document)}, sentence {sentence + 1}"


def describe_change(before: float, after: float) -> str:
    """Two log-probabilities in plain words: 71 % → 9 %, or how many times less likely where both are small."""
    if math.exp(before) >= SHOWN:
        return f"{show_probability(before)} → {show_probability(after)}"
    factor = math.exp(min(abs(before - after), 700.0))
    if factor < 1.05:
        return "as likely as before"
    shown = "more than a million" if factor >= 1e6 else f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"
    return f"{shown} times {'less likely' if after < before else 'likelier'}"


def show_probability(logprob: float) -> str:
    """A probability in per cent, with as many places as a small one needs."""
    share = math.exp(min(logprob, 0.0))
    if share < TINY:
        return "less than 0.001 %"
    value = share * 100
    if value >= 99.5:
        return "100 %" if value >= 99.95 else f"{value:.1f} %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"
