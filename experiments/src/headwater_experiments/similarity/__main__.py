"""`python -m headwater_experiments.similarity`: the study of similarities, on one of two parts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import headwater as hw
from headwater.models.pretrained import MINILM
from headwater.names import split_names

from .pairs import PARTS, QuestionPair, read_pairs
from .study import MEASURES, Row, measure_pair, summarise, write_table

CANDIDATES = "lrp,lrp-gamma(gamma=0.05),lrp-secant,lrp-difference,lrp-difference(gamma=0.05)"

NO_ROW: Row = {measure: {} for measure in MEASURES}


def main(arguments: list[str] | None = None) -> None:
    asked = make_parser().parse_args(arguments)
    methods = split_names(asked.methods)
    model, tokenizer = hw.load(MINILM)
    rows = []
    known = read_known(asked.out)
    for number, pair in enumerate(read_pairs(asked.part, asked.pairs)):
        key = name_pair(asked.part, pair)
        missing = [method for method in methods if method not in known.get(key, NO_ROW)[MEASURES[0]]]
        known[key] = join_rows(known.get(key, NO_ROW), measure_pair(model, tokenizer, pair, missing))
        rows.append(known[key])
        sys.stderr.write(f"pair {number + 1}\n")
        if asked.out is not None and missing:
            asked.out.write_text(json.dumps(known), encoding="utf-8")
    sys.stdout.write(write_table(summarise(rows, methods, methods[0]), methods[0]) + "\n")


def read_known(path: Path | None) -> dict[str, Row]:
    """What an earlier run measured: it is not measured again."""
    there = path is not None and path.exists()
    known: dict[str, Row] = json.loads(path.read_text(encoding="utf-8")) if path is not None and there else {}
    return known


def name_pair(part: str, pair: QuestionPair) -> str:
    return f"{part}: {pair.question} | {pair.sentence}"


def join_rows(mine: Row, other: Row) -> Row:
    """The methods of both."""
    return {measure: mine[measure] | other[measure] for measure in MEASURES}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity", description="Two texts, words removed.")
    parser.add_argument("--part", choices=PARTS, default="choose")
    parser.add_argument("--pairs", type=int, default=20, help="of SQuAD, and as many of HotpotQA where it has them")
    parser.add_argument("--methods", default=CANDIDATES, help="names, separated by commas; the first is compared")
    parser.add_argument(
        "--out", type=Path, help="the numbers of every pair, as JSON; what is there is not measured again"
    )
    return parser


if __name__ == "__main__":
    main()
