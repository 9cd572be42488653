"""A prompt as words that can be replaced, and the model's own answer to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwater.errors import InputError
from headwater.evaluation.language.asking import log_probabilities
from headwater.plurals import say_count

from ..prompts import Prompt


@dataclass(frozen=True)
class Word:
    """A run of text without spaces, and the tokens that it is made of."""

    text: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A prompt, its words, and the token that the model says next. Tokens of space alone belong to no word."""

    prompt: Prompt
    ids: tuple[int, ...]
    words: tuple[Word, ...]
    answer: int

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any, prompt: Prompt) -> Question:
        ids, words = tokenise_words(tokenizer, prompt)
        if len(words) < 2:
            found = say_count(len(words), "word")
            raise InputError(f"the prompt {prompt.id} has {found}; two are needed to rank them.")
        answer = int(log_probabilities(model, [ids])[0].argmax())
        return cls(prompt, ids, words, answer)

    def relevance(self, tokens: Tensor) -> list[float]:
        """Of every word, the sum over its tokens."""
        return [float(tokens[list(word.positions)].double().sum()) for word in self.words]


def tokenise_words(tokenizer: Any, prompt: Prompt) -> tuple[tuple[int, ...], tuple[Word, ...]]:
    """Token ids, and the words that they make up."""
    found = tokenizer(prompt.text, return_offsets_mapping=True)
    return tuple(found["input_ids"]), tuple(words_of(prompt.text, found["offset_mapping"]))


def words_of(text: str, offsets: Sequence[tuple[int, int]]) -> Iterator[Word]:
    """A token belongs to the word in which its first character that is no space stands."""
    places: dict[int, list[int]] = {}
    runs = [match.span() for match in re.finditer(r"\S+", text)]
    for position, (start, end) in enumerate(offsets):
        inside = text[start:end]
        first = start + len(inside) - len(inside.lstrip())
        for number, (begin, stop) in enumerate(runs):
            if begin <= first < stop and first < end:
                places.setdefault(number, []).append(position)
    for number, positions in sorted(places.items()):
        yield Word(text[slice(*runs[number])], tuple(positions))
