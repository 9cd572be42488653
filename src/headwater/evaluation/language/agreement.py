"""`agreement`: does the subject stand first, where the number of a verb hangs on it?

Pairs of prompts that differ in the subject's number alone ("The mother beside the tables", "The mothers beside …"). The
score is the contrast between the two verbs (" does" minus " do"). *rank* is the place of the subject among the words by
relevance, 1 is best; *first* is the share of pairs in which it is 1. Kept are pairs that the model solves both ways.
The first token is never ranked, so the pairs of two words ("The teachers") have nothing to rank and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..ranking import Floats
from .asking import AnsweringModel, PosedPrompt
from .prompts import PromptCase, Record, read_records, take_half
from .protocols import CaseSet, LanguageProtocol, PosedCase, ProtocolColumn


@dataclass(frozen=True)
class AgreementPair(PromptCase):
    """`patched`: the prompt with the subject's number changed; `other`: the verb that fits it."""

    patched: str
    other: str


@dataclass(frozen=True)
class Agreement(LanguageProtocol):
    """`least_probability` is 0: what is asked is which of two verbs, however likely both are."""

    name: ClassVar[str] = "agreement"
    version: ClassVar[int] = 2
    sets: ClassVar[tuple[str, ...]] = ("agreement_nounpp", "agreement_within_rc")

    least_probability: float = 0.0

    @property
    def columns(self) -> tuple[ProtocolColumn, ...]:
        return ProtocolColumn("rank", "lower"), ProtocolColumn("first")

    def read(self, data: str, half: str, tokenizer: Any, own: Path | None = None) -> CaseSet:
        records = read_records(self.check_set(data))
        nouns = number_pairs(records)
        chosen = take_half(records, half, lambda r: {nouns[w] for w in words_in(r["clean_prefix"]) if w in nouns})
        return CaseSet(data, [pair_of(record) for record in chosen])

    def pose(self, model: AnsweringModel, case: PromptCase, cases: CaseSet) -> PosedPair | None:
        assert isinstance(case, AgreementPair)
        clean = model.pose(case.text, case.answer, case.other)
        patched = model.pose(case.patched, case.answer, case.other)
        subject = differing_word(clean, patched)
        if subject is None or len(clean.words) < 2 or not model.fits(clean):
            return None
        verbs = [clean.answer[0], clean.other or 0]
        first, second = model.log_probabilities([clean.ids, patched.ids], verbs)
        solved = first[0] > first[1] and second[0] < second[1]
        return PosedPair(clean, subject) if solved else None


class PosedPair(PosedCase):
    """`subject`: its place among the words."""

    def __init__(self, prompt: PosedPrompt, subject: int) -> None:
        self.prompt = prompt
        self.subject = subject

    def measure(self, relevance: Floats) -> dict[str, float]:
        rank = rank_of(relevance[self.prompt.words], self.subject)
        return {"rank": rank, "first": float(rank == 1)}


def rank_of(values: Floats, place: int) -> float:
    """1 for the largest; equal values share their mean rank."""
    mine = values[place]
    return float(1 + np.sum(values > mine) + (np.sum(values == mine) - 1) / 2)


def differing_word(first: PosedPrompt, second: PosedPrompt) -> int | None:
    """The place, among the words, of the one token in which two prompts differ; None where there is no such one."""
    if len(first.ids) != len(second.ids):
        return None
    found = [i for i, (a, b) in enumerate(zip(first.ids, second.ids, strict=True)) if a != b]
    places = [place for place, position in enumerate(first.words) if position in found]
    return places[0] if len(found) == len(places) == 1 else None


def pair_of(record: Record) -> AgreementPair:
    return AgreementPair(*(record[k] for k in ("clean_prefix", "clean_answer", "patch_prefix", "patch_answer")))


def words_in(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def number_pairs(records: Sequence[Record]) -> dict[str, str]:
    """Every noun that some pair changes, in both numbers, and the one name of it: its singular or plural, whichever."""
    found = {}
    for record in records:
        for one, two in zip(words_in(record["clean_prefix"]), words_in(record["patch_prefix"]), strict=False):
            if one != two:
                found[one] = found[two] = min(one, two)
    return found
