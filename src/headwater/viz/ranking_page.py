"""A ranking as a page that loads nothing: the order, words of passages, and why one stands above another."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headwater.results.ranking import RankDifference, Ranking

from .html import amounts, document, ledger_section, running_text
from .reading import decimals, visible, word_cells


def draw_ranking_page(ranking: Ranking, places: Sequence[int], why: RankDifference | None = None) -> str:
    """All passages in their order; those at `places` with their words in colour; the difference of two of them."""
    difference = "" if why is None else f"<h2>Why this above that?</h2>{draw_difference(why)}"
    return document(f"<article>{draw_order(ranking, places)}{difference}</article>", title="A ranking")


def draw_order(ranking: Ranking, places: Sequence[int] = ()) -> str:
    rows = "".join(
        f'<li value="{place + 1}"><p class="n">{ranking.scores[number]:+.4f}</p>{write_passage(ranking, place, places)}'
        "</li>"
        for place, number in enumerate(ranking.order)
    )
    return f"<h2>{escape(ranking.measure.capitalize())} with: {escape(visible(ranking.query))}</h2><ol>{rows}</ol>"


def write_passage(ranking: Ranking, place: int, places: Sequence[int]) -> str:
    if place in places:
        return running_text(word_cells(ranking.words(place)))
    return f"<p>{escape(visible(ranking.passages[ranking.order[place]]))}</p>"


def draw_difference(why: RankDifference) -> str:
    """The words of the query and what its biases do: together the difference of two similarities."""
    rows = [(visible(word.text), word.relevance) for word in why.query_words()]
    rows.append(("biases of the query", why.query_rest))
    table = amounts(("word of the query", "more"), rows, ("difference", why.score), decimals([why.score], digits=4))
    above, below = (escape(visible(one.b.text)) for one in (why.first, why.second))
    return (
        f"<p><strong>above</strong> {above}</p><p><strong>below</strong> {below}</p>"
        f"{table}{ledger_section(why.ledger, 'ledger of the difference', 'pairs')}"
    )
