"""Where words of a text stand among its tokens: a target may be said in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import TargetError, nearest
from .batch import Item

Range = tuple[int, int]  # the first and the last token, both included
MARKS = re.compile(r"^(##|[Ġ▁Ċ ]+)|(@@|</w>)$")  # what tokenizers write for "goes on" and "begins a word"


def find_words(item: Item, wanted: str, sequence: int | None = None) -> Range:
    """The tokens of some words of a text; with `sequence`, of the first or second text of a pair.

    Words that are not there, or more than once, are refused with what could be said instead.
    """
    found = list_occurrences(item, wanted, sequence)
    if not found:
        parts = parts_of(item)
        asked = parts if sequence is None or sequence >= len(parts) else parts[sequence : sequence + 1]
        words = [match for part in asked for match in re.findall(r"\w+", part)]
        raise TargetError(f"{wanted!r} is not in the text. {nearest(wanted, dict.fromkeys(words))}")
    if len(found) > 1:
        places = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)
        raise TargetError(f"{wanted!r} stands at several tokens ({places}): give the numbers of those that are meant.")
    return found[0]


def list_occurrences(item: Item, wanted: str, sequence: int | None) -> list[Range]:
    """Every place as whole words, with the capitals that were written; without regard to them where there is none."""
    look = by_characters if item.offsets is not None and item.text is not None else by_tokens
    wanted = wanted.strip()
    return (look(item, wanted, sequence, False) or look(item, wanted, sequence, True)) if wanted else []


def parts_of(item: Item) -> tuple[str, ...]:
    if item.text is None:
        return (" ".join(map(bare, item.tokens)),)
    return item.text if isinstance(item.text, tuple) else (item.text,)


def by_characters(item: Item, wanted: str, sequence: int | None, any_case: bool) -> list[Range]:
    """By where the tokens stand in the text."""
    assert item.offsets is not None
    owners = item.sequence_ids or [None if special else 0 for special in item.special]
    pattern = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)", re.IGNORECASE if any_case else 0)
    found = []
    for number, part in enumerate(parts_of(item)):
        if sequence is not None and number != sequence:
            continue
        own = [(i, *span) for i, (span, owner) in enumerate(zip(item.offsets, owners, strict=True)) if owner == number]
        for match in pattern.finditer(part):
            inside = [i for i, start, end in own if start < match.end() and end > match.start()]
            found.extend([(inside[0], inside[-1])] if inside else [])
    return found


def by_tokens(item: Item, wanted: str, sequence: int | None, any_case: bool) -> list[Range]:
    """By the tokens themselves, where nobody says where they stand."""
    same = str.casefold if any_case else str
    goal, texts = same("".join(wanted.split())), [same(bare(token)) for token in item.tokens]
    found = []
    for first in range(len(texts)):
        for last in range(first, min(first + len(goal), len(texts))):
            if "".join(texts[first : last + 1]) == goal:
                found.append((first, last))
                break
    return found


def bare(token: str) -> str:
    return MARKS.sub("", token)


def word_starts(item: Item) -> list[int]:
    """The first token of every word; of every token that is not special where nobody says which belong together."""
    special = item.special or (False,) * len(item.tokens)
    own = [i for i in range(len(item.tokens)) if not special[i]]
    if item.word_ids is None:
        return own
    keys: Sequence[object] = [(item.word_ids[i], (item.sequence_ids or item.word_ids)[i]) for i in range(len(special))]
    return [i for n, i in enumerate(own) if n == 0 or keys[i] != keys[own[n - 1]]]
