"""An answer and the model that gave it: asked for a span, it says what that rests on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..engine.options import Options
from ..engine.session import Change, Session
from ..errors import UsageError
from ..inputs.documents import Material, PromptPart, place_tokens, role_of_others
from ..inputs.restoring import restores
from ..results.answer import OUTPUT, START, Citation, LeftOut, SourceSentence, SpanExplanation, TextSentence
from ..results.generation import Generation
from ..results.sentences import find_sentences
from .generate import explain_tokens, join_tokens
from .output_text import Text
from .span_scores import explain_spans, measure_logprobs
from .token_scores import Scoring

SOURCES, LEAST_SHARE, COMPARED = 3, 0.1, 8  # of citations: most sources a sentence, the least share, others left out


@dataclass(frozen=True, eq=False)
class AnswerExplainer:
    """What `explain_answer` gives: an answer, and the model that is asked where its parts came from.

    What its functions give are values that need no model.
    """

    _session: Session
    _options: Options
    _scoring: Scoring
    _material: Material
    _text: Text
    _parts: list[PromptPart]
    _aside: tuple[bool, bool]  # whether sinks and special tokens are set aside
    _change: Change

    @functools.cached_property
    def pieces(self) -> tuple[str, ...]:
        """The answer's tokens as text; they join to it."""
        return tuple(self._text.pieces()[self._text.prompt :])

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self.pieces)

    @property
    def prompt(self) -> str:
        """All that the model was asked with, as one text."""
        return self._text.said.text

    @property
    def documents(self) -> tuple[str, ...]:
        """The names of the documents."""
        return self._material.names

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the answer."""
        return tuple("".join(self.pieces[start:end]).strip() for start, end in self._sentence_spans())

    def sentence(self, number: int) -> SpanExplanation:
        """What one sentence of the answer rests on, by its number from 0, negative from the end."""
        spans = self._sentence_spans()
        if not -len(spans) <= number < len(spans):
            raise UsageError(f"no sentence {number}: the answer has {len(spans)}.")
        return self._explain([spans[number]])[0]

    def span(self, words: str, occurrence: int = 0) -> SpanExplanation:
        """What some words of the answer rest on; all tokens with a letter of them belong to the span."""
        found, start = [], self.text.find(words) if words.strip() else -1
        while start >= 0:
            found.append(start)
            start = self.text.find(words, start + 1)
        if not 0 <= occurrence < len(found):
            raise UsageError(
                f"{words!r} stands {len(found)} times in the answer {self.text!r}; asked for {occurrence}."
            )
        return self._explain([self._tokens_of(found[occurrence], found[occurrence] + len(words))])[0]

    def whole(self) -> SpanExplanation:
        """What the whole answer rests on, as one score."""
        return self._explain([(0, len(self._text.output))])[0]

    def all_sentences(self) -> list[SpanExplanation]:
        """What every sentence rests on: one forward pass for all, and few backward passes."""
        return list(self._sentences)

    def tokens(self) -> Generation:
        """The answer token by token, as `explain_generation` gives it: one row per output token."""
        return self._tokens

    def through(self, span: SpanExplanation) -> SpanExplanation:
        """The span, with what ended on the model's own words passed on to what these came from: to the prompt."""
        return span.through(self._tokens)

    def without(self, document: int) -> LeftOut:
        """Asks again without a document, by its number from 0: the log-probability of the same answer, then and now."""
        count = len(self._material.texts)
        if not -count <= document < count:
            raise UsageError(f"no document {document}: there are {count}, counted from 0.")
        number = document % count
        before, after = self._by_sentence(self._logprobs), self._by_sentence(self._read(self._material.without(number)))
        return LeftOut(
            number,
            self.documents[number],
            before=sum(before),
            after=sum(after),
            sentences_before=before,
            sentences_after=after,
        )

    def citations(self, most: int = SOURCES, least: float = LEAST_SHARE) -> list[list[Citation]]:
        """For each sentence of the answer, the documents' sentences that carry it: at most so many, each of this share.

        Every source is then left out, and the model reads the same answer again: by how much the sentence's
        log-probability falls is `drop`. Some others are left out, too, for `sure`: a source is sure whose loss matters
        more than theirs. Each costs one forward pass, which serves all sentences of the answer.
        """
        chosen = [choose_sources(span, most, least) for span in self.all_sentences()]
        cited = {source.number: source for one in chosen for source, _ in one}
        places = self._places[0]
        rest = [n for n, place in enumerate(places) if place.document is not None and place.text and n not in cited]
        compared = [rest[k * len(rest) // COMPARED] for k in range(COMPARED)] if len(rest) > COMPARED else rest
        before = self._by_sentence(self._logprobs)
        drops = {number: self._drops(number, before) for number in [*cited, *compared]}
        return [
            [cite(number, source, share, drops) for source, share in sources] for number, sources in enumerate(chosen)
        ]

    def _drops(self, place: int, before: tuple[float, ...]) -> tuple[float, ...]:
        """By how much each sentence's log-probability falls when one sentence of a document is left out."""
        after = self._by_sentence(self._read(self._leave_out(place)))
        return tuple(a - b for a, b in zip(before, after, strict=True))

    def _leave_out(self, number: int) -> Material:
        place = self._places[0][number]
        assert place.document is not None
        document, start, end = self._material.texts[place.document], 0, 0
        for one in self._places[0][: number + 1]:  # sentences come in order, so a repeated one is told apart
            if one.document == place.document:
                start = document.find(one.text, end)
                end = start + len(one.text)
        return self._material.without(place.document, start, end)

    def _read(self, material: Material) -> Tensor:
        said, _ = material.render(self._text.tokenizer)
        session = self._session
        return measure_logprobs(session, Text.of(session.model, self._text.tokenizer, said, self._text.output))

    @functools.cached_property
    def _sentences(self) -> tuple[SpanExplanation, ...]:
        return tuple(self._explain(self._sentence_spans()))

    @functools.cached_property
    def _logprobs(self) -> Tensor:
        return measure_logprobs(self._session, self._text)

    @functools.cached_property
    def _tokens(self) -> Generation:
        return self._explain_tokens()

    @restores
    def _explain_tokens(self) -> Generation:
        text, size = self._text, len(self._text.output)
        found = explain_tokens(self._session, self._options, text, self._scoring, size, self._change)
        return join_tokens(found, text, self._scoring).set_aside(sinks=self._aside[0], special=self._aside[1])

    def _by_sentence(self, logprobs: Tensor) -> tuple[float, ...]:
        return tuple(float(logprobs[start:end].sum()) for start, end in self._sentence_spans())

    def _sentence_spans(self) -> list[tuple[int, int]]:
        """The sentences as spans of tokens, which cover the answer: a token belongs to that with its first letter."""
        begins = [self._tokens_of(start, end)[0] for start, end in find_sentences(self.text)]
        begins = sorted({0, *begins[1:]})
        return list(zip(begins, [*begins[1:], len(self._text.output)], strict=True))

    def _tokens_of(self, start: int, end: int) -> tuple[int, int]:
        """The output tokens with letters from `start` to `end` of the answer."""
        inside, done = [], 0
        for number, piece in enumerate(self.pieces):
            done, begin = done + len(piece), done
            if piece and begin < end and done > start:
                inside.append(number)
        return inside[0], inside[-1] + 1

    @functools.cached_property
    def _places(self) -> tuple[tuple[TextSentence, ...], tuple[int, ...]]:
        """The sentences of prompt and answer, and the number of its sentence for every token."""
        places, of_token = place_tokens(self._text.said, self._parts, role_of_others(self._material))
        if self._text.start:
            of_token += [len(places)] * len(self._text.start)
            places.append(TextSentence("", START))
        for start, end in self._sentence_spans():
            of_token += [len(places)] * (end - start)
            places.append(TextSentence("".join(self.pieces[start:end]).strip(), OUTPUT))
        return tuple(places), tuple(of_token)

    @restores
    def _explain(self, spans: Sequence[tuple[int, int]]) -> list[SpanExplanation]:
        text, (places, of_token) = self._text, self._places
        ids = [*text.said.ids, *text.start, *text.output]
        special = set(text.tokenizer.all_special_ids)
        tokens, pieces = tuple(text.tokenizer.convert_ids_to_tokens(ids)), tuple(text.pieces())
        made = []
        found = explain_spans(self._session, self._options, text, self._scoring, spans, self._change)
        for (start, end), (explanation, reader) in zip(spans, found, strict=True):
            relevance = explanation.relevance.new_zeros(len(ids))
            relevance[: len(explanation.relevance)] = explanation.relevance
            span = SpanExplanation(
                text="".join(self.pieces[start:end]).strip(),
                tokens=tokens,
                pieces=pieces,
                relevance=relevance,
                ledger=explanation.ledger,
                first=text.prompt + start,
                last=text.prompt + end,
                passages=places,
                place=of_token,
                documents=self.documents,
                log_probability=reader.logprob or 0.0,
                score_name=self._scoring.score,
                method=explanation.method,
                provenance=explanation.provenance,
                special=tuple(token in special for token in ids),
                aside=(False,) * len(ids),
                at=explanation.at,
                rules_met=explanation.rules_met,
            )
            made.append(span.set_aside(sinks=self._aside[0], special=self._aside[1]))
        return made


def choose_sources(span: SpanExplanation, most: int, least: float) -> list[tuple[SourceSentence, float]]:
    """The sentences of documents that carry a span, each with its share of the positive relevance of all of them."""
    sources = [one for one in span.by_sentence() if one.document is not None and one.relevance > 0 and one.text]
    total = sum(one.relevance for one in sources) or 1.0
    ordered = sorted(sources, key=lambda one: -one.relevance)[:most]
    return [(one, one.relevance / total) for one in ordered if one.relevance >= least * total]


def cite(sentence: int, source: SourceSentence, share: float, drops: dict[int, tuple[float, ...]]) -> Citation:
    assert source.document is not None
    own = drops[source.number][sentence]
    others = [drop[sentence] for number, drop in drops.items() if number != source.number]
    sure = sum(drop < own for drop in others) / len(others) if others else None
    return Citation(sentence, source.document, source.text, source.relevance, share, own, sure)
