"""`python -m headwater_experiments.inside.pruning`: how much accuracy MiniLM keeps on SST-2 without heads or neurons.

Units are scored on sentences of the training part, and accuracy is measured on the validation part. Each of three
trainings is pruned by every score; intervals are Student's over trainings, of the difference to relevance where a score
is compared with it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import headwater as hw
from headwater.cli.screen import say
from headwater.evaluation.pruning import KINDS, Pruner, measure_pruning
from headwater.evaluation.unit_scores import SCORES, Examples

SHARES = (0.2, 0.4, 0.6)
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 %, by number of trainings


def examples(split: str, count: int, seed: int) -> Examples:
    from headwater_experiments.data.catalogue import load

    table = load("sst2", split)
    return Examples(list(table.texts), list(table.labels)).draw(count, seed)


def measure(seed: int, kinds: Sequence[str], scored: int, rows: int, out: Path) -> None:
    """One training, a line of JSON for each kind."""
    from transformers import AutoTokenizer

    from headwater.models.pretrained import MINILM, locate
    from headwater_experiments.paper.checkpoints import find

    model, _ = hw.load(find("minilm", "sst2", seed))
    tokenizer = AutoTokenizer.from_pretrained(locate(MINILM))
    given, measured = examples("train", scored, seed), examples("dev", rows, 0)
    for kind in kinds:
        pruner = Pruner.open(model, tokenizer, kind, given.texts[0])
        report = measure_pruning(pruner, given, measured, SHARES, seed=seed)
        say(str(report))
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, **report.to_dict()}) + "\n")


def interval(values: Sequence[float]) -> str:
    """Mean and Student's interval over trainings."""
    mean = float(np.mean(values))
    if len(values) not in STUDENT:
        return f"{mean:+.3f}"
    half = STUDENT[len(values)] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def summarise(out: Path) -> str:
    """A table of mean accuracies, and below it relevance minus every other score, paired by training."""
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    lines = []
    for kind in dict.fromkeys(one["kind"] for one in found):
        own = [one for one in found if one["kind"] == kind]
        whole = np.mean([one["accuracy"] for one in own])
        lines += [f"| {kind}, {len(own)} trainings, {whole:.3f} before | 20 % | 40 % | 60 % |", "|---|---|---|---|"]
        table = {
            (p["score"], p["share"]): [q["accuracy"] for one in own for q in one["pruned"] if same(p, q)]
            for p in own[0]["pruned"]
        }
        for name in SCORES:
            lines.append(f"| {name} | " + " | ".join(f"{np.mean(table[name, share]):.3f}" for share in SHARES) + " |")
        for name in [one for one in SCORES if one != "relevance"]:
            gaps = [np.subtract(table["relevance", share], table[name, share]).tolist() for share in SHARES]
            lines.append(f"| relevance minus {name} | " + " | ".join(map(interval, gaps)) + " |")
    return "\n".join(lines)


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    return (one["score"], one["share"]) == (other["score"], other["share"])


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--scored", type=int, default=128, help="sentences that units are scored on")
    parser.add_argument("--rows", type=int, default=872, help="sentences that accuracy is measured on")
    parser.add_argument("--out", type=Path, default=Path("pruning.jsonl"))
    parser.add_argument("--summary", action="store_true", help="only the table of what lies in --out")
    given = parser.parse_args(words)
    if not given.summary:
        for seed in given.seeds:
            measure(seed, given.kinds, given.scored, given.rows, given.out)
    sys.stdout.write(summarise(given.out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
