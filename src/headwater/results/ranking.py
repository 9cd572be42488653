"""Passages in the order of their similarity to a query, and why one stands above another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..plurals import say_count
from .answer import scale_ledger
from .display import Shown
from .generation import sum_ledgers
from .ledger import Ledger
from .similarity import Similarity
from .words import Word

Explainer = Callable[[int], Similarity]  # of a passage by its number


@dataclass(frozen=True)
class RankDifference(Shown):
    """Why one passage is more similar to a query than another: the difference of two similarities, which sums.

    Every line of `ledger` is that of the first minus that of the second.
    """

    first: Similarity
    second: Similarity

    @property
    def score(self) -> float:
        return self.first.score - self.second.score

    @property
    def ledger(self) -> Ledger:
        return sum_ledgers([self.first.ledger, scale_ledger(self.second.ledger, -1.0)])

    def query_words(self) -> list[Word]:
        """The words of the query: how much more each does with the first passage than with the second.

        With what the query's biases and constants do more (`query_rest`), they sum to the score.
        """
        return self.first.a.words(self.first.row_relevance - self.second.row_relevance)

    @property
    def query_rest(self) -> float:
        """What does not come from words of the query."""
        return self.score - float((self.first.row_relevance - self.second.row_relevance).sum())

    def passage_words(self) -> tuple[list[Word], list[Word]]:
        """The words of either passage, with what each does for its own similarity."""
        return self.first.column_words(), self.second.column_words()


@dataclass(frozen=True)
class Ranking(Shown):
    """Passages by their similarity to a query. `scores` are in the order of `passages`; `order` has their numbers,
    the most similar first. Places count from 0 in that order.

    An explanation is computed when it is asked for, and kept. It asks the model; a copy of the value has none.
    """

    query: str  # what was asked
    passages: tuple[str, ...]  # in the order given
    scores: tuple[float, ...]  # in the order of the passages
    measure: str  # cosine, dot product, maxsim or logit
    explainer: Explainer | None = field(default=None, compare=False, repr=False)  # asks the model; None in a copy
    known: dict[int, Similarity] = field(default_factory=dict, compare=False, repr=False)  # explained so far, by place

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the passages, as they were given, the most similar first."""
        return tuple(sorted(range(len(self.scores)), key=lambda number: -self.scores[number]))

    def __len__(self) -> int:
        return len(self.passages)

    def top(self, count: int = 10) -> list[tuple[str, float]]:
        """The `count` most similar passages with their scores."""
        return [(self.passages[number], self.scores[number]) for number in self.order[:count]]

    def explain(self, place: int) -> Similarity:
        """Why the passage at this `place`, from 0, is as similar to the query as it is."""
        order = self.order
        if not 0 <= place < len(order):
            raise UsageError(
                f"no place {place}: the ranking has {say_count(len(order), 'passage')}, the first is at place 0."
            )
        number = order[place]
        if number not in self.known:
            if self.explainer is None:
                raise UsageError("this ranking has no model behind it: call hw.rank again to explain its passages.")
            self.known[number] = self.explainer(number)
        return self.known[number]

    def words(self, place: int) -> list[Word]:
        """The words of the passage at this `place`, with what each does for its similarity to the query."""
        return self.explain(place).column_words()

    def why(self, above: int, below: int) -> RankDifference:
        """Why the passage at the place `above` is more similar to the query than that at the place `below`."""
        return RankDifference(self.explain(above), self.explain(below))

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or what goes to another process, is the value without the model."""
        return {**self.__dict__, "explainer": None}
