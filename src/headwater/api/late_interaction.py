"""Late interaction: every token keeps its vector, and each token of a text is compared with its nearest of the other.

MaxSim, the score of ColBERT, is the sum over tokens i of a of max_j u_i v_j. The maximum chooses a token j of b for
every i. Once chosen, the score is a sum of products of vectors, like any other similarity. Tokens of a that chose the
same j are added first: their vectors meet the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..inputs.batch import Batch
from ..inputs.pooling import MAXSIM, DirectionReader, TokenSum, read_token_vectors
from ..results.similarity import Similarity
from .text_encoders import Encoder
from .text_pairs import OpenText, check_dimensions, choose_all, join_sides


def is_late(encoders: tuple[Encoder, Encoder]) -> bool:
    return all(one.recipe.pooling in (MAXSIM, (MAXSIM,)) for one in encoders)


@dataclass(frozen=True)
class LateComparer:
    """Compares texts by the sum of the largest products of their tokens' vectors."""

    encoders: tuple[Encoder, Encoder]
    measure: str = MAXSIM

    def compare(self, a: Any, b: Any, rank: int | None) -> Similarity:
        sides = [LateText.of(encoder, text) for encoder, text in zip(self.encoders, (a, b), strict=True)]
        mine, theirs = sides[0].vectors, sides[1].vectors
        check_dimensions(mine.shape[1], theirs.shape[1])
        products = mine @ theirs.T
        best = products.argmax(1)
        first, second = join_meetings(sides[0], sides[1], best, rank)
        found = join_sides(
            sides[0].open.explain(first),
            sides[1].open.explain(second),
            products.max(1).values,
            self.measure,
            len(first) // len(best.unique()),
            mine.shape[1],
        )
        return replace(found, matches=tuple(best.tolist()))

    def score(self, query: Any, passages: Sequence[Any]) -> Tensor:
        """[passages]: the similarity of each to the query."""
        mine = LateText.of(self.encoders[0], query).vectors
        found = torch.zeros(len(passages), dtype=torch.float64)
        for group, batch in self.encoders[1].make_batches(passages):
            out, placed = self.encoders[1].run(batch)
            for place, number in enumerate(group):
                theirs = read_token_vectors(self.encoders[1].recipe, out, placed, place).double().cpu()
                check_dimensions(mine.shape[1], theirs.shape[1])
                found[number] = (mine @ theirs.T).max(1).values.sum()
        return found


@dataclass(frozen=True)
class LateText:
    """A text with [tokens, dimensions], a vector per token."""

    open: OpenText
    vectors: Tensor

    @classmethod
    def of(cls, encoder: Encoder, text: Any) -> LateText:
        batch: Batch = encoder.make_batch(text)
        out, placed = encoder.run(batch)
        vectors = read_token_vectors(encoder.recipe, out, placed).double().cpu()
        return cls(OpenText(encoder, batch, vectors.sum(0), vectors), vectors)

    def read_along(self, weights: Tensor, directions: Tensor) -> list[DirectionReader]:
        recipe = TokenSum(self.open.encoder.recipe, weights)
        return [DirectionReader(recipe, direction) for direction in directions]


def join_meetings(
    mine: LateText, theirs: LateText, best: Tensor, rank: int | None
) -> tuple[list[DirectionReader], list[DirectionReader]]:
    """Readers for every token of b that was chosen: of the sum of tokens of a that chose it, and of itself."""
    first: list[DirectionReader] = []
    second: list[DirectionReader] = []
    for chosen in best.unique().tolist():
        weights, own = (best == chosen).double(), torch.zeros(len(theirs.vectors), dtype=torch.float64)
        own[chosen] = 1.0
        vectors = weights @ mine.vectors, theirs.vectors[chosen]
        directions = choose_all(vectors, (mine.vectors, theirs.vectors), rank)
        first += mine.read_along(weights, directions)
        second += theirs.read_along(own, directions)
    return first, second
