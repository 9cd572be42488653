"""Words over many explanations: whole words, punctuation apart, a list for every class whose score was explained.

Relevance for "positive" and relevance for "negative" are two different questions, so their sums are never mixed. What a
tokenizer cut is joined: word pieces, digits, and what an apostrophe or a hyphen holds together (`isn't`, `well-made`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any

LEAST = 3  # times that a word must stand somewhere to be listed,
FEW = 20  # once there are twice as many rows; of fewer rows every word is
PLACED = ("text", "relevance", "special", "starts", "ends", "word_ids")  # columns that a row's words are made of
JOINERS = "'’‘-‐‑"
CLITIC = re.compile(r"['’](?:s|t|d|m|n|re|ve|ll|em)\b", re.IGNORECASE)  # corpora write `it 's`


@dataclass(frozen=True)
class PlacedWord:
    """A whole word or a run of punctuation in one text, with the relevance of its tokens."""

    start: int
    end: int
    relevance: float


@dataclass(frozen=True)
class WordTotal:
    """A word over many rows: how often it stands there, its mean relevance and the sum."""

    text: str
    count: int
    mean: float
    total: float


@dataclass(frozen=True)
class WordTotals:
    """The words of all rows that explain the score of one class, from those that add most on.

    `rows` were counted; a word that stands in them fewer than `least` times is not listed.
    """

    target: str
    rows: int
    words: tuple[WordTotal, ...]
    punctuation: tuple[WordTotal, ...]
    least: int = 1


def count_words(rows: Iterable[Mapping[str, Any]], least: int = LEAST) -> tuple[WordTotals, ...]:
    """A list for every class, the one with most rows first; in many rows a word must stand `least` times."""
    found: dict[str, WordSums] = {}
    for row in rows:
        found.setdefault(str(row["target"]), WordSums()).add(row)
    classes = sorted(found.items(), key=lambda item: (-item[1].rows, item[0]))
    return tuple(sums.totals(target, least) for target, sums in classes)


@dataclass
class WordSums:
    """Sums of one class while rows come in."""

    rows: int = 0
    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        for word in whole_words(row):
            entry = self.sums.setdefault(word_key(row["text"][word.start : word.end]), [0.0, 0.0])
            entry[0] += 1
            entry[1] += word.relevance

    def totals(self, target: str, least: int) -> WordTotals:
        enough = min(least, 1 + self.rows // FEW)
        found = [WordTotal(text, int(n), total / n, total) for text, (n, total) in self.sums.items() if n >= enough]
        found.sort(key=lambda word: (-word.total, word.text))
        spelt = [any(map(is_letter, word.text)) for word in found]
        words = tuple(word for word, letters in zip(found, spelt, strict=True) if letters)
        signs = tuple(word for word, letters in zip(found, spelt, strict=True) if not letters)
        return WordTotals(target, self.rows, words, signs, enough)


@lru_cache(maxsize=2**15)
def word_key(text: str) -> str:
    """A word in lower case, without the punctuation that its tokenizer left on it."""
    text = text.strip().lower()
    if CLITIC.fullmatch(text) or not any(map(is_letter, text)):
        return text
    while not is_letter(text[0]):
        text = text[1:]
    while not is_letter(text[-1]):
        text = text[:-1]
    return text


def whole_words(row: Mapping[str, Any]) -> Iterator[PlacedWord]:
    """The words of a text in their order. Without the tokens' places in the text there are none."""
    if row["starts"] is None:
        return
    text, last = row["text"], None
    start = end = 0
    amount = 0.0
    columns = (row["starts"], row["ends"], row["word_ids"] or repeat(None), row["relevance"], row["special"])
    for begin, stop, word, relevance, special in zip(*columns, strict=False):
        while begin < stop and text[begin].isspace():
            begin += 1
        if special or begin == stop:
            continue
        if end > 0 and (begin < end or (begin == end and joins(text, begin, word is None or word == last))):
            end, amount = max(end, stop), amount + relevance
        else:
            if end > 0:
                yield PlacedWord(start, end, amount)
            start, end, amount = begin, stop, relevance
        last = word
    if end > 0:
        yield PlacedWord(start, end, amount)


def joins(text: str, at: int, together: bool) -> bool:
    """Whether the characters before and at `at` are of one word; `together`: the tokenizer says that they are."""
    before, after = text[at - 1], text[at]
    if is_letter(before) and is_letter(after):
        return together or (before.isdigit() and after.isdigit())
    if not is_letter(before) and not is_letter(after):
        return before not in JOINERS and after not in JOINERS
    if is_letter(before):
        return holds_together(text, at)
    return holds_together(text, at - 1) or CLITIC.match(text, at - 1) is not None


def holds_together(text: str, at: int) -> bool:
    """Whether the sign at `at` stands inside of a word or a number: an apostrophe, a hyphen, a decimal point."""
    if at < 1 or at + 1 >= len(text):
        return False
    sign, before, after = text[at], text[at - 1], text[at + 1]
    if sign in ".,":
        return before.isdigit() and after.isdigit()
    return sign in JOINERS and is_letter(before) and is_letter(after)


def is_letter(letter: str) -> bool:
    return letter.isalnum() or letter == "_" or unicodedata.category(letter).startswith("M")
