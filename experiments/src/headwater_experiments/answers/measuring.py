"""Three questions to an explanation of an answer, each answered by asking the model about other prompts.

- Does it find the decisive word: is its first word the one whose replacement takes most from the answer? Often that is
  the last word, which any text must have there, so the same is asked of the words before it.
- Activation: with words put back in the order of relevance, how soon is the answer there again?
- Pruning: with words replaced that have the least relevance, how little does the answer change?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.evaluation.statistics import area_under

from .replacing import Answers

FRACTIONS = tuple(i / 10 for i in range(11))


@dataclass(frozen=True)
class AnswerMeasures:
    """Of one explanation of one answer. `before` is `found` among the words before the last.

    `activation` is the area under the answer's probability, relative to that with the whole prompt: higher is better.
    `pruning` is the area under the squared change of its log-probability: lower is better. `agreement` is the rank
    correlation of relevance with what each word's replacement takes.
    """

    found: bool
    before: bool
    activation: float
    pruning: float
    agreement: float


def effects(answers: Answers) -> np.ndarray:
    """What the replacement of each word takes from the answer's log-probability, mean over the draws."""
    words = len(answers.question.words)
    kept = np.vstack([np.ones(words, dtype=bool), ~np.eye(words, dtype=bool)])
    found = answers.of(kept)
    return np.asarray((found[:1] - found[1:]).mean(1))


def measure_answer(answers: Answers, relevance: Sequence[float], taken: np.ndarray) -> AnswerMeasures:
    """One explanation against the model; `taken` is what `effects` gave."""
    values = np.asarray(relevance)
    whole = answers.of(np.ones((1, len(values)), dtype=bool))
    put_back = answers.of(first_words(np.argsort(-values, kind="stable")))
    pruned = answers.of(~first_words(np.argsort(np.abs(values), kind="stable")))
    return AnswerMeasures(
        found=int(values.argmax()) == int(taken.argmax()),
        before=int(values[:-1].argmax()) == int(taken[:-1].argmax()),
        activation=area(np.exp(put_back - whole).mean(1)),
        pruning=area(((pruned - whole) ** 2).mean(1)),
        agreement=rank_correlation(values, taken),
    )


def first_words(order: np.ndarray) -> np.ndarray:
    """For every fraction, a row that marks so many words of the order."""
    rows = np.zeros((len(FRACTIONS), len(order)), dtype=bool)
    for row, fraction in zip(rows, FRACTIONS, strict=True):
        row[order[: round(fraction * len(order))]] = True
    return rows


def area(values: np.ndarray) -> float:
    return area_under(values, FRACTIONS)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's; 0 where all values of one are equal."""
    a, b = (np.argsort(np.argsort(values, kind="stable")).astype(float) for values in (first, second))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
