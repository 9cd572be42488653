"""How much of a score the words carry, beside the biases, the attention sink and the attention offset.

    python -m headwater_experiments.language.score_parts --model smollm2 --data known1000,ioi --count 15

Explained is the token that the model says next, on the half `choose` of public prompts. A share is the sum of a part
over all prompts, divided by the sum of the scores. The parts of one row add up to 1 where its ledgers close.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwater.api.explain_generation import explain_generation
from headwater.defaults import LANGUAGE_METHOD
from headwater.evaluation.language.asking import SCORE_MARK, AnsweringModel, PosedPrompt, split_score
from headwater.evaluation.language.catalogue import single_token
from headwater.evaluation.language.prompts import read_token_cases
from headwater.evaluation.progress import show_progress
from headwater.models.loading import load
from headwater.names import split_names
from headwater.results.ledger import SINK, Ledger
from headwater.results.meanings import kind_of_line
from headwater.rules.attention.shares import OFFSET

OFFSET_TO_VALUES = "lrp(ah=shares(q=0.3,k=0.2,v=0.5,offset=values)+ln+act+gate=half+output=0.02)"
SCORES = ("advantage", "logit", "contrast")
ROWS = tuple(f"{method}{SCORE_MARK}{score}" for method in (LANGUAGE_METHOD, OFFSET_TO_VALUES) for score in SCORES)


@dataclass(frozen=True)
class ScoreParts:
    """A score and what it is the sum of; `others` are all further lines of the ledger."""

    score: float
    words: float
    biases: float
    sink: float
    offset: float

    @classmethod
    def of(cls, ledger: Ledger) -> ScoreParts:
        kinds = dict.fromkeys((SINK, OFFSET), 0.0)
        for name, amount in ledger.constants.items():
            if (kind := kind_of_line(name)) in kinds:
                kinds[kind] += amount
        return cls(ledger.score, ledger.inputs, ledger.biases.total, kinds[SINK], kinds[OFFSET])

    @property
    def others(self) -> float:
        return self.score - self.words - self.biases - self.sink - self.offset


def add_up(parts: Sequence[ScoreParts]) -> ScoreParts:
    names = ("score", "words", "biases", "sink", "offset")
    return ScoreParts(*(sum(getattr(one, name) for one in parts) for name in names))


def explain_parts(model: AnsweringModel, prompt: PosedPrompt, row: str) -> ScoreParts:
    """The parts of one row's score of one prompt; the first token is set aside."""
    method, score = split_score(row)
    options = {"method": method, "score": score, "answer": list(prompt.answer), "sinks": "aside"}
    made = explain_generation(model.model, prompt.text, tokenizer=model.tokenizer, **options)
    return ScoreParts.of(made.ledgers[0])


def pose_prompts(model: AnsweringModel, sets: Iterable[str], count: int) -> list[PosedPrompt]:
    """The first prompts of each set that are short enough, each with what the model says next."""
    found: list[PosedPrompt] = []
    for name in sets:
        posed = (model.pose(case.text, None) for case in read_token_cases(name, "choose"))
        short = (prompt for prompt in posed if len(prompt.ids) <= single_token.most_tokens and model.fits(prompt))
        found += [prompt for prompt, _ in zip(short, range(count), strict=False)]
    return found


def write_shares(row: str, whole: ScoreParts, prompts: int) -> str:
    shares = [part / whole.score for part in (whole.words, whole.biases, whole.sink, whole.offset, whole.others)]
    return f"| `{row}` | {whole.score / prompts:.2f} | " + " | ".join(f"{share:.0%}" for share in shares) + " |"


def measure_parts(
    model: nn.Module, tokenizer: Any, sets: Iterable[str], count: int, rows: Sequence[str]
) -> Iterator[str]:
    """A table, line by line as it is found."""
    asked = AnsweringModel(model, tokenizer)
    prompts = pose_prompts(asked, sets, count)
    yield f"{len(prompts)} prompts\n"
    yield "| row | mean score | words | biases | sink | offset | others |\n|---|---|---|---|---|---|---|"
    with show_progress(len(rows) * len(prompts), doing="explaining", what="rows") as tick:
        for row in rows:
            parts = []
            for prompt in prompts:
                parts.append(explain_parts(asked, prompt, row))
                tick(1)
            yield write_shares(row, add_up(parts), len(prompts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", default="known1000,ioi", help="sets of prompts, separated by commas")
    parser.add_argument("--count", type=int, default=15, help="prompts of each set")
    parser.add_argument("--methods", default=",".join(ROWS), help="rows: a method, @, and its score")
    asked = parser.parse_args()
    for line in measure_parts(*load(asked.model), split_names(asked.data), asked.count, split_names(asked.methods)):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
