"""`python -m headwater_experiments.inside.pruning`: what MiniLM keeps on SST-2 without heads or neurons.

Units are scored on sentences of the training part. Three trainings are pruned by every score, with zeros in the place
of what goes (as the scores were published) and with what is left fitted again (`refit`). Measured are accuracy,
agreement with the predictions before, and the KL divergence from them. Intervals are Student's over trainings, of our
score minus each other one.

Ours is `unshared, refit`. It was chosen before a row of the test part was read: on 272 of the 545 sentences of the
validation part (no phrase of them was trained on), with the first training, by divergence. Tried there: relevance by
`lrp` and by gradients, as mean size and as mean square, for the class and for the margin, signed; the expected square
of the sum over all that goes; gradients on the way to zero; zeros, means and least squares in the place of what goes;
scores taken once and after every tenth. The test part is GLUE's dev part; --data adds labelled rows to it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import headwater as hw
from headwater.cli.screen import say
from headwater.evaluation.pruning import KINDS, PrunedAccuracy, Pruner, compare_logits, find_logits
from headwater.evaluation.sources import read_labelled
from headwater.evaluation.unit_removal import Chosen
from headwater.evaluation.unit_scores import Examples, Scores, score_units
from headwater.evaluation.unshared import choose_in_steps
from headwater.inputs.classes import class_names

SHARES = (0.2, 0.4, 0.6)
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 %, by number of trainings
ZEROS, REFIT, AGAIN = "zeros", "refit", "refit, taken again"
OURS = f"unshared, {REFIT}"
ROWS = (
    OURS,
    f"taylor, {ZEROS}",
    f"magnitude, {ZEROS}",
    f"random, {ZEROS}",
    f"relevance, {ZEROS}",
    f"taylor, {REFIT}",
    f"taylor, {AGAIN}",
    f"relevance, {REFIT}",
    f"magnitude, {REFIT}",
    f"random, {REFIT}",
)
MEASURES = {"accuracy": 3, "agreement": 3, "divergence": 4}  # digits
PARTS = ("validation", "test")


def read_part(part: str, rows: int, seed: int, more: Path | None = None) -> Examples:
    from headwater_experiments.data import experiment

    table = getattr(experiment("sst2"), part)
    found = Examples(list(table.texts), [int(label) for label in table.labels]).draw(rows, seed)
    if more is None:
        return found
    added = read_labelled(more, "text", "label", class_names(None, 2), True)
    return Examples([*found.texts, *added.texts], [*found.labels, *(added.labels or [])])


def measure(seed: int, kinds: Sequence[str], names: Sequence[str], scored: int, measured: Examples, out: Path) -> None:
    """One training, a line of JSON for each kind and row of the table."""
    from transformers import AutoTokenizer

    from headwater.models.pretrained import MINILM, locate
    from headwater_experiments.paper.checkpoints import find

    model, _ = hw.load(find("minilm", "sst2", seed))
    tokenizer = AutoTokenizer.from_pretrained(locate(MINILM))
    before, labels = find_logits(model, tokenizer, measured), np.array(measured.labels)
    accuracy = float((before.argmax(-1).numpy() == labels).mean())
    for kind in kinds:
        pruner = Pruner.open(model, tokenizer, kind, read_part("train", scored, seed))
        for name in names:
            pruned = []
            for share, chosen, use in choose(pruner, name, seed):
                after = find_logits(use.cut(chosen), tokenizer, measured)
                removed = sum(map(len, chosen.values()))
                pruned.append(vars(PrunedAccuracy(name, share, removed, *compare_logits(before, after, labels))))
            about = {"seed": seed, "kind": kind, "rows": len(labels), "scored": scored, "accuracy": accuracy}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**about, "pruned": pruned}) + "\n")
            say(f"training {seed}, {kind}, {name}: " + ", ".join(f"{one['accuracy']:.3f}" for one in pruned))


def choose(pruner: Pruner, name: str, seed: int) -> Iterator[tuple[float, Chosen, Pruner]]:
    """What goes for each share, and the pruner that cuts it."""
    score, _, fill = name.partition(", ")
    use = replace(pruner, moments=None) if fill == ZEROS else pruner

    def scores_of(gone: Chosen) -> Scores:
        return score_units(score, use.cut(gone), use.tokenizer, use.scored, use.groups, seed)

    found = choose_in_steps(scores_of, use.groups, SHARES) if fill == AGAIN else use.choose(score, SHARES, seed)
    for share, chosen in zip(SHARES, found, strict=True):
        yield share, chosen, use


def interval(values: Sequence[float], digits: int = 3) -> str:
    """Mean and Student's interval over trainings."""
    mean = float(np.mean(values))
    if len(values) not in STUDENT:
        return f"{mean:+.{digits}f}"
    half = STUDENT[len(values)] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean:+.{digits}f} [{mean - half:+.{digits}f}, {mean + half:+.{digits}f}]"


def summarise(out: Path, measures: Sequence[str] = tuple(MEASURES), ours: str = OURS) -> str:
    """For each kind and measure a table of means over trainings, and our score minus each other, paired by training."""
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    lines = []
    for kind in dict.fromkeys(one["kind"] for one in found):
        own = [one for one in found if one["kind"] == kind]
        for measure in measures:
            lines += [*table_of(own, measure, ours), ""]
    return "\n".join(lines)


def table_of(lines: list[dict[str, object]], measure: str, ours: str) -> Iterator[str]:
    table: dict[tuple[str, float], dict[object, float]] = {}
    for line in lines:
        for one in line["pruned"]:  # type: ignore[attr-defined]
            table.setdefault((one["score"], one["share"]), {})[line["seed"]] = one[measure]
    trainings = sorted({line["seed"] for line in lines})  # type: ignore[type-var]
    whole = np.mean([line["accuracy"] for line in lines])
    before = f", {whole:.3f} before" if measure == "accuracy" else ""
    columns = " | ".join(f"{share:.0%} | {ours} minus it" for share in SHARES)
    yield f"| {lines[0]['kind']}: {measure}, {len(trainings)} trainings, {lines[0]['rows']} rows{before} | {columns} |"
    yield "|---|" + "---|---|" * len(SHARES)
    digits = MEASURES[measure]
    for name in [one for one in ROWS if (one, SHARES[0]) in table]:
        cells = []
        for share in SHARES:
            theirs = [table[name, share][one] for one in trainings]
            gaps = [table[ours, share][one] - value for one, value in zip(trainings, theirs, strict=True)]
            cells += [f"{np.mean(theirs):.{digits}f}", "" if name == ours else interval(gaps, digits)]
        yield f"| {name} | {' | '.join(cells)} |"


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--scores", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--scored", type=int, default=256, help="sentences that units are scored on")
    parser.add_argument("--part", choices=PARTS, default="validation")
    parser.add_argument("--rows", type=int, default=872, help="sentences of the part that are measured")
    parser.add_argument("--data", type=Path, help="more labelled rows that are measured, such as SST's test part")
    parser.add_argument("--out", type=Path, default=Path("pruning.jsonl"))
    parser.add_argument("--summary", action="store_true", help="only the tables of what lies in --out")
    given = parser.parse_args(words)
    if not given.summary:
        measured = read_part(given.part, given.rows, 0, given.data)
        for seed in given.seeds:
            measure(seed, given.kinds, given.scores, given.scored, measured, given.out)
    sys.stdout.write(summarise(given.out))


if __name__ == "__main__":
    main(sys.argv[1:])
