"""Entities in the predictions of a token classifier, and what reads the score of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError
from .batch import Batch, Item
from .classes import Names
from .readouts import ScoreReading, logits_of, read_out
from .word_positions import bare, word_starts

OUTSIDE = "O"
FIRST = ("B", "S", "U")  # what begins an entity
TAGS = (*FIRST, "I", "E", "L", "M")


@dataclass(frozen=True)
class PredictedEntity:
    """One entity: its label, the first token of each of its words, and the class that is predicted at each."""

    label: str
    positions: tuple[int, ...]
    classes: tuple[int, ...]

    def words(self, item: Item) -> tuple[str, int | None, int | None]:
        """The words as they stand in the text, and where."""
        last = last_token(item, self.positions[-1])
        if item.offsets is None or item.text is None:
            return " ".join(bare(item.tokens[i]) for i in self.positions), None, None
        owner = 0 if item.sequence_ids is None else item.sequence_ids[self.positions[0]] or 0
        text = item.text[owner] if isinstance(item.text, tuple) else item.text
        start, end = item.offsets[self.positions[0]][0], item.offsets[last][1]
        start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens hold the space before them
        return text[start:end], start, end


def last_token(item: Item, first: int) -> int:
    """The last token of the word that begins at `first`."""
    if item.word_ids is None:
        return first
    word, last = item.word_ids[first], first
    while last + 1 < len(item.tokens) and item.word_ids[last + 1] == word is not None:
        last += 1
    return last


def find_entities(logits: Tensor, item: Item, names: Names) -> list[PredictedEntity]:
    """The entities of one text, by the class that is predicted at the first token of each word: [tokens, classes].

    Words of one label that follow each other are one entity, unless the tag says that another begins (B-, S-, U-).
    Where no class means "outside" (parts of speech), each word is one of its own.
    """
    apart = all(names(i) != OUTSIDE for i in range(names.size))
    found: list[PredictedEntity] = []
    before = OUTSIDE
    for place in word_starts(item):
        best = int(logits[place].argmax())
        tag, label = split_tag(names(best))
        if label != OUTSIDE and label == before and tag not in FIRST and not apart:
            last = found[-1]
            found[-1] = PredictedEntity(label, (*last.positions, place), (*last.classes, best))
        elif label != OUTSIDE:
            found.append(PredictedEntity(label, (place,), (best,)))
        before = label
    return found


def split_tag(name: str) -> tuple[str, str]:
    """B-LOC -> B and LOC; a name without a tag has none."""
    tag, sign, label = name.partition("-")
    return (tag, label) if sign and tag in TAGS else ("", name)


@dataclass(frozen=True)
class EntityReader:
    """Reads the score of one entity: the mean, over its words, of the score of the predicted class."""

    entity: PredictedEntity
    name: str
    output: str

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        logits = logits_of(out)
        places = torch.tensor(self.entity.positions, device=logits.device)
        classes = torch.tensor(self.entity.classes, device=logits.device)
        rows = read_out(logits[:, places], self.output, False)
        chosen = rows.gather(-1, classes.expand(len(rows), -1).unsqueeze(-1)).squeeze(-1)
        return ScoreReading(chosen.mean(-1), [self.name] * len(rows), [self.name] * len(rows))


def check_token_scores(logits: Tensor, sizes: Sequence[int], vocabulary: bool) -> None:
    """Entities are found by a model that gives one label a token."""
    if logits.dim() != 3 or vocabulary:
        raise TargetError(
            f"entities are found by a token classifier, and the output of this model has the shape "
            f"{tuple(logits.shape)} for {sizes[0]} tokens: use hw.explain."
        )
