"""Made-up sentences for a teacher to label: real phrases with words masked, swapped and left out, and joined in chains.

They need not be good English. The teacher says what it thinks of each, and the student learns that opinion also far
from the sentences it was given: which is where explanations are tested, on texts with words taken away.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

MASK = "[MASK]"
JOINTS = (" ", " ", " , ", " , but ", " and ", " . ")


@dataclass(frozen=True)
class Variation:
    """How often each change is made: a chance for each word, or for each text."""

    mask: float = 0.1
    swap: float = 0.1
    cut: float = 0.2
    join: float = 0.5
    longest: int = 96


def vary(texts: Sequence[str], index: int, rng: random.Random, variation: Variation) -> str:
    """A variation of the text at `index`; words to swap in and phrases to join come from the other texts."""
    text = _cut(texts[index], rng) if rng.random() < variation.cut else texts[index]
    while rng.random() < variation.join and text.count(" ") < variation.longest // 2:
        parts = [text, rng.choice(texts)]
        rng.shuffle(parts)
        text = rng.choice(JOINTS).join(parts)
    words = [_replace(word, texts, rng, variation) for word in text.split()]
    return " ".join(words[: variation.longest])


def _replace(word: str, texts: Sequence[str], rng: random.Random, variation: Variation) -> str:
    chance = rng.random()
    if chance < variation.mask:
        return MASK
    if chance < variation.mask + variation.swap:
        return rng.choice(rng.choice(texts).split() or [word])
    return word


def _cut(text: str, rng: random.Random) -> str:
    """A run of words out of the text."""
    words = text.split()
    start, end = sorted(rng.sample(range(len(words) + 1), 2)) if words else (0, 0)
    return " ".join(words[start:end])
