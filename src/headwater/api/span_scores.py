"""Spans of an answer: the sum of their tokens' scores, explained in one backward pass, however long they are."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..engine.kind import choose_method
from ..engine.options import Options
from ..engine.session import Change, Session, keep_run
from ..inputs.batch import Batch
from ..inputs.places import find_places
from ..inputs.readouts import ScoreReading, logits_of
from ..results.explanation import Explanation
from .output_text import Text
from .token_scores import Scoring, runner_up, score_tokens

Explained = Generator[tuple[Explanation, "SpanReader"], None, None]

LEAST = 0.05  # of the mean absolute score of an answer's tokens: a smaller score is too small to divide by


@dataclass
class SpanReader:
    """Reads the sum of the scores of neighbouring output tokens, each off the logits that stand before it.

    A model that reads from left to right gives a token's own term nothing from later positions, so the sum needs no
    mask. `end` counts from the end of the logits to the row of the first token. `others`: the token that each is set
    against in a contrast, the runner-up where it is None. `amounts`: what each token is to count for; its score is then
    weighed by amount / score, held fixed, so that the sum is that of the amounts. A token whose score is nearly nothing
    has no weight. `weights` and `logprob`, the log-probability of the whole span, are those of the first reading, that
    of the unchanged input.
    """

    end: int
    tokens: tuple[int, ...]
    others: tuple[int | None, ...]
    score: str
    name: str
    amounts: tuple[float, ...] | None = None
    logprob: float | None = None
    weights: tuple[float, ...] | None = None

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        rows = self._rows(logits_of(out))  # [samples, tokens, vocabulary]
        samples, flat = len(rows), rows.flatten(0, 1)
        if self.logprob is None:
            self.logprob = float(logprobs_at(rows[0], self.tokens).sum())
        others = self._others(flat.detach()) if self.score == "contrast" else None
        scores, sizes = score_tokens(self.score, flat, self.tokens * samples, others)
        scores, sizes = scores.reshape(samples, -1), sizes.reshape(samples, -1)
        if self.amounts is not None:
            self.weights = self.weights or weigh(self.amounts, scores[0].detach())
            scores = scores * scores.new_tensor(self.weights)
            sizes = sizes * sizes.new_tensor(self.weights).abs()
        magnitudes: list[float] = sizes.sum(1).tolist()
        return ScoreReading(scores.sum(1), [self.name] * samples, [None] * samples, magnitudes)

    def _rows(self, logits: Tensor) -> Tensor:
        first = logits.shape[1] - self.end
        return logits[:, first : first + len(self.tokens)]

    def _others(self, flat: Tensor) -> list[int]:
        named = zip(flat, self.others * (len(flat) // len(self.others)), range(len(flat)), strict=True)
        return [
            runner_up(row, self.tokens[i % len(self.tokens)]) if other is None else other for row, other, i in named
        ]

    def with_fixed_target(self, out: Any, batch: Batch) -> SpanReader:
        """The same reader, set against the runners-up of one sample: changed inputs are read alike."""
        self(out, batch)
        if self.score != "contrast":
            return self
        return replace(self, others=tuple(self._others(self._rows(logits_of(out))[0].detach())))

    def count_sources(self, positions: int) -> int:
        """How many of the input's first `positions` stand before the span's last token."""
        return positions - self.end + len(self.tokens)


def weigh(amounts: Sequence[float], scores: Tensor) -> tuple[float, ...]:
    """What each score is multiplied by to become its amount; 0 where it is too small to divide by."""
    found = scores.double().tolist()
    least = LEAST * sum(map(abs, found)) / len(found)
    return tuple(amount / score if abs(score) > least else 0.0 for amount, score in zip(amounts, found, strict=True))


def explain_spans(
    session: Session,
    options: Options,
    text: Text,
    scoring: Scoring,
    spans: Sequence[tuple[int, int]],
    change: Change = keep_run,
) -> Iterator[tuple[Explanation, SpanReader]]:
    """An explanation per span (first output token, and the one after its last): one forward pass serves all of them."""
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    readers = [make_reader(text, scoring, span, last) for span in spans]
    yield from explain_readers(session, options, text, readers, (first, last), change)


def make_hop_readers(text: Text, scoring: Scoring, span: tuple[int, int], hops: int) -> list[SpanReader]:
    """The reader of a span and then those of hops, whose amounts are set in between.

    Each hop reads all output tokens before the span's end, so that one forward pass serves all.
    """
    _, last = span
    later = [make_reader(text, scoring, (0, last), last) for _ in range(hops)]
    return [make_reader(text, scoring, span, last), *later]


def make_reader(text: Text, scoring: Scoring, span: tuple[int, int], last: int) -> SpanReader:
    """What reads the score of a span, where the model predicts the output up to its token `last`."""
    start, end = span
    others = scoring.others(text)
    return SpanReader(
        end=last - start,
        tokens=tuple(text.output[start:end]),
        others=tuple(others.get(n) for n in range(start, end)),
        score=scoring.score,
        name=str(text.tokenizer.decode(text.output[start:end])).strip(),
        amounts=None if scoring.amounts is None else scoring.amounts[start:end],
    )


def explain_readers(
    session: Session,
    options: Options,
    text: Text,
    readers: Sequence[SpanReader],
    needed: tuple[int, int],
    change: Change,
) -> Explained:
    """An explanation per reader; `needed` are the first output token that any reads, and the one after the last."""
    method, places = choose_method(options.method, session.model), find_places(session.model, options.at)
    batch = text.batch(needed[1], needed[1] - needed[0], places)
    yield from zip(session.explain_scores(batch, readers, method, options, change), readers, strict=True)


def logprobs_at(rows: Tensor, tokens: Sequence[int]) -> Tensor:
    """[rows]: the log-probability of one token per row of logits."""
    wide = rows.detach().double().log_softmax(-1)
    return wide[torch.arange(len(rows)), torch.tensor(tokens)].cpu()
