"""Sub-words summed to words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Word:
    """A word of the text and the relevance of all its sub-words; `start` and `end` are character offsets."""

    text: str
    relevance: float
    start: int
    end: int


class HasTokens(Protocol):
    """What is read of an explanation."""

    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def relevance(self) -> Tensor: ...
    @property
    def text(self) -> str | tuple[str, str] | None: ...
    @property
    def special(self) -> tuple[bool, ...]: ...
    @property
    def offsets(self) -> tuple[tuple[int, int], ...] | None: ...
    @property
    def word_ids(self) -> tuple[int | None, ...] | None: ...
    @property
    def sequence_ids(self) -> tuple[int | None, ...] | None: ...


def words_of(explanation: HasTokens) -> list[Word]:
    """Tokens that the tokenizer calls one word, or that touch each other in the text, are one word."""
    if explanation.offsets is None:
        raise InputError("words need character offsets, which only a fast tokenizer gives.")
    groups: list[list[int]] = []
    for index in range(len(explanation.tokens)):
        if groups and continues(explanation, groups[-1][-1], index):
            groups[-1].append(index)
        else:
            groups.append([index])
    return [_word(explanation, group) for group in groups]


def continues(explanation: HasTokens, before: int, index: int) -> bool:
    """Whether token `index` goes on with the word of token `before`: by word number where the tokenizer has one."""
    assert explanation.offsets is not None
    if _stands_for_no_text(explanation, before) or _stands_for_no_text(explanation, index):
        return False
    sequences = explanation.sequence_ids
    if sequences is not None and sequences[before] != sequences[index]:
        return False
    text = _text_of(explanation, index)
    end, start = explanation.offsets[before][1], explanation.offsets[index][0]
    if start > end or (text is not None and text[start : start + 1].isspace()):
        return False
    if explanation.word_ids is not None and explanation.word_ids[index] is not None:
        return explanation.word_ids[before] == explanation.word_ids[index]
    return True


def _stands_for_no_text(explanation: HasTokens, index: int) -> bool:
    """A special token, and what a decoder is given, which comes after the tokens of the text."""
    assert explanation.offsets is not None
    return index >= len(explanation.offsets) or (bool(explanation.special) and explanation.special[index])


def _text_of(explanation: HasTokens, index: int) -> str | None:
    text = explanation.text
    if isinstance(text, tuple):
        sequence = explanation.sequence_ids[index] if explanation.sequence_ids is not None else 0
        return text[sequence or 0]
    return text


def _word(explanation: HasTokens, group: list[int]) -> Word:
    assert explanation.offsets is not None
    relevance = float(sum(explanation.relevance[i] for i in group))
    if group[0] >= len(explanation.offsets):
        return Word(explanation.tokens[group[0]], relevance, 0, 0)
    start, end = explanation.offsets[group[0]][0], explanation.offsets[group[-1]][1]
    text = _text_of(explanation, group[0])
    special = _stands_for_no_text(explanation, group[0])
    shown = explanation.tokens[group[0]] if special or text is None else text[start:end].strip()
    return Word(shown, relevance, start, end)
