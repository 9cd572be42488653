"""Passages by their similarity to a query, their words, and why one stands above another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..api.rank import rank
from ..errors import InputError, UsageError
from ..results.ranking import RankDifference, Ranking
from ..viz.colour import palette
from ..viz.reading import visible
from ..viz.sums import ledger_sum
from ..viz.two_texts import draw_ranking_page
from .models import Loaded
from .reports import check_form, write_json
from .similar import check_two_texts, plain_lengths, show_words, vector_options
from .similar_schemas import PassageShown, RankAnswer, RankAsked, WhyAnswer

DIRECTIONS = 2  # enough for every word's relevance: more change single pairs alone
LETTERS = 200_000  # of all passages of a request together


@dataclass(frozen=True)
class TimedRanking:
    """A ranking, and the seconds that it took."""

    ranking: Ranking
    seconds: float


def rank_passages(loaded: Loaded, ask: RankAsked) -> TimedRanking:
    letters = sum(map(len, ask.passages))
    if letters > LETTERS:
        raise InputError(f"all passages together may have {LETTERS:,} characters, and these have {letters:,}.")
    names = [f"passage {number}" for number in range(1, len(ask.passages) + 1)]
    query, *passages = check_two_texts(loaded, [ask.query, *ask.passages], ["the query", *names])
    started = time.perf_counter()
    with plain_lengths():
        found = rank(loaded.model, query, passages, directions=DIRECTIONS, **vector_options(loaded))
    return TimedRanking(found, time.perf_counter() - started)


def show_passages(ranking: Ranking, places: Sequence[int]) -> list[PassageShown]:
    """All of them in their order; those at `places` with their words."""
    return [show_passage(ranking, place, number, place in places) for place, number in enumerate(ranking.order)]


def show_passage(ranking: Ranking, place: int, number: int, words: bool) -> PassageShown:
    return PassageShown(
        place=place,
        number=number,
        score=ranking.scores[number],
        text=visible(ranking.passages[number]),
        words=show_words(ranking.words(place)) if words else None,
    )


def rank_answer(found: TimedRanking, ask: RankAsked, model: str) -> RankAnswer:
    ranking = found.ranking
    return RankAnswer(
        measure=ranking.measure,
        passages=show_passages(ranking, ask.places),
        seconds=found.seconds,
        model=model,
    )


def compare_places(ranking: Ranking, ask: RankAsked) -> RankDifference:
    if ask.above == ask.below:
        raise UsageError("a passage does not stand above itself: choose two.")
    return ranking.why(ask.above, ask.below)


def why_answer(ranking: Ranking, ask: RankAsked) -> WhyAnswer:
    why, order = compare_places(ranking, ask), ranking.order
    return WhyAnswer(
        score=why.score,
        measure=ranking.measure,
        above=show_passage(ranking, ask.above, order[ask.above], True),
        below=show_passage(ranking, ask.below, order[ask.below], True),
        query=show_words(why.query_words()),
        rest=why.query_rest,
        sum=ledger_sum(why.ledger, "pairs"),
        closed=why.ledger.closed,
    )


def rank_report(found: TimedRanking, ask: RankAsked, form: str, colours: str) -> str:
    """The order as a file, with the words of the places that were asked for, and why one stands above another."""
    ranking = found.ranking
    places = [place for place in ask.places if place < len(ranking)]
    why = compare_places(ranking, ask) if len(ranking) > 1 else None
    if form == "json":
        return write_json(ranking_record(ranking, places, why))
    check_form(form)
    with palette(colours):
        return draw_ranking_page(ranking, places, why)


def ranking_record(ranking: Ranking, places: list[int], why: RankDifference | None) -> dict[str, object]:
    record: dict[str, object] = {
        "query": ranking.query,
        "measure": ranking.measure,
        "passages": [one.model_dump() for one in show_passages(ranking, places)],
    }
    if why is not None:
        words = [{"word": word.text, "relevance": word.relevance} for word in why.query_words()]
        record["difference"] = {"score": why.score, "query": words, "rest": why.query_rest}
    return record
