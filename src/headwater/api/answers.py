"""An answer and the model that gave it: asked for a span, it says what that rests on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ..engine.options import Options
from ..engine.session import Change, Session
from ..errors import UsageError, check_integer
from ..inputs.documents import Material, PromptPart, place_tokens, role_of_others
from ..inputs.restoring import restores
from ..plurals import say_count
from ..results.answer import OUTPUT, START, SpanExplanation, TextSentence, add_hop
from ..results.answer_report import AnswerReport, Citation, LeftOut
from ..results.explanation import Explanation
from ..results.generation import Generation
from ..results.sentences import find_sentences
from ..results.who_told import WhoTold
from .citations import (
    LEAST_SHARE,
    SOURCES,
    check_sources,
    choose_documents,
    choose_sources,
    cite_sources,
    weigh_citations,
)
from .generate import explain_tokens, join_tokens, one_score_at_once
from .leave_out import AnswerReader, Source, sentences_of
from .output_text import Text
from .span_scores import SpanReader, explain_readers, explain_spans, make_hop_readers
from .tellers import TELLERS, find_tellers
from .token_scores import Scoring

PASSED = 1e-3  # of a span's absolute relevance: where the model's own words have less, hops end


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

    @property
    def document_sentences(self) -> tuple[tuple[str, ...], ...]:
        """The sentences of every document; an empty document has none."""
        places = self._places[0]
        numbers = range(len(self.documents))
        return tuple(tuple(places[place].text for place in sentences_of(number, places)) for number in numbers)

    def sentence(self, number: int, *, hops: int = 0) -> SpanExplanation:
        """What one sentence of the answer rests on; its `number` counts from 0, a negative one from the end.

        With `hops`, what ended on the model's own words is passed on so often, by the same forward pass.
        """
        spans = self._sentence_spans()
        number = check_integer("the number of a sentence", number)
        if not -len(spans) <= number < len(spans):
            raise UsageError(f"no sentence {number}: the answer has {len(spans)}.")
        return self._explain_through(spans[number], hops)

    def span(self, words: str, occurrence: int = 0, *, hops: int = 0) -> SpanExplanation:
        """What some words of the answer rest on; all tokens with a letter of them belong to the span.

        `words` stand in the answer as they are given; where they do so several times, `occurrence` counts them from 0.
        With `hops`, what ended on the model's own words is passed on so often, by the same forward pass.
        """
        if not isinstance(words, str):
            raise UsageError(f"a span is named by its words, not by {words!r}.")
        found, start = [], self.text.find(words) if words.strip() else -1
        while start >= 0:
            found.append(start)
            start = self.text.find(words, start + 1)
        if not 0 <= occurrence < len(found):
            raise UsageError(
                f"{words!r} stands {say_count(len(found), 'time')} in the answer {self.text!r}; asked for {occurrence}."
            )
        return self._explain_through(self._tokens_of(found[occurrence], found[occurrence] + len(words)), hops)

    def whole(self, *, hops: int = 0) -> SpanExplanation:
        """What the whole answer rests on, as one score.

        With `hops`, what ended on the model's own words is passed on so often, by the same forward pass.
        """
        return self._explain_through((0, len(self._text.output)), hops)

    def all_sentences(self) -> list[SpanExplanation]:
        """What every sentence rests on: one forward pass for all, and few backward passes."""
        return list(self._sentences)

    def tokens(self) -> Generation:
        """The answer token by token, as `explain_generation` gives it: one row per output token."""
        return self._tokens

    def through(self, span: SpanExplanation) -> SpanExplanation:
        """The span, with what ended on the model's own words passed on to what these came from: to the prompt.

        It explains every token of the answer, once. `span.through()` goes hop by hop instead, a pass for each.
        """
        return span.through(self._tokens)

    def without(self, document: int, sentence: int | None = None) -> LeftOut:
        """Asks again without a document, or without one sentence of it: the same answer's log-probability, then and
        now. Both count from 0.

        `document` and `sentence` are their numbers; without `sentence`, all of the document is left out.
        """
        return self.without_all([(document, sentence)])

    def without_all(self, sources: Sequence[Source]) -> LeftOut:
        """Asks again without several `sources` at once: each a document and a sentence of it, or None for all of it."""
        return self._reader.leave_out([self._reader.find_sources(sources)])[0]

    def citations(
        self, most: int = SOURCES, least: float = LEAST_SHARE, *, ablations: int | None = None
    ) -> list[list[Citation]]:
        """For each sentence of the answer, the documents' sentences that carry it.

        At most `most` of them, each of a share of at least `least`. Every source is then left out, and the model reads
        the same answer again: by how much the sentence's log-probability falls is `drop`. Some others are left out,
        too, for `sure`: a source is sure whose loss matters more than theirs. Prompts are read in batches without
        gradients, and each serves all sentences of the answer.

        `ablations`: so many random halves of all sources are left out besides, and a sparse linear model is fitted to
        the log-probabilities, as ContextCite does. A source then has a `weight`, and `sure` is how often that is above
        zero when what was measured is drawn again: two sources that say the same are found by it, too.
        """
        most = check_integer("most", most, 0)
        cited = cite_sources(self._reader, [choose_sources(span, most, least) for span in self._sentences])
        if ablations is None or not any(cited):
            return cited
        return weigh_citations(self._reader, cited, ablations, self._options.seed)

    def told(self, span: SpanExplanation | None = None, most: int = TELLERS) -> WhoTold:
        """Who told it to say a `span`, by default the whole answer: the roles of a chat, and its decisive sentences.

        Of every role the sentences with most relevance are left out one by one, at most `most` of each.
        """
        most = check_integer("most", most, 0)
        asked = span or self.whole()
        if asked.tokens != tuple(self._text.tokenizer.convert_ids_to_tokens(self._text.ids)):
            raise UsageError("the span is of another prompt or answer: ask for one of this answer.")
        return find_tellers(self._reader, asked, most)

    def report(self, most: int = SOURCES, least: float = LEAST_SHARE) -> AnswerReport:
        """All of the answer as one value: every sentence, its sources, and what happens without each document.

        A sentence has at most `most` sources, each of a share of at least `least`.
        Of many documents, eight are left out as a whole: those with cited sentences, then those of most relevance.
        """
        cited = self.citations(most, least)
        chosen = [choose_sources(span, most, least) for span in self._sentences]
        left_out = choose_documents(self._sentences, cited)
        return AnswerReport(
            question=self._material.question,
            text=self.text,
            documents=self.documents,
            spans=self._sentences,
            citations=tuple(map(tuple, cited)),
            without=tuple(self._reader.leave_out([((document, None),) for document in left_out])),
            tried=tuple(check_sources(self._reader, chosen)),
        )

    @functools.cached_property
    def _sentences(self) -> tuple[SpanExplanation, ...]:
        return tuple(span for span, _ in self._explain(self._sentence_spans()))

    @functools.cached_property
    def _reader(self) -> AnswerReader:
        return AnswerReader(self._session, self._material, self._text, self._places[0], self._sentence_spans())

    @functools.cached_property
    def _tokens(self) -> Generation:
        return self._explain_tokens()

    @restores
    def _explain_tokens(self) -> Generation:
        text, size = self._text, len(self._text.output)
        found = explain_tokens(self._session, self._options, text, self._scoring, size, self._change)
        return join_tokens(found, text, self._scoring).set_aside(sinks=self._aside[0], special=self._aside[1])

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

    def _trace(self, span: SpanExplanation, hops: int | None) -> SpanExplanation:
        """Hop by hop: what the model's own words have is the score of the next backward pass."""
        check_hops(hops)
        enough = PASSED * float(span.relevance.abs().sum())
        kept: set[int] = set()
        while hops is None or len(span.hops) < hops:
            amounts = self._own_amounts(span, kept)
            end = max((n + 1 for n, amount in enumerate(amounts) if amount), default=0)
            if not end or (hops is None and sum(map(abs, amounts)) <= enough):
                break
            span = self._pass_on(span, *self._explain([(0, end)], amounts)[0], kept)
        return span

    @restores
    def _explain_through(self, bounds: tuple[int, int], hops: int) -> SpanExplanation:
        """The span between two output tokens, and its hops, by one forward pass."""
        check_hops(hops)
        if not hops:
            return self._explain([bounds])[0][0]
        _, *later = readers = make_hop_readers(self._text, self._scoring, bounds, hops)
        needed = (0, bounds[1])
        found = explain_readers(self._session, self._options, self._text, readers, needed, one_score_at_once)
        kept: set[int] = set()
        with closing(found):
            span = self._make_span(bounds, *next(found))[0]
            for reader in later:
                amounts = self._own_amounts(span, kept)[: bounds[1]]
                if not any(amounts):
                    break
                reader.amounts = tuple(amounts)
                span = self._pass_on(span, *self._make_span((0, bounds[1]), *next(found)), kept)
        return span

    def _own_amounts(self, span: SpanExplanation, kept: set[int]) -> list[float]:
        """What ended on each output token; nothing for those that keep it, whose score is nearly nothing."""
        start, count = self._text.prompt, len(self._text.output)
        own = span.relevance[start : start + count].double().tolist()
        return [0.0 if n in kept else amount for n, amount in enumerate(own)]

    def _pass_on(
        self, span: SpanExplanation, hop: SpanExplanation, reader: SpanReader, kept: set[int]
    ) -> SpanExplanation:
        weights, amounts = reader.weights or (), reader.amounts or ()
        passed = [self._text.prompt + n for n, weight in enumerate(weights) if weight]
        kept |= {n for n, weight in enumerate(weights) if amounts[n] and not weight}
        return add_hop(span, hop, passed)

    @restores
    def _explain(
        self, spans: Sequence[tuple[int, int]], amounts: Sequence[float] | None = None
    ) -> list[tuple[SpanExplanation, SpanReader]]:
        scoring = replace(self._scoring, amounts=None if amounts is None else tuple(amounts))
        found = explain_spans(self._session, self._options, self._text, scoring, spans, self._change)
        return [self._make_span(bounds, *one) for bounds, one in zip(spans, found, strict=True)]

    def _make_span(
        self, bounds: tuple[int, int], explanation: Explanation, reader: SpanReader
    ) -> tuple[SpanExplanation, SpanReader]:
        text, (places, of_token), (start, end) = self._text, self._places, bounds
        ids = text.ids
        special = set(text.tokenizer.all_special_ids)
        tokens, pieces = tuple(text.tokenizer.convert_ids_to_tokens(ids)), tuple(text.pieces())
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
            tracer=self._trace,
        )
        return span.set_aside(sinks=self._aside[0], special=self._aside[1]), reader


def check_hops(hops: int | None) -> None:
    if hops is not None:
        check_integer("hops", hops, 0)
