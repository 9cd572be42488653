"""Whole sentences held back from a table of sentences and their phrases, so that none of their words were seen."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headwater.inputs.table import LabelledTexts

WORD = re.compile(r"[^\W_]+")
SENTENCE_WORDS = 8
PHRASE_WORDS = 3

Words = tuple[str, ...]


def split_words(text: str) -> Words:
    """The words of a text in lower case, without punctuation: two texts of equal words are taken as the same."""
    return tuple(WORD.findall(text.lower()))


def hold_back(table: LabelledTexts, share: float, salt: str) -> tuple[LabelledTexts, LabelledTexts]:
    """Whole sentences held back, and the rest of the table without any phrase of theirs.

    SST-2's training set lists phrases beside the sentences they were cut from, so holding back rows at random would
    leave most of their words in training. Here a row can be held back when it has at least 8 words and is no part of
    a longer row. Which ones are taken follows from a hash of salt and words: it depends on no random state and
    no order of rows. From the rest go all rows whose words stand in a held sentence one after the other, whatever their
    punctuation. Rows of one or two words stay: "good" stands everywhere, and dropping it would teach nothing safer.
    No remaining row contains a held sentence, since a held sentence is no part of a longer row.
    """
    rows = [split_words(text) for text in table.texts]
    held = [i for i in _whole(rows, table.texts) if fraction(salt, rows[i]) < share]
    phrases = {phrase for i in held for phrase in _phrases(rows[i])}
    return table.rows(held), table.rows([i for i, row in enumerate(rows) if row not in phrases])


def whole_sentences(table: LabelledTexts) -> LabelledTexts:
    """The rows that are sentences: at least 8 words, and no part of a longer row; each of them once."""
    return table.rows(_whole([split_words(text) for text in table.texts], table.texts))


def fraction(salt: str, row: Words) -> float:
    """A number in [0, 1) that depends on the salt and the words alone."""
    digest = hashlib.sha256(f"{salt}:{' '.join(row)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _whole(rows: Sequence[Words], texts: Sequence[str]) -> list[int]:
    return _fullest(_sentences(rows), rows, texts)


def _sentences(rows: Sequence[Words]) -> set[Words]:
    """The rows that are long enough and no part of a longer row, compared word by word."""
    starts: dict[Words, set[Words]] = defaultdict(set)
    for row in rows:
        if len(row) >= SENTENCE_WORDS:
            starts[row[:SENTENCE_WORDS]].add(row)
    inside = {part for row in set(rows) for part in _parts(row, starts)}
    return {row for group in starts.values() for row in group} - inside


def _parts(row: Words, starts: Mapping[Words, set[Words]]) -> Iterator[Words]:
    """The shorter rows that stand inside this one; `starts` finds them by their first words."""
    for i in range(len(row) - SENTENCE_WORDS + 1):
        for part in starts.get(row[i : i + SENTENCE_WORDS], ()):
            if len(part) < len(row) and row[i : i + len(part)] == part:
                yield part


def _fullest(chosen: set[Words], rows: Sequence[Words], texts: Sequence[str]) -> list[int]:
    """One position for each chosen row: the longest text, where the same words come with and without a full stop."""
    best: dict[Words, int] = {}
    for i, row in enumerate(rows):
        if row in chosen and (row not in best or len(texts[i]) > len(texts[best[row]])):
            best[row] = i
    return sorted(best.values())


def _phrases(row: Words) -> Iterator[Words]:
    """All runs of at least three words."""
    for start in range(len(row)):
        for end in range(start + PHRASE_WORDS, len(row) + 1):
            yield row[start:end]
