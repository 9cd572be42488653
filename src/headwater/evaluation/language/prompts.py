"""The public prompts of the protocols, read from files, and their two halves, which share no entity.

Settings are chosen on the half `choose` and reported on the half `report`. An entity (a subject, a name, a context) is
in one half by the hash of its name; a prompt with entities in both halves is in neither.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...errors import DataError, UnknownName
from ...inputs.lines import read_lines
from ...inputs.table import DATA_DIRECTORY
from ...inputs.text import check_characters

HALVES = ("choose", "report")
OWN = "prompts"  # the set of a user's own prompts

DUAL_PATH = "github.com/lab-paper-code/dual_path_attribution, data/ (MIT)"
CIRCUITS = "github.com/saprmarks/feature-circuits, data/*_test.json (MIT)"
TRACLLM = "github.com/Wang-Yanting/TracLLM, datasets/NeedleInHaystack (MIT)"
HOTPOT = "HotpotQA, the development set with distractors (CC BY-SA 4.0)"
SOURCES = {
    **dict.fromkeys(("known1000", "ioi", "squad", "imdb_prompts"), DUAL_PATH),
    **dict.fromkeys(("agreement_simple", "agreement_nounpp", "agreement_within_rc"), CIRCUITS),
    **dict.fromkeys(("needles_srt", "needles_mrt", "essays"), TRACLLM),
    "hotpot": HOTPOT,
}

Record = Mapping[str, Any]


@dataclass(frozen=True)
class PromptCase:
    """A prompt and the answer that is explained, as it follows the prompt; without one, what the model says next."""

    text: str
    answer: str | None

    @property
    def id(self) -> str:
        """The same text and answer have the same id, wherever they were read."""
        return hashlib.sha256(json.dumps([self.text, self.answer]).encode()).hexdigest()[:12]


def read_records(name: str) -> list[dict[str, Any]]:
    """The lines of one file of the folder llm under the directory of datasets."""
    directory = os.environ.get(DATA_DIRECTORY)
    path = Path(directory or "", "llm", f"{name}.jsonl.gz")
    if not directory or not path.is_file():
        found = f"there is no {path}" if directory else f"{DATA_DIRECTORY} is not set"
        raise DataError(
            f"no prompts of {name}: {found}. They come from {SOURCES.get(name, 'their publishers')}; put them there as "
            f"llm/{name}.jsonl.gz, one JSON object a line, or give prompts of your own (--prompts FILE)."
        )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_own_prompts(path: Path) -> list[PromptCase]:
    """JSON lines with a `prompt`, and an `answer` where it is not what the model says next."""
    try:
        lines = read_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    found = [own_case(line, number, path) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError(f"{path} has no prompts: needed are JSON lines with a prompt and an answer.")
    return list({case.id: case for case in found}.values())


def own_case(line: str, number: int, path: Path) -> PromptCase:
    try:
        row = json.loads(line)
        prompt, answer = row["prompt"], row.get("answer")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"line {number} of {path} is no JSON object with a prompt.") from error
    if not isinstance(prompt, str) or not prompt.strip() or not isinstance(answer, str | None):
        raise DataError(f"line {number} of {path}: prompt and answer must be texts, and the prompt not empty.")
    for text in (prompt, answer or ""):
        check_characters(text, f"line {number} of {path}")
    return PromptCase(prompt, None if answer is None else follow(prompt, answer))


def follow(prompt: str, answer: str) -> str:
    """The answer with a space before it, unless one of the two has it already."""
    return answer if prompt[-1:].isspace() or answer[:1].isspace() else f" {answer}"


@dataclass(frozen=True)
class TokenSet:
    """A set of prompts with a single answer token: how a record reads as a prompt, and the entities in it."""

    prompt: Callable[[Record], str]
    answer: Callable[[Record], str]
    entities: Callable[[Record], Sequence[str]]

    def case(self, record: Record) -> PromptCase:
        prompt = self.prompt(record)
        return PromptCase(prompt, follow(prompt, self.answer(record).strip()))


def ask_question(context: str, question: str) -> str:
    return f"{context}\nQuestion: {question.strip()}\nAnswer:"


def ask_sentiment(record: Record) -> str:
    """In the words of Dual Path Attribution."""
    asked = "Classify the sentiment of the following review. Answer either 'Positive' or 'Negative'."
    return f"{asked}\nReview: {record['text']}\nAnswer:"


def two_names(record: Record) -> Sequence[str]:
    """The persons of a prompt of indirect object identification: "Inez and Lorraine"."""
    pair = re.search(r"([A-Z]\w+) and ([A-Z]\w+)", record["prompt"])
    return (record["answer"].strip(), *(pair.groups() if pair else ()))


TOKEN_SETS = {
    "known1000": TokenSet(lambda r: r["prompt"], lambda r: r["attribute"], lambda r: [r["subject"]]),
    "ioi": TokenSet(lambda r: r["prompt"], lambda r: r["answer"], two_names),
    "squad": TokenSet(
        lambda r: ask_question(r["context"], r["question"]), lambda r: r["answer"], lambda r: [r["context"]]
    ),
    "imdb_prompts": TokenSet(ask_sentiment, lambda r: r["answer"], lambda r: [r["text"]]),
}


def read_token_cases(name: str, half: str) -> list[PromptCase]:
    """The prompts of one half of a set with single answer tokens, in the order of the file."""
    if name not in TOKEN_SETS:
        raise UnknownName("set of prompts", name, TOKEN_SETS)
    kind = TOKEN_SETS[name]
    found = [kind.case(record) for record in take_half(read_records(name), half, kind.entities)]
    return list({case.id: case for case in found}.values())


Kind = TypeVar("Kind")


def take_half(items: Iterable[Kind], half: str, entities: Callable[[Kind], Iterable[str]]) -> list[Kind]:
    """The items whose entities are all in this half."""
    if half not in HALVES:
        raise UnknownName("half", half, HALVES)
    return [item for item in items if {half_of(entity) for entity in entities(item)} == {half}]


def join_entities(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """Entities that stand together somewhere, also by way of others, get one name: the first of theirs in order."""
    members: dict[str, set[str]] = {}
    for group in groups:
        together = set(group).union(*(members.get(entity, ()) for entity in group))
        members.update(dict.fromkeys(together, together))
    return {entity: min(together) for entity, together in members.items()}


def half_of(entity: str) -> str:
    """By the hash of its name, in small letters and without the spaces around it."""
    return HALVES[hashlib.sha256(entity.strip().lower().encode()).digest()[0] % 2]


def seed_of(seed: int, *parts: str) -> int:
    """A seed for one prompt, the same on every machine."""
    return zlib.crc32("\x1f".join((str(seed), *parts)).encode())


def digest_of(cases: Sequence[PromptCase]) -> str:
    """Of all prompts of a set, in a few letters: which data a number is from."""
    return hashlib.sha256("".join(case.id for case in cases).encode()).hexdigest()[:12]
