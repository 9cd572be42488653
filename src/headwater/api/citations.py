"""Which sources carry an answer: each is left out, and some others, too, for how sure that is.

As ContextCite asks, random halves of the sources can be left out besides, and a sparse model is fitted: leaving out one
sentence at a time misses sources that say the same, for either alone carries the answer. Sources are drawn again with
replacement from what was measured, and the model is fitted anew: how often a source's weight is above zero says how
sure it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import check_least
from ..methods.surrogate import fit_lasso
from ..results.answer import SourceSentence, SpanExplanation
from ..results.answer_report import Citation, LeftOut
from .leave_out import AnswerReader, Source

SOURCES, LEAST_SHARE = 3, 0.1  # most sources of a sentence, and the least share of one
COMPARED = 8  # others that a source is compared with
WHOLE = 8  # documents of a report that are left out as a whole
RESAMPLES = 100  # of what was measured

Chosen = list[tuple[SourceSentence, float]]  # sources of one sentence, each with its share


def choose_sources(span: SpanExplanation, most: int, least: float) -> Chosen:
    """The sentences of documents that carry a span, each with its share of the positive relevance of all of them."""
    sources = [one for one in span.by_sentence() if one.document is not None and one.relevance > 0 and one.text]
    total = sum(one.relevance for one in sources) or 1.0
    ordered = sorted(sources, key=lambda one: -one.relevance)[:most]
    return [(one, one.relevance / total) for one in ordered if one.relevance >= least * total]


def choose_documents(spans: Sequence[SpanExplanation], cited: Sequence[Sequence[Citation]]) -> list[int]:
    """The documents that matter most to the answer, in their order: with citations first, then by relevance."""
    named = {one.document for some in cited for one in some}
    sizes = [0.0] * len(spans[0].documents)
    for span in spans:
        for number, amount in enumerate(span.by_document().values()):
            sizes[number] += abs(amount)
    numbers = sorted(range(len(sizes)), key=lambda number: (number not in named, -sizes[number]))
    return sorted(numbers[:WHOLE])


def cite_sources(reader: AnswerReader, chosen: Sequence[Chosen]) -> list[list[Citation]]:
    """The sources of each sentence of the answer, with what happens without them."""
    drops = {one.sources[0]: one.drops for one in check_sources(reader, chosen)}
    before = reader.by_sentence(reader.original.logprobs)
    return [
        [cite(number, source, reader.source_of(source.number), share, before[number], drops) for source, share in some]
        for number, some in enumerate(chosen)
    ]


def check_sources(reader: AnswerReader, chosen: Sequence[Chosen]) -> list[LeftOut]:
    """Each cited sentence left out, and others until each can be compared with as many as `COMPARED`."""
    cited = {reader.source_of(source.number) for some in chosen for source, _ in some}
    rest = [source for source in reader.all_sources() if source not in cited]
    more = min(len(rest), max(0, COMPARED + 1 - len(cited))) if cited else 0
    compared = [rest[k * len(rest) // more] for k in range(more)]
    return reader.leave_out([(source,) for source in [*sorted(cited), *compared]])


def cite(
    sentence: int,
    found: SourceSentence,
    source: tuple[int, int],
    share: float,
    before: float,
    drops: dict[Source, tuple[float, ...]],
) -> Citation:
    own = drops[source][sentence]
    others = [drop[sentence] for other, drop in drops.items() if other != source]
    sure = sum(drop < own for drop in others) / len(others) if others else None
    return Citation(sentence, *source, found.text, found.relevance, share, before, own, sure)


def weigh_citations(
    reader: AnswerReader, cited: Sequence[Sequence[Citation]], ablations: int, seed: int
) -> list[list[Citation]]:
    """Citations with their weights in a model of random halves."""
    found = weigh_sources(reader.all_sources(), reader.leave_out, ablations, seed)

    def weigh(one: Citation) -> Citation:
        weight, sure = found.of(one.sentence, (one.document, one.source))
        return replace(one, weight=weight, sure=sure)

    return [[weigh(one) for one in some] for some in cited]


@dataclass(frozen=True)
class SourceWeights:
    """[sentences of the answer, sources]: weights in the unit of log-probabilities, and how often each is positive."""

    sources: tuple[Source, ...]
    weights: NDArray[np.float64]
    positive: NDArray[np.float64]

    def of(self, sentence: int, source: Source) -> tuple[float, float]:
        """A source's weight for a sentence of the answer, and how sure it is."""
        place = self.sources.index(source)
        return float(self.weights[sentence, place]), float(self.positive[sentence, place])


def weigh_sources(
    sources: Sequence[Source],
    leave: Callable[[Sequence[tuple[Source, ...]]], list[LeftOut]],
    ablations: int,
    seed: int,
) -> SourceWeights:
    """Leaves out `ablations` random halves, and fits a sparse linear model of every sentence's log-probability."""
    check_least("ablations", ablations, 2)
    draw = np.random.default_rng(seed)
    kept = draw.random((ablations, len(sources))) < 0.5
    kept[kept.all(1)] = False  # there must be something to leave out: then it is all
    found = leave([tuple(one for one, stays in zip(sources, row, strict=True) if not stays) for row in kept])
    scores = np.array([one.sentences_after for one in found])  # [ablations, sentences]
    again = draw.integers(ablations, size=(RESAMPLES, ablations))
    weights, positive = [], []
    for column in scores.T:
        weights.append(fit_lasso(kept, column)[0])
        positive.append(np.mean([fit_lasso(kept[rows], column[rows])[0] > 0 for rows in again], axis=0))
    return SourceWeights(tuple(sources), np.array(weights), np.array(positive))
