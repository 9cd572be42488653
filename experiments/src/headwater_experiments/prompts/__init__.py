"""Two hundred short prompts for language models, in two halves that share no entity: to choose on, to report on.

Facts, reviews, copying and arithmetic, 25 of each kind in each half. A study that tries settings looks at `choose` as
often as it likes, and at `report` once. Knows nothing of explanations.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources

from headwater.errors import UnknownName

HALVES = ("choose", "report")
KINDS = ("fact", "sentiment", "copy", "arithmetic")


@dataclass(frozen=True)
class Prompt:
    """A text to be continued. `answer` begins what a good model says next.

    `decisive` are the words of the text on which the answer hangs: a person's opinion, not a measurement.
    """

    id: str
    kind: str
    text: str
    answer: str
    decisive: tuple[str, ...]


def prompts(half: str) -> tuple[Prompt, ...]:
    """The prompts of one half, in their order."""
    if half not in HALVES:
        raise UnknownName("half", half, HALVES)
    lines = resources.files(__name__).joinpath(f"{half}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return tuple(Prompt(**{**row, "decisive": tuple(row["decisive"])}) for row in found)


def choose_prompts(half: str, kinds: Collection[str] = KINDS, limit: int | None = None) -> tuple[Prompt, ...]:
    """The prompts of some kinds; `limit` takes the first so many of each."""
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName("kind of prompt", kind, KINDS)
    every = prompts(half)
    return tuple(prompt for kind in KINDS if kind in kinds for prompt in [p for p in every if p.kind == kind][:limit])
