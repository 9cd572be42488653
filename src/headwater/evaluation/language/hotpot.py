"""`hotpot`: which sentences of several articles the answer came from, after HotpotQA and ContextCite.

The prompt is the articles that hold the evidence, as many others as there is room for, and the question. A sentence's
relevance is the sum over its tokens; sentences are taken out as text, so that the prompt becomes shorter.

- *drop k*: what is lost of the answer's log-probability without the k sentences of highest relevance. Higher is better.
- *lds*, the linear datamodeling score (ContextCite, Cohen-Wang et al. 2024): over random subsets of the sentences, the
  rank correlation of the summed relevance of those that stayed with the answer's log-probability. Higher is better.
- *evidence k*: the share of the evidence among the k sentences of highest relevance. Higher is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..ranking import Counts, Flags, Floats, only_top
from .asking import AnsweringModel, PosedPrompt, ask_once
from .prompts import PromptCase, Record, ask_question, follow, join_entities, read_records, seed_of, take_half
from .protocols import AnswerProtocol, CaseSet, PosedCase, ProtocolColumn, correlate_ranks


@dataclass(frozen=True)
class EvidenceCase(PromptCase):
    """`sentences`: from where to where each stands in the text; `evidence`: the numbers of those that are needed."""

    sentences: tuple[tuple[int, int], ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Hotpot(AnswerProtocol):
    """`top`: how many sentences are taken out; `subsets`: how many random ones the LDS is over.

    `least_probability` is low: a drop of log-probability can be read at any. But the answer must be likelier with the
    sentences than without them.
    """

    name: ClassVar[str] = "hotpot"
    version: ClassVar[int] = 2
    sets: ClassVar[tuple[str, ...]] = ("hotpot",)

    least_probability: float = 0.01
    most_tokens: int = 400
    top: tuple[int, ...] = (1, 3, 5)
    subsets: int = 32

    @property
    def columns(self) -> tuple[ProtocolColumn, ...]:
        drops = [ProtocolColumn(f"drop {k}") for k in self.top]
        return *drops, ProtocolColumn("lds"), *(ProtocolColumn(f"evidence {k}") for k in self.top)

    def read(self, data: str, half: str, tokenizer: Any, own: Path | None = None) -> CaseSet:
        records = read_records(self.check_set(data))
        articles = join_entities(record["supporting_facts"]["title"] for record in records)
        chosen = take_half(records, half, lambda r: {articles[title] for title in r["supporting_facts"]["title"]})
        cases = [self.case(record, tokenizer) for record in chosen]
        return CaseSet(data, [case for case in cases if case is not None])

    def case(self, record: Record, tokenizer: Any) -> EvidenceCase | None:
        """None where the articles with the evidence alone are too long."""
        articles = dict(zip(record["context"]["title"], record["context"]["sentences"], strict=True))
        facts = set(zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"], strict=True))
        question = ask_question("", record["question"])
        chosen = self.choose_articles(articles, {title for title, _ in facts}, question, tokenizer)
        if chosen is None:
            return None
        named = [
            ((title, number), f"{title}: {sentence.strip()}" if number == 0 else sentence.strip())
            for title in chosen
            for number, sentence in enumerate(articles[title])
            if sentence.strip()
        ]
        spans, cursor = [], 0
        for _, sentence in named:
            spans.append((cursor, cursor + len(sentence)))
            cursor += len(sentence) + 1
        evidence = tuple(i for i, (key, _) in enumerate(named) if key in facts)
        text = " ".join(sentence for _, sentence in named) + question
        if not evidence or len(named) <= max(self.top):
            return None
        return EvidenceCase(text, follow(text, record["answer"].strip()), tuple(spans), evidence)

    def choose_articles(
        self, articles: dict[str, list[str]], needed: set[str], question: str, tokenizer: Any
    ) -> list[str] | None:
        """Those that are needed and, in their order, others as long as there is room; all in their order."""
        lengths = {
            title: len(tokenizer(f" {title}: {' '.join(said)}")["input_ids"]) for title, said in articles.items()
        }
        left = self.most_tokens - len(tokenizer(question)["input_ids"])
        left -= sum(lengths.get(title, self.most_tokens) for title in needed)
        if left < 0:
            return None
        chosen = set(needed)
        for title, length in lengths.items():
            if title not in needed and length <= left:
                chosen.add(title)
                left -= length
        return [title for title in articles if title in chosen]

    def pose(self, model: AnsweringModel, case: PromptCase, cases: CaseSet) -> PosedEvidence | None:
        assert isinstance(case, EvidenceCase)
        prompt = model.pose(case.text, case.answer, whole=self.whole)
        if len(prompt.ids) > self.most_tokens or not model.fits(prompt):
            return None
        posed = PosedEvidence(self, model, prompt, case)
        return posed if posed.hangs_on_context and self.likely(posed.whole, prompt) else None


class PosedEvidence(PosedCase):
    def __init__(self, rule: Hotpot, model: AnsweringModel, prompt: PosedPrompt, case: EvidenceCase) -> None:
        self.rule = rule
        self.model = model
        self.prompt = prompt
        self.reads_in: str = rule.reads_in
        self.places: Sequence[Counts] = [prompt.tokens_in(*span) for span in case.sentences]
        self.evidence: Flags = np.isin(np.arange(len(self.places)), case.evidence)
        draw = np.random.default_rng(seed_of(rule.seed, case.id))
        self.subsets: Flags = draw.random((rule.subsets, len(self.places))) < 0.5
        self.known: dict[bytes, float] = {}

    @property
    def whole(self) -> float:
        return float(self.answers(np.ones((1, len(self.places)), dtype=np.bool_))[0])

    @property
    def hangs_on_context(self) -> bool:
        """Whether the answer is likelier with the sentences than without them."""
        return bool(self.answers(np.zeros((1, len(self.places)), dtype=np.bool_))[0] < self.whole)

    def answers(self, kept: Flags) -> Floats:
        """The answer's log-probability with some sentences alone, [rows, sentences], each asked once."""
        return ask_once(self.known, kept, self._ask)

    def _ask(self, kept: Sequence[Flags]) -> Floats:
        rows = [self.without([p for p, keep in zip(self.places, row, strict=True) if not keep]) for row in kept]
        return self.model.score_answers(rows, self.prompt.answer, dtype=self.rule.reads_in)

    def without(self, taken: Sequence[Counts]) -> list[int]:
        """The token ids that are left."""
        gone = {int(i) for places in taken for i in places}
        return [token for i, token in enumerate(self.prompt.ids) if i not in gone]

    def measure(self, relevance: Floats) -> dict[str, float]:
        values = np.array([relevance[places].sum() for places in self.places])
        top = only_top(values, np.array(self.rule.top))
        found = {f"drop {k}": self.whole - a for k, a in zip(self.rule.top, self.answers(~top).tolist(), strict=True)}
        found["lds"] = correlate_ranks(self.subsets @ values, self.answers(self.subsets))
        for k, row in zip(self.rule.top, top, strict=True):
            found[f"evidence {k}"] = float((row & self.evidence).sum() / min(k, self.evidence.sum()))
        return found
