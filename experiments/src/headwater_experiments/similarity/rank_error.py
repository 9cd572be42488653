"""`python -m headwater_experiments.similarity.rank_error`: what a matrix along few directions misses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

import headwater as hw
from headwater.models.pretrained import MINILM
from headwater.results.similarity import Similarity

from .pairs import read_squad


@dataclass(frozen=True)
class RankError:
    """A pair's matrix at a rank beside the exact one: norms, and the bound that the result itself gives."""

    correlation: float
    missing: float
    whole: float
    bound: float

    @classmethod
    def of(cls, cut: Similarity, exact: Similarity) -> RankError:
        both = torch.stack([cut.matrix.flatten(), exact.matrix.flatten()])
        missing = float((cut.matrix - exact.matrix).norm())
        bound = float("nan") if cut.remainder is None else cut.remainder
        return cls(float(torch.corrcoef(both)[0, 1]), missing, float(exact.matrix.norm()), bound)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity.rank_error", description=__doc__)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=7, help="questions of SQuAD with the sentence of their answer")
    asked = parser.parse_args(arguments)
    model, tokenizer = hw.load(MINILM)
    found = []
    for pair in read_squad("choose")[: asked.pairs]:
        cut, exact = (
            hw.explain_similarity(model, pair.question, pair.sentence, tokenizer=tokenizer, rank=rank)
            for rank in (asked.rank, None)
        )
        found.append(RankError.of(cut, exact))
        sys.stderr.write(f"pair {len(found)}\n")
    sys.stdout.write(write_errors(found))


def write_errors(found: Sequence[RankError]) -> str:
    """Mean and range over pairs."""
    columns = {
        "correlation with the exact matrix": [one.correlation for one in found],
        "norm of what is missing over that of the matrix": [one.missing / one.whole for one in found],
        "the bound over the norm of what is missing": [one.bound / one.missing for one in found],
    }
    return "".join(
        f"{name}: {sum(values) / len(values):.2f} (from {min(values):.2f} to {max(values):.2f})\n"
        for name, values in columns.items()
    )


if __name__ == "__main__":
    main()
