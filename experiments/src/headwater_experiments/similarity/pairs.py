"""Questions with a sentence that answers them, from SQuAD and HotpotQA, in two parts that share no text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from headwater.evaluation.language.prompts import join_entities, read_records, take_half
from headwater.results.sentences import find_sentences

PARTS = ("choose", "report")


@dataclass(frozen=True)
class QuestionPair:
    """A question and a sentence that has its answer. `others`: sentences that were given beside it and have none.

    `further`: the question has stood in a pair already, so that this one is asked for its evidence alone.
    """

    data: str
    question: str
    sentence: str
    others: tuple[str, ...] = ()
    further: bool = False


def read_pairs(part: str, count: int) -> list[QuestionPair]:
    """As many questions of each set, where it has them, in turn."""
    squad = [[pair] for pair in read_squad(part)[:count]]
    none: list[QuestionPair] = []
    in_turn = zip_longest(squad, read_hotpot(part)[:count], fillvalue=none)
    return [pair for two in in_turn for pairs in two for pair in pairs]


def read_squad(part: str) -> list[QuestionPair]:
    """The sentence of the paragraph in which the answer stands. A paragraph has one question here."""
    records = take_half(read_records("squad"), part, lambda record: {record["context"]})
    found: dict[str, QuestionPair] = {}
    for record in records:
        start = record["answer_span"][0]
        for first, last in find_sentences(record["context"]):
            if first <= start < last:
                pair = QuestionPair("squad", record["question"].strip(), record["context"][first:last].strip())
                found.setdefault(record["context"], pair)
    return list(found.values())


def read_hotpot(part: str) -> list[list[QuestionPair]]:
    """For each question a pair with every sentence of its evidence, and with all sentences that are none."""
    records = read_records("hotpot")
    articles = join_entities(record["supporting_facts"]["title"] for record in records)
    chosen = take_half(records, part, lambda record: {articles[t] for t in record["supporting_facts"]["title"]})
    return [pairs for record in chosen if (pairs := read_evidence(record))]


def read_evidence(record: dict[str, Any]) -> list[QuestionPair]:
    facts = set(zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"], strict=True))
    named = {
        (title, number): sentence.strip()
        for title, sentences in zip(record["context"]["title"], record["context"]["sentences"], strict=True)
        for number, sentence in enumerate(sentences)
        if sentence.strip()
    }
    evidence = [named[key] for key in named if key in facts]
    others = tuple(sentence for key, sentence in named.items() if key not in facts)
    question = record["question"].strip()
    return [QuestionPair("hotpot", question, one, others, place > 0) for place, one in enumerate(evidence)]
