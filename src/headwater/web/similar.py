"""Two texts: the words that made them similar, and the similarity again without some of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..api.rank import rank
from ..api.similarity import explain_similarity
from ..errors import EmptyInput, InputError, TooLong
from ..results.similarity import ComparedText, Similarity
from ..results.verdict import Phrase
from ..results.words import Word
from ..viz.colour import palette
from ..viz.html import verdict_paragraph
from ..viz.reading import visible, word_cells
from ..viz.two_texts import draw_similarity_page, draw_word_lines
from .models import Loaded
from .reports import check_form, write_json
from .similar_schemas import ComparedWord, MovedAnswer, SideShown, SimilarAnswer, SimilarAsked
from .texts import ledger_answer, show_phrases

PAIRS = 250_000  # of words, that one answer has at most
NAMED, LEAST = 2, 0.05  # pairs that the sentence names; of the strongest, what is worth naming


@dataclass(frozen=True)
class TimedSimilarity:
    """A similarity, and the seconds that it took."""

    similarity: Similarity
    seconds: float


def vector_options(loaded: Loaded) -> dict[str, Any]:
    """How the vectors are read, as the library takes it."""
    assert loaded.parts is not None
    return {
        "tokenizer": loaded.reader,
        "pooling": loaded.parts.pooling,
        "prompts": loaded.parts.prompt,
        "dtype": loaded.dtype,
    }


def check_two_texts(loaded: Loaded, texts: Sequence[str], names: Sequence[str]) -> list[str]:
    """The texts as the encoder gets them. One that is empty or too long is named."""
    assert loaded.parts is not None
    written = [loaded.parts.write(text) for text in texts]
    for text, name in zip(written, names, strict=True):
        if not text.strip():
            raise EmptyInput(f"{name} is empty: there is nothing to compare.")
        try:
            loaded.parts.check([text], loaded.reader)
        except TooLong as error:
            raise InputError(
                f"{name} has {error.length} tokens, and this model takes at most {error.limit}."
            ) from error
    return written


@contextmanager
def plain_lengths() -> Iterator[None]:
    """The library tells its callers how to cut a text; on the page nothing is cut."""
    try:
        yield
    except TooLong as error:
        raise InputError(f"a text has {error.length} tokens, and this model takes at most {error.limit}.") from error


def compare_pair(loaded: Loaded, ask: SimilarAsked) -> TimedSimilarity:
    first, second = check_two_texts(loaded, [ask.first, ask.second], ["the first text", "the second text"])
    width = getattr(loaded.model.config, "hidden_size", None)
    directions = None if ask.rank is None or (width is not None and ask.rank >= width) else ask.rank
    started = time.perf_counter()
    with plain_lengths():
        found = explain_similarity(loaded.model, first, second, rank=directions, **vector_options(loaded))
    return TimedSimilarity(found, time.perf_counter() - started)


def similar_answer(found: TimedSimilarity) -> SimilarAnswer:
    s = found.similarity
    words = s.words()
    if words.matrix.numel() > PAIRS:
        raise InputError(
            f"the texts have {len(words.rows)} and {len(words.columns)} words, {words.matrix.numel():,} pairs. At most "
            f"{PAIRS:,} are shown: shorten one of them."
        )
    return SimilarAnswer(
        measure=s.measure,
        score=s.score,
        first=show_side(s.a, s.row_words(), s.row_rest),
        second=show_side(s.b, s.column_words(), s.column_rest),
        matrix=words.matrix.tolist(),
        ledger=ledger_answer(s.ledger, "pairs"),
        verdict=show_phrases(similarity_phrases(s)),
        rank=s.rank,
        dimensions=s.dimensions,
        seconds=found.seconds,
        method=s.method,
        model=s.provenance.model,
    )


def show_words(words: Sequence[Word]) -> list[ComparedWord]:
    return [
        ComparedWord(text=cell.text, gap=cell.gap, special=cell.special, relevance=cell.relevance)
        for cell in word_cells(words)
    ]


def show_side(text: ComparedText, words: Sequence[Word], rest: Any) -> SideShown:
    return SideShown(
        words=show_words(words),
        rest=[word.relevance for word in text.words(rest)],
        prompt=next((n for n, word in enumerate(words) if text.prompt <= word.start < word.end), 0),
    )


def similarity_phrases(s: Similarity) -> list[Phrase]:
    """The score, the pairs of words that give most, and the one that takes most away."""
    rows, columns = s.row_words(), s.column_words()
    matrix = s.words().matrix
    pairs = [
        (float(matrix[i, j]), f"{quote_mark(one.text)} – {quote_mark(other.text)}")
        for i, one in enumerate(rows)
        for j, other in enumerate(columns)
        if one.start != one.end and other.start != other.end
    ]
    best = [pair for pair in sorted(pairs, reverse=True)[:NAMED] if pair[0] > 0]
    worst = min(pairs, default=(0.0, ""))
    said = [Phrase(f"{s.measure.capitalize()} {s.score:.2f}")]
    for number, (amount, name) in enumerate(best):
        said += [Phrase(": most by " if number == 0 else " and "), Phrase(name, True), Phrase(f" ({amount:+.2f})")]
    if best and worst[0] < -LEAST * best[0][0]:
        said += [Phrase("; "), Phrase(worst[1], True), Phrase(f" takes most away ({worst[0]:+.2f})")]
    return said


def quote_mark(word: str) -> str:
    """A mark such as a comma stands in quotation marks, or it would be taken for one of the sentence."""
    seen = visible(word)
    return seen if any(sign.isalnum() for sign in seen) else f"“{seen}”"


def move_similarity(loaded: Loaded, ask: SimilarAsked, found: TimedSimilarity) -> MovedAnswer:
    """The similarity of the texts without the words that were left out: the model reads them again."""
    s = found.similarity
    if not ask.left_first and not ask.left_second:
        raise InputError("nothing is left out: left_first and left_second name no words.")
    first, second = leave_words(s.a, ask.left_first, "first"), leave_words(s.b, ask.left_second, "second")
    after = rank(loaded.model, first, [second], **vector_options(loaded)).scores[0]
    names = [visible(s.a.words(s.row_rest)[n].text) for n in sorted(set(ask.left_first))]
    names += [visible(s.b.words(s.column_rest)[n].text) for n in sorted(set(ask.left_second))]
    return MovedAnswer(
        name=", ".join(names),
        before=s.score,
        after=after,
        claim=sum_claimed_pairs(s, ask.left_first, ask.left_second),
        first=visible(first),
        second=visible(second),
    )


def leave_words(text: ComparedText, numbers: Sequence[int], which: str) -> str:
    """A text, without its prompt, with these words and the space before them cut out."""
    places = [(word.start, word.end) for word in text.words(text.group_words()[1][0])]
    left = text.text
    for number in sorted(set(numbers), reverse=True):
        if number >= len(places) or places[number][0] == places[number][1] or places[number][0] < text.prompt:
            raise InputError(f"word {number} of the {which} text cannot be left out: it is no word of the text.")
        start, end = places[number]
        left = left[: len(left[:start].rstrip())] + left[end:]
    left = left[text.prompt :].lstrip()
    if not left:
        raise EmptyInput(f"nothing is left of the {which} text: put a word back.")
    return left


def sum_claimed_pairs(s: Similarity, rows: Sequence[int], columns: Sequence[int]) -> float:
    """What the explanation gives to these words of both texts. A pair of two of them counts once."""
    one, other = sorted(set(rows)), sorted(set(columns))
    alone = sum(s.row_words()[i].relevance for i in one) + sum(s.column_words()[j].relevance for j in other)
    return alone - float(s.words().matrix[one][:, other].sum())


def similar_report(found: TimedSimilarity, moved: MovedAnswer | None, form: str, colours: str) -> str:
    s = found.similarity
    if form == "json":
        return write_json({**s.to_dict(), **({} if moved is None else {"left_out": moved.model_dump()})})
    check_form(form)
    with palette(colours):
        return (
            draw_word_lines(s)
            if form == "svg"
            else draw_similarity_page(s, more=render_without_words(moved, s.measure))
        )


def render_without_words(moved: MovedAnswer | None, measure: str) -> str:
    """What leaving words out did, as a part of the page."""
    if moved is None:
        return ""
    said = [
        Phrase("Without "),
        Phrase(moved.name, True),
        Phrase(f" the {measure} is {moved.after:.4f}, not {moved.before:.4f}: {moved.after - moved.before:+.4f}. "),
        Phrase(f"The explanation had given {moved.claim:+.4f} to it."),
    ]
    return f"<h3>Put to the test</h3>{verdict_paragraph(said)}"
