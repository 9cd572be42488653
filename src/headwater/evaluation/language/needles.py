"""`needles`: sentences hidden in essays, and the question that they answer.

The prompt is an essay with a needle in it, the question, and the needle's own words up to the answer, so that small
models answer, too. Ranked are the tokens of the essay with its needles. With `answer=whole` the prompt ends with the
question, and the answer is what the needles say, word for word.

- *rise*: tokens are replaced, most relevant first, by the padding token; the area under the answer's log-probability,
  which runs from 1 (whole) to 0 (all replaced) and never rises. Lower is better.
- *mas*, magnitude aligned scoring (Walker et al. 2024), as FlashTrace (2026) computes it: the same curve plus its
  distance from the relevance that is left, scaled to [0, 1]. Lower is better. Negative relevance counts as none.
- *recovery*: the share of the needle's tokens that are among the tenth of highest relevance. Higher is better.

FlashTrace scores a whole generated answer; here it is the answer's first token, or with `answer=whole` a given one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import check_least
from ..protocols import counts
from ..ranking import Counts, Flags, Floats, only_top, without_top
from ..statistics import area_under
from .asking import AnsweringModel, PerturbedAnswers, PosedPrompt
from .prompts import PromptCase, Record, ask_question, read_records, seed_of, take_half
from .protocols import AnswerProtocol, CaseSet, PosedCase, ProtocolColumn

TENTH = Fraction(1, 10)


@dataclass(frozen=True)
class NeedleCase(PromptCase):
    """`context`: where the essay ends in the text; `needles`: where the sentences with the answer begin and end."""

    context: int
    needles: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Needles(AnswerProtocol):
    """`most_tokens`: the essay is cut so that the prompt has at most so many; prompts with fewer than `least_tokens`
    are left out. `steps`: in which tokens are replaced.
    """

    name: ClassVar[str] = "needles"
    version: ClassVar[int] = 2
    sets: ClassVar[tuple[str, ...]] = ("needles_srt", "needles_mrt")

    most_tokens: int = 400
    steps: int = 20
    least_tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(f"steps of {self.name}", self.steps)

    @property
    def fractions(self) -> tuple[Fraction, ...]:
        """Of the tokens that are replaced, at each step."""
        return tuple(Fraction(i, self.steps) for i in range(self.steps + 1))

    @property
    def columns(self) -> tuple[ProtocolColumn, ...]:
        return ProtocolColumn("rise", "lower", 3), ProtocolColumn("mas", "lower", 3), ProtocolColumn("recovery")

    def read(self, data: str, half: str, tokenizer: Any, own: Path | None = None) -> CaseSet:
        """A needle and an essay meet by the hash of the question; both are of this half."""
        essays = take_half(read_records("essays"), half, lambda r: [r["title"]])
        records = take_half(read_records(self.check_set(data)), half, lambda r: [r["question"]])
        cases = [case for record in records for case in self.hide(record, essays, tokenizer)]
        return CaseSet(data, list({case.id: case for case in cases}.values()))

    def hide(self, record: Record, essays: Sequence[Record], tokenizer: Any) -> Iterator[NeedleCase]:
        """One case for each answer that stands in its needle after some words; one for all where it is whole."""
        draw = np.random.default_rng(seed_of(self.seed, record["question"]))
        essay = split_sentences(essays[int(draw.integers(len(essays)))]["text"])
        for gold, said, answer in self.split_answers(record):
            tail = f"{ask_question('', record['question'])}{said}"
            hay = self.cut_essay(essay, [tail, *record["needles"]], tokenizer)
            if hay:
                sentences = self.insert(hay, record["needles"], draw)
                yield join_case(sentences, [sentences.index(one) for one in gold], tail, f" {answer}")

    def split_answers(self, record: Record) -> Iterator[tuple[list[str], str, str]]:
        """The needles that are asked for, what of them stands in the prompt already, and the answer."""
        if self.whole:
            yield list(record["needles"]), "", " ".join(record["needles"])
            return
        for needle, answer in zip(record["needles"], record["gt_answers"], strict=False):
            before, found, _ = needle.partition(answer)
            if found and before.strip():
                yield [needle], f" {before.strip()}", answer

    def cut_essay(self, essay: Sequence[str], rest: Sequence[str], tokenizer: Any) -> list[str]:
        """The first sentences, as many as leave room for the rest of the prompt."""
        left = self.most_tokens - sum(len(tokenizer(f" {text}")["input_ids"]) for text in rest)
        lengths = [len(tokenizer(f" {sentence}")["input_ids"]) for sentence in essay[: self.most_tokens]]
        return list(essay[: int(np.searchsorted(np.cumsum(lengths), left, side="right"))])

    def insert(self, hay: list[str], needles: Sequence[str], draw: np.random.Generator) -> list[str]:
        """All needles among the sentences, never before the first."""
        sentences = list(hay)
        for needle in needles:
            sentences.insert(1 + int(draw.integers(len(sentences))), needle)
        return sentences

    def pose(self, model: AnsweringModel, case: PromptCase, cases: CaseSet) -> PosedNeedle | None:
        assert isinstance(case, NeedleCase)
        prompt = model.pose(case.text, case.answer, whole=self.whole)
        words = prompt.tokens_in(0, case.context)
        gold = np.concatenate([prompt.tokens_in(*needle) for needle in case.needles])
        fits = self.least_tokens <= len(prompt.ids) <= self.most_tokens and model.fits(prompt)
        if not fits or len(words) <= self.steps:
            return None
        posed = PosedNeedle(self, model, prompt, words, gold)
        return posed if posed.hangs_on_context and self.likely(posed.answers.whole, prompt) else None


class PosedNeedle(PosedCase):
    def __init__(self, rule: Needles, model: AnsweringModel, prompt: PosedPrompt, words: Counts, gold: Counts) -> None:
        self.rule = rule
        self.prompt = prompt
        self.words = words
        self.reads_in: str = rule.reads_in
        self.gold: Flags = np.isin(words, gold)
        self.answers: PerturbedAnswers = PerturbedAnswers(
            model, prompt, words, [model.padding] * len(prompt.ids), rule.reads_in
        )

    @property
    def hangs_on_context(self) -> bool:
        """Whether the answer is likelier with the essay than without it."""
        nothing = np.zeros((1, len(self.words)), dtype=np.bool_)
        return bool(self.answers.of(nothing)[0] < self.answers.whole)

    def measure(self, relevance: Floats) -> dict[str, float]:
        values = relevance[self.words]
        steps = counts(self.rule.fractions, len(values))
        kept = without_top(values, steps)
        response = falling_response(self.answers.of(kept))
        left = relevance_left(values, kept)
        top = only_top(values, counts([TENTH], len(values)))[0]
        return {
            "rise": area_under(response, self.rule.fractions),
            "mas": area_under(align_magnitude(response, left), self.rule.fractions),
            "recovery": float((top & self.gold).sum() / self.gold.sum()),
        }


def falling_response(scores: Floats) -> Floats:
    """Scores from the whole prompt to the emptied one as numbers from 1 to 0 that never rise."""
    span = abs(scores[0] - scores[-1])
    scaled = (scores - scores[-1]) / span if span > 0 else np.linspace(1, 0, len(scores))
    return np.asarray(np.minimum.accumulate(np.clip(scaled, 0, 1)), dtype=np.float64)


def relevance_left(values: Floats, kept: Any) -> Floats:
    """The share of the positive relevance that is still in the input at each step; without any, an even fall."""
    positive = values.clip(min=0)
    total = positive.sum()
    return np.asarray(kept @ positive / total if total > 0 else np.linspace(1, 0, len(kept)), dtype=np.float64)


def align_magnitude(response: Floats, left: Floats) -> Floats:
    """The response plus its distance from the relevance that is left, scaled to [0, 1]."""
    corrected = np.clip(response + np.abs(response - left), 0, 1)
    span = corrected.max() - corrected.min()
    scaled = (corrected - corrected.min()) / span if span > 0 else np.linspace(1, 0, len(corrected))
    return np.asarray(scaled, dtype=np.float64)


def split_sentences(text: str) -> list[str]:
    """Of running text without its line breaks. A paragraph may begin right after the full stop before it."""
    return [one for one in re.split(r"(?<=[.!?])\s+|(?<=[a-z][.!?])(?=[A-Z])", " ".join(text.split())) if one]


def join_case(sentences: Sequence[str], places: Sequence[int], tail: str, answer: str) -> NeedleCase:
    context = " ".join(sentences)
    starts = [len(" ".join(sentences[:place])) + 1 for place in places]
    spans = tuple((start, start + len(sentences[place])) for start, place in zip(starts, places, strict=True))
    return NeedleCase(f"{context}{tail}", answer, len(context), spans)
