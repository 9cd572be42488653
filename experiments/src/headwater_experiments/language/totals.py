"""The total of `single-token` alone, without the rank correlation, which takes most of the time of long prompts.

    python -m headwater_experiments.language.totals --model smollm2 --data squad --half choose --count 15
        --methods "later-words,lrp-language,lrp-gamma@advantage" --out FILE

Words are zeroed, or swapped with `--removal swap`. Every prompt is a line of FILE; the same command goes on after the
last one. A table is printed: the mean of every row, and what it has more than the first two, with 95 % intervals over
prompts. `--read FILE` prints that of a file, without the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headwater.evaluation.language.asking import AnsweringModel
from headwater.evaluation.language.catalogue import single_token
from headwater.evaluation.language.single_token import disrupt_and_recover
from headwater.evaluation.statistics import percentile_interval, resample_means
from headwater.models.loading import load
from headwater.names import split_names

Totals = dict[str, float]  # by row


def measure_totals(asked: AnsweringModel, given: argparse.Namespace, known: dict[str, Totals]) -> Iterator[None]:
    """Adds to what is known each prompt that the protocol keeps and that is not yet there."""
    rule = replace(single_token, removals=(given.removal,))
    cases, rows = rule.read(given.data, given.half, asked.tokenizer), split_names(given.methods)
    for case in cases.cases:
        if case.id not in known and (one := rule.pose(asked, case, cases)) is not None:
            words, answers = one.prompt.words, one.answers[given.removal]
            found = {row: asked.relevance(one.prompt, row, 0)[words] for row in rows}
            known[case.id] = {row: disrupt_and_recover(answers, r, rule.fractions) for row, r in found.items()}
            yield


def compare_totals(totals: Sequence[Totals], row: str, other: str) -> tuple[float, float, float]:
    """What a row has more than another: the mean over prompts, and its interval."""
    more = np.array([one[row] - one[other] for one in totals])
    low, high = percentile_interval(resample_means(more, 0))
    return float(more.mean()), float(low), float(high)


def write_table(totals: Sequence[Totals]) -> str:
    rows = list(totals[0])
    beside = rows[:2]
    lines = [f"| {len(totals)} prompts | total | " + " | ".join(f"minus `{one}`" for one in beside) + " |"]
    lines.append("|---" * (2 + len(beside)) + "|")
    for row in rows:
        cells = [f"{float(np.mean([one[row] for one in totals])):.1f}"]
        for other in beside:
            more, low, high = compare_totals(totals, row, other)
            cells.append("" if row == other else f"{more:.1f} ({low:.1f} to {high:.1f})")
        lines.append(f"| `{row}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read_totals(file: Path) -> dict[str, Totals]:
    """The totals of every prompt that a file has, by its number."""
    if not file.is_file():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["prompt"]: line["values"] for line in lines}


def write_totals(file: Path, known: dict[str, Totals]) -> None:
    lines = (json.dumps({"prompt": prompt, "values": values}) for prompt, values in known.items())
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", default="squad")
    parser.add_argument("--half", default="choose", choices=("choose", "report"))
    parser.add_argument("--removal", default="zero", choices=("zero", "swap"))
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--methods", default="later-words,lrp-language")
    parser.add_argument("--out", type=Path, help="a file of JSON lines")
    parser.add_argument("--read", type=Path, help="print the table of this file")
    given = parser.parse_args(arguments)
    kept = given.read or given.out
    known = read_totals(kept) if kept is not None else {}
    if given.read is None and any(list(one) != split_names(given.methods) for one in known.values()):
        parser.error(f"{given.out} has other rows: name another file, or the same methods.")
    if given.read is None and len(known) < given.count:
        for _ in measure_totals(AnsweringModel(*load(given.model)), given, known):
            if given.out is not None:
                write_totals(given.out, known)
            if len(known) >= given.count:
                break
    sys.stdout.write(write_table(list(known.values())) + "\n")


if __name__ == "__main__":
    main()
