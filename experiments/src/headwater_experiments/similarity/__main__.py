"""`python -m headwater_experiments.similarity`: the study of similarities, on one of two parts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import headwater as hw
from headwater.models.pretrained import MINILM
from headwater.names import split_names

from .pairs import PARTS, read_pairs
from .study import measure_pair, summarise, write_table

CANDIDATES = "lrp,lrp-gamma(gamma=0.05),lrp-secant,lrp-difference,lrp-difference(gamma=0.05)"


def main(arguments: list[str] | None = None) -> None:
    asked = make_parser().parse_args(arguments)
    methods = split_names(asked.methods)
    model, tokenizer = hw.load(MINILM)
    rows = []
    for number, pair in enumerate(read_pairs(asked.part, asked.pairs)):
        rows.append(measure_pair(model, tokenizer, pair, methods))
        sys.stderr.write(f"pair {number + 1}\n")
        if asked.out is not None:
            asked.out.write_text(json.dumps(rows), encoding="utf-8")
    sys.stdout.write(write_table(summarise(rows, methods, methods[0]), methods[0]) + "\n")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity", description="Two texts, words removed.")
    parser.add_argument("--part", choices=PARTS, default="choose")
    parser.add_argument("--pairs", type=int, default=20, help="of SQuAD, and as many of HotpotQA where it has them")
    parser.add_argument("--methods", default=CANDIDATES, help="names, separated by commas; the first is compared")
    parser.add_argument("--out", type=Path, help="the numbers of every pair, as JSON")
    return parser


if __name__ == "__main__":
    main()
