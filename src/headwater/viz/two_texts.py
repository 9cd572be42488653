"""Two texts and what their words have in common, and passages in their order: as text, as a picture, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headwater.results.ranking import RankDifference, Ranking
from headwater.results.similarity import Similarity
from headwater.results.words import Word

from ..plurals import say_count
from .colour import NEGATIVE, POSITIVE, largest
from .html import amounts, document, frame_sheet, ledger_section, running_text
from .plain import ledger_lines
from .reading import decimals, visible, word_cells

__all__ = ["draw_word_lines"]

SHOWN = 10  # pairs of words in a text
DRAWN_SHARE = 0.05  # of the strongest pair: a weaker one has no line
MOST_DRAWN = 60
LINE, LEFT, RIGHT, WIDTH = 24, 260, 460, 720  # pixels: height of a row, where the texts end and begin, the whole


def plain_similarity(similarity: Similarity) -> str:
    """The score, the strongest pairs of words, the ledger."""
    pairs = strong_words(similarity)
    widths = [max(map(len, column)) for column in zip(*((one, other) for one, other, _ in pairs), strict=True)]
    rows = [
        f"  {amount:+.4f}  {one.ljust(widths[0])}  {other.ljust(widths[1])}".rstrip() for one, other, amount in pairs
    ]
    return "\n".join([*head_lines(similarity), "", "pairs of words:", *rows, "", *ledger_lines(similarity.ledger)])


def strong_words(similarity: Similarity) -> list[tuple[str, str, float]]:
    """The strongest pairs of words, as they can be read."""
    return [(visible(one), visible(other), amount) for one, other, amount in similarity.words().strongest(SHOWN)]


def head_lines(similarity: Similarity) -> list[str]:
    by = similarity.method
    if similarity.dimensions:
        by += ", one dimension" if similarity.dimensions == 1 else f", all {similarity.dimensions} dimensions"
    if not similarity.exact:
        some = f"{say_count(similarity.rank, 'direction')} of {similarity.dimensions}"
        by = f"{similarity.method}, {some}: single pairs are approximate"
    missing = similarity.remainder
    said = [f"what the pairs miss has a norm of at most about {missing:.2g}"] if missing else []
    return [
        f"{similarity.measure} {similarity.score:+.4f} ({by})",
        *said,
        f"a: {visible(similarity.a.text)}",
        f"b: {visible(similarity.b.text)}",
    ]


def plain_ranking(ranking: Ranking) -> str:
    """The passages in their order."""
    found = enumerate(ranking.top(len(ranking)))
    rows = [f"{place:>4}  {score:+.4f}  {visible(text)}" for place, (text, score) in found]
    return "\n".join([f"{ranking.measure} with: {visible(ranking.query)}", *rows])


def plain_difference(difference: RankDifference) -> str:
    """The words of the query, and what each does more for the first passage than for the second."""
    rows = [f"  {word.relevance:+.4f}  {visible(word.text)}" for word in difference.query_words()]
    return "\n".join(
        [
            f"difference {difference.score:+.4f}",
            f"above: {visible(difference.first.b.text)}",
            f"below: {visible(difference.second.b.text)}",
            "",
            "words of the query:",
            *rows,
            f"  {difference.query_rest:+.4f}  (biases of the query)",
        ]
    )


def draw_word_lines(similarity: Similarity) -> str:
    """The words of the two texts in columns, a line for each pair, the thicker the stronger.

    Args:
        similarity: what `explain_similarity` gives.

    Returns:
        SVG.

    Example:
        >>> from headwater.viz.two_texts import draw_word_lines
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> s = hw.explain_similarity(model.bert, "a fine film", "a good movie", tokenizer=tokenizer, rank=2)
        >>> draw_word_lines(s).startswith("<svg")
        True
    """
    words = similarity.words()
    scale = largest(words.matrix.flatten().tolist()) or 1.0
    lines = []
    for i, j, amount in strong_pairs(similarity):
        hue = POSITIVE if amount > 0 else NEGATIVE
        said = escape(f"{visible(words.rows[i])} – {visible(words.columns[j])}: {amount:+.4f}")
        dash = "" if amount > 0 else ' stroke-dasharray="4 3"'  # colour is never the only sign
        lines.append(
            f'<line x1="{LEFT + 6}" y1="{middle(i)}" x2="{RIGHT - 6}" y2="{middle(j)}" '
            f'stroke="{write_colour(hue["light"])}" '
            f'stroke-width="{8 * abs(amount) / scale:.2f}" stroke-opacity="0.7"{dash}><title>{said}</title></line>'
        )
    height = LINE * max(len(words.rows), len(words.columns)) + LINE // 2
    texts = [
        *write_column(similarity.row_words(), LEFT, "end"),
        *write_column(similarity.column_words(), RIGHT, "start"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="lines between words of two texts">'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f"{''.join(lines)}{''.join(texts)}</svg>"
    )


def strong_pairs(similarity: Similarity) -> list[tuple[int, int, float]]:
    """Rows, columns and amounts of the pairs that are drawn, the weakest first, so that it lies below."""
    matrix = similarity.words().matrix
    least = DRAWN_SHARE * float(matrix.abs().max())
    found = [(i, j, float(matrix[i, j])) for i, j in (matrix.abs() > least).nonzero().tolist()]
    return sorted(found, key=lambda pair: abs(pair[2]))[-MOST_DRAWN:]


def write_column(words: Sequence[Word], x: int, anchor: str) -> list[str]:
    return [
        f'<text x="{x}" y="{middle(row) + 5}" text-anchor="{anchor}" font-family="sans-serif" font-size="15" '
        f'fill="#18181b">'
        f"{escape(visible(word.text))}<title>{word.relevance:+.4f}</title></text>"
        for row, word in enumerate(words)
    ]


def middle(row: int) -> int:
    return LINE * row + LINE // 2 + 4


def write_colour(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def draw_similarity_page(similarity: Similarity, more: str = "") -> str:
    """The picture, the strongest pairs, `more`, which is HTML, and the ledger on one page that loads nothing."""
    return document(f"<article>{draw_similarity(similarity, more)}</article>", title="Two texts")


def draw_similarity(similarity: Similarity, more: str = "") -> str:
    """The same as a part of a page."""
    head = "".join(f"<p>{escape(line)}</p>" for line in head_lines(similarity))
    rows = "".join(
        f'<tr><th scope="row">{escape(one)}</th><th scope="row">{escape(other)}</th><td>{amount:+.4f}</td></tr>'
        for one, other, amount in strong_words(similarity)
    )
    table = f"<table><thead><tr><th>of a</th><th>of b</th><th>relevance</th></tr></thead><tbody>{rows}</tbody></table>"
    book = ledger_section(similarity.ledger, unit="pairs")
    return f"{head}{frame_sheet(draw_word_lines(similarity))}{table}{more}{book}"


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
