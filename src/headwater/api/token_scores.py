"""Which number of an output token is explained, and how it is read off the logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..defaults import LANGUAGE_OUTPUT
from ..errors import TargetError, UnknownName, UsageError, check_integer
from ..inputs.batch import Batch
from ..inputs.readouts import ScoreReading, logits_of, mean_logit
from ..results.generation import OUTPUT_OF, Alternative
from ..results.readable import SPACE_MARKS
from .output_text import Text, read_ids

SCORES = ("logit", "advantage", "logprob", "contrast")
ALTERNATIVES = 5  # likeliest tokens that are kept of every place
Contrast = str | Mapping[int, int | str] | None


@dataclass(frozen=True)
class Scoring:
    """Which number of an output token is explained. `amounts`: what each token is to count for, where that is given."""

    score: str
    contrast: Contrast
    amounts: tuple[float, ...] | None = None

    @classmethod
    def of(cls, score: str | None, contrast: Contrast) -> Scoring:
        chosen = score or (LANGUAGE_OUTPUT if contrast is None else "contrast")
        if chosen not in SCORES:
            raise UnknownName("score", chosen, SCORES)
        if contrast is not None and chosen != "contrast":
            raise UsageError(f"contrast= has no place beside score={chosen!r}.")
        return cls(chosen, contrast)

    @property
    def output(self) -> str:
        return OUTPUT_OF.get(self.score, "logit")

    def others(self, text: Text) -> dict[int, int]:
        """The token that each output token is set against, where one was named."""
        if isinstance(self.contrast, str):
            return first_difference(text, self.contrast)
        named = {} if self.contrast is None else self.contrast
        if not isinstance(named, Mapping):
            raise UsageError(f"contrast= is a text, or {{number: text or id}}, not {type(named).__name__}.")
        for number in named:
            check_integer("the number of an output token in contrast=", number)
            if not 0 <= number < len(text.output):
                raise TargetError(f"contrast= names output token {number}; there are {len(text.output)}.")
        return {n: find_token(text, n, token) for n, token in named.items()}


def first_difference(text: Text, words: str) -> dict[int, int]:
    """Another answer, set against this one at the first token where they part."""
    other = tokenise_like(text, 0, words)
    for number, (ours, theirs) in enumerate(zip(text.output, other, strict=False)):
        if ours != theirs:
            return {number: theirs}
    raise TargetError(
        f"{words!r} does not differ from the output {text.said_output!r}: there is nothing to set against."
    )


def tokenise_like(text: Text, number: int, words: str) -> list[int]:
    """Token ids of a text that could stand where output token `number` does: with a space before it if that has one."""
    mark = text.tokenizer.convert_ids_to_tokens(text.output[number]).startswith(SPACE_MARKS)
    written = f" {words.strip()}" if mark else words
    found: list[int] = text.tokenizer(written, add_special_tokens=False)["input_ids"]
    if not found:
        raise TargetError(f"{words!r} has no tokens.")
    return found


def find_token(text: Text, number: int, token: int | str) -> int:
    """The token that an output token is set against, by its id or its text."""
    return first_token(text, number, token) if isinstance(token, str) else read_ids(text.model, [token], "contrast=")[0]


def first_token(text: Text, number: int, words: str) -> int:
    """The first token of a text; the others would come after it."""
    return tokenise_like(text, number, words)[0]


@dataclass(frozen=True)
class At:
    """Reads the score of one output token for every sample; `behind` counts its row from the end of the logits."""

    behind: int
    token: int
    other: int | None
    score: str
    name: Callable[[int], str]

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        rows = logits_of(out)[:, -self.behind]
        named, count = self.name(self.token), len(rows)
        best: list[str | None] = [self.name(int(index)) for index in rows.detach().argmax(-1)]
        others = [self._other(row) for row in rows.detach()] if self.score == "contrast" else None
        score, sizes = score_tokens(self.score, rows, [self.token] * count, others)
        targets = [named] * count if others is None else [f"{named} - {self.name(other)}" for other in others]
        return ScoreReading(score, targets, best, None if self.score == "logit" else sizes.tolist())

    def _other(self, row: Tensor) -> int:
        return runner_up(row, self.token) if self.other is None else self.other

    def with_fixed_target(self, out: Any, batch: Batch) -> At:
        """The same reader, set against the runner-up of one sample: changed inputs are read alike."""
        if self.score != "contrast" or self.other is not None:
            return self
        return replace(self, other=runner_up(logits_of(out)[0, -self.behind].detach(), self.token))

    def count_sources(self, positions: int) -> int:
        """How many of the input's first `positions` stand before the output token: later ones have no part in it."""
        return positions + 1 - self.behind


def score_tokens(
    score: str, rows: Tensor, tokens: Sequence[int], others: Sequence[int] | None
) -> tuple[Tensor, Tensor]:
    """[rows]: one token's score per row of logits, and the absolute sizes of what it is the difference of, summed."""
    at = torch.arange(len(rows), device=rows.device)
    chosen = rows[at, torch.tensor(tokens, device=rows.device)]
    if score == "logit":
        return chosen, chosen.detach().abs()
    if score == "logprob":
        found = rows.log_softmax(-1)[at, torch.tensor(tokens, device=rows.device)]
        return found, chosen.detach().abs() + (found - chosen).detach().abs()
    if score == "advantage":
        against = mean_logit(rows)
    elif score == "contrast" and others is not None:
        against = rows[at, torch.tensor(others, device=rows.device)]
    else:
        raise UnknownName("score", score, SCORES)
    return chosen - against, chosen.detach().abs() + against.detach().abs()


def runner_up(row: Tensor, token: int) -> int:
    """The likeliest token but this one."""
    best = row.topk(2).indices.tolist()
    return int(best[0] if best[0] != token else best[1])


@dataclass
class Noted:
    """A reader that also keeps the probability of its token, and the likeliest tokens in its place with theirs."""

    read: At
    probability: float = 0.0
    likeliest: tuple[Alternative, ...] = ()

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        shares = logits_of(out).detach()[0, -self.read.behind].double().softmax(-1)
        self.probability = float(shares[self.read.token])
        best = shares.topk(min(ALTERNATIVES, len(shares)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.likeliest = tuple(Alternative(self.read.name(token), share) for token, share in found)
        return self.read(out, batch)

    def with_fixed_target(self, out: Any, batch: Batch) -> At:
        """Reads changed inputs. The probability stays that of the unchanged one."""
        self(out, batch)
        return self.read.with_fixed_target(out, batch)

    def count_sources(self, positions: int) -> int:
        return self.read.count_sources(positions)
