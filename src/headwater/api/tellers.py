"""Finds who told a model to say a span: sentences of turns and documents, each left out once."""

from __future__ import annotations

from collections.abc import Sequence

from ..inputs.documents import Material
from ..inputs.prompt import Prompt
from ..results.answer import OUTPUT, SourceSentence, SpanExplanation, TextSentence
from ..results.who_told import ToldSentence, WhoTold
from .leave_out import AnswerReader, leave_out, sentences_of

TELLERS = 3  # sentences of each role that are left out


def find_tellers(reader: AnswerReader, span: SpanExplanation, most: int) -> WhoTold:
    """The roles that a span rests on, and their sentences with most relevance, each left out once."""
    chosen = choose_tellers(span, most)
    total = sum(one.relevance for one in span.by_sentence() if one.role != OUTPUT and one.relevance > 0)
    own = slice(span.first - reader.text.prompt, span.last - reader.text.prompt)
    before = float(reader.original.logprobs[own].sum())
    left = reader.read(
        [leave_place_out(reader.material, reader.places, one.number, reader.text.said) for one in chosen]
    )
    after = [float(logprobs[own].sum()) for logprobs in left]
    told = [describe_teller(span, one, total, before, now) for one, now in zip(chosen, after, strict=True)]
    return WhoTold(span.text, before, span.by_role(), tuple(sorted(told, key=lambda one: -one.drop)))


def choose_tellers(span: SpanExplanation, most: int) -> list[SourceSentence]:
    """The sentences to leave out: of every role those with most relevance, at most so many each."""
    found: dict[str, list[SourceSentence]] = {}
    for one in sorted(span.by_sentence(), key=lambda one: -one.relevance):
        place = span.passages[one.number]
        named = one.text and one.role != OUTPUT and (place.turn is not None or place.document is not None)
        if named and one.relevance > 0 and len(found.setdefault(one.role, [])) < most:
            found[one.role].append(one)
    return [one for some in found.values() for one in some]


def leave_place_out(material: Material, places: Sequence[TextSentence], number: int, said: Prompt) -> Material:
    """What is asked without one sentence of a document or of a turn; `said` is the whole prompt."""
    place = places[number]
    if place.document is not None:
        own = sentences_of(place.document, places)
        return leave_out(material, places, [(place.document, own.index(number))])
    assert place.turn is not None
    assert material.chat is not None
    start = end = 0
    for one in places[: number + 1]:  # all words come in order, so repeated ones are told apart
        start = said.text.find(one.text, end)
        end = start + len(one.text)
    content = material.chat[place.turn]["content"]
    (turn,) = (one for one in said.turns if one.turn == place.turn)
    shift = len(content) - len(content.lstrip()) - turn.start
    return material.without_words(place.turn, start + shift, end + shift)


def describe_teller(
    span: SpanExplanation, one: SourceSentence, total: float, before: float, after: float
) -> ToldSentence:
    place = span.passages[one.number]
    share = one.relevance / total if total else 0.0
    return ToldSentence(
        one.role, place.turn, one.document, one.text, one.relevance, share, before=before, drop=before - after
    )
