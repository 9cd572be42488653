"""`python -m headwater_experiments.similarity.passages`: many short passages, one a line, for `headwater rank`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headwater.evaluation.language.prompts import read_records

WORDS = 12  # of a passage


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity.passages", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    asked = parser.parse_args(arguments)
    found = list(islice(dict.fromkeys(cut_passages()), asked.count))
    asked.file.write_text("".join(f"{passage}\n" for passage in found), encoding="utf-8")


def cut_passages() -> Iterator[str]:
    """Paragraphs of SQuAD, then essays, cut into pieces of so many words."""
    paragraphs = dict.fromkeys(record["context"] for record in read_records("squad"))
    for text in (*paragraphs, *(record["text"] for record in read_records("essays"))):
        words = text.split()
        for start in range(0, len(words) - WORDS + 1, WORDS):
            yield " ".join(words[start : start + WORDS])


if __name__ == "__main__":
    main()
