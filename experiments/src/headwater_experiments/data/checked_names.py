"""How often the rule for names is right: its mentions, against verdicts on mentions that were read one by one.

`checked-names.csv` has a verdict on every mention that was read, by its place in the texts and without any text.
`python -m headwater_experiments.data.checked_names` counts them, and says what the rule finds that nobody has read.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.bias.names import NameFinder, gender_names
from headwater.bias.texts import Texts, read_texts
from headwater.errors import UsageError
from headwater.viz.plain import align_columns
from headwater.viz.tables import Table
from headwater_experiments import data as datasets

RIGHT, OTHER, NONE = "right", "other name", "no person"
DRAWN, SEED = 1500, 0  # reviews of IMDB's training part
TEXTS = ("sst2", "sst2-test", "imdb")

Place = tuple[str, int, int]  # part, row, first character


@dataclass(frozen=True)
class NameCheck:
    """Verdicts on the mentions in one set of texts: `right`, `other` (a family name, a title, another gender), `none`.

    `found` mentions are what the rule finds today; `again` of them have been read.
    """

    texts: str
    read: int
    right: int
    other: int
    none: int
    found: int
    again: int

    @property
    def persons(self) -> int:
        return self.right + self.other


def verdicts(texts: str) -> dict[Place, str]:
    """What was said of each mention that was read, by its place."""
    with Path(__file__).with_name("checked-names.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["texts"] == texts]
    return {(row["part"], int(row["row"]), int(row["start"])): row["verdict"] for row in rows}


def count_verdicts(texts: str, given: Texts, finder: NameFinder, said: Mapping[Place, str]) -> NameCheck:
    """The verdicts of a set of texts, and how many of today's mentions they are about."""
    every = zip(given.parts, given.rows, given.texts, strict=True)
    found = {(part, row, hit.start) for part, row, text in every for hit in finder.find(text).hits}
    right, other, none = (list(said.values()).count(verdict) for verdict in (RIGHT, OTHER, NONE))
    return NameCheck(texts, len(said), right, other, none, len(found), len(found & set(said)))


def texts_of(name: str, path: str | None) -> Texts:
    """The texts that were read. SST-2's test sentences are no part of its tables, so they come from a file."""
    if name == "imdb":
        table = datasets.load("imdb", "train")
        whole = Texts(list(table.texts), list(range(len(table))), [""] * len(table), "IMDB, training part")
        return whole.draw(DRAWN, SEED)
    if name == "sst2-test" and path is None:
        raise UsageError("SST-2's test sentences are read from a file: --test test.parquet, with a column `text`.")
    return read_texts(name if path is None else path)


def table(found: Sequence[NameCheck]) -> Table:
    rows = [
        (
            one.texts,
            str(one.read),
            f"{one.persons} ({one.persons / one.read:.1%})",
            f"{one.right} ({one.right / one.read:.1%})",
            f"{one.found}",
            f"{one.again}",
        )
        for one in found
    ]
    columns = (
        "texts",
        "mentions read",
        "a person's name",
        "first name of the right gender",
        "found today",
        "of these read",
    )
    return Table("names that were read one by one", columns, rows, left=1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m headwater_experiments.data.checked_names", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--test", help="SST-2's 1,821 test sentences: a file with the column `text`")
    path, finder = parser.parse_args(arguments).test, gender_names()
    asked = [name for name in TEXTS if name != "sst2-test" or path]
    found = [count_verdicts(n, texts_of(n, path if n == "sst2-test" else None), finder, verdicts(n)) for n in asked]
    sys.stdout.write("\n".join(align_columns(table(found))) + "\n")


if __name__ == "__main__":
    main()
