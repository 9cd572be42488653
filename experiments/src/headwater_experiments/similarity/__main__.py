"""`python -m headwater_experiments.similarity`: the study of similarities, on one of two parts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.models.pretrained import MINILM
from headwater.names import split_names

from .pairs import PARTS, QuestionPair, read_pairs
from .study import MEASURES, Row, measure_pair, summarise, write_table

CANDIDATES = "lrp,lrp-gamma(gamma=0.05),lrp-secant,lrp-difference,lrp-difference(gamma=0.05)"


def main(arguments: list[str] | None = None) -> None:
    asked = make_parser().parse_args(arguments)
    methods = split_names(asked.methods)
    model, tokenizer = hw.load(MINILM)
    rows = []
    known = read_known(asked.out)
    for number, pair in enumerate(choose_pairs(asked.part, asked.pairs, asked.after)):
        key = name_pair(asked.part, pair)
        before = known.setdefault(key, {"asked": []})
        missing = [method for method in methods if method not in before["asked"]]
        if missing:
            known[key] = join_rows(before, measure_pair(model, tokenizer, pair, missing), missing)
            write_known(asked.out, known)
        rows.append(known[key]["found"])
        sys.stderr.write(f"pair {number + 1}\n")
    sys.stdout.write(write_table(summarise(rows, methods, methods[0]), methods[0]) + "\n")


def choose_pairs(part: str, count: int, after: int) -> list[QuestionPair]:
    """Those of the first `count` questions of each set that do not belong to the first `after`."""
    before = {name_pair(part, pair) for pair in read_pairs(part, after)}
    return [pair for pair in read_pairs(part, count) if name_pair(part, pair) not in before]


def read_known(path: Path | None) -> dict[str, Any]:
    """What an earlier run measured, by pair: it is not measured again."""
    if path is None or not path.exists():
        return {}
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return known


def write_known(path: Path | None, known: dict[str, Any]) -> None:
    """In one step, so that a run that is stopped leaves a whole file."""
    if path is not None:
        aside = path.with_name(path.name + ".part")
        aside.write_text(json.dumps(known), encoding="utf-8")
        aside.replace(path)


def name_pair(part: str, pair: QuestionPair) -> str:
    return f"{part}: {pair.question} | {pair.sentence}"


def join_rows(before: dict[str, Any], row: Row, methods: list[str]) -> dict[str, Any]:
    """What was known of a pair, and what further methods have."""
    known = before.get("found", {measure: {} for measure in MEASURES})
    found = {measure: known[measure] | row[measure] for measure in MEASURES}
    return {"asked": [*before["asked"], *methods], "found": found}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity", description="Two texts, words removed.")
    parser.add_argument("--part", choices=PARTS, default="choose")
    parser.add_argument("--pairs", type=int, default=20, help="of SQuAD, and as many of HotpotQA where it has them")
    parser.add_argument("--after", type=int, default=0, help="so many of each set are left out, the first ones")
    parser.add_argument("--methods", default=CANDIDATES, help="names, separated by commas; the first is compared")
    parser.add_argument(
        "--out", type=Path, help="the numbers of every pair, as JSON; what is there is not measured again"
    )
    return parser


if __name__ == "__main__":
    main()
