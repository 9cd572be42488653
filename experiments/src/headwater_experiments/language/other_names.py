"""More prompts of indirect object identification: those of one half, with other names of the same half.

    python -m headwater_experiments.language.other_names --half report --copies 10 --out FILE
    headwater faithfulness --model … --prompts FILE

A prompt names two persons, and the answer is one of them. Both get other names, drawn from all persons of that half.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.evaluation.language.prompts import TOKEN_SETS, Record, read_records, seed_of, take_half, two_names

SEED = 0


def exchange_names(records: Sequence[Record], copies: int) -> Iterator[dict[str, str]]:
    """Each record so many times, with two persons of these records in the place of its own."""
    persons = sorted({name for record in records for name in two_names(record)})
    for record in records:
        own = sorted(set(two_names(record)))
        draw = random.Random(seed_of(SEED, record["prompt"]))
        for _ in range(copies):
            new = dict(zip(own, draw.sample([name for name in persons if name not in own], len(own)), strict=True))
            words = re.split(r"\b", record["prompt"])
            yield {
                "prompt": "".join(new.get(word, word) for word in words),
                "answer": new[record["answer"].strip()],
            }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="choose", help="choose or report")
    parser.add_argument("--copies", type=int, default=10, help="of each prompt")
    parser.add_argument("--out", type=Path, required=True, help="the file that is written, a JSON object a line")
    given = parser.parse_args(arguments)
    records = take_half(read_records("ioi"), given.half, TOKEN_SETS["ioi"].entities)
    lines = [json.dumps(one, ensure_ascii=False) for one in exchange_names(records, given.copies)]
    given.out.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
