"""Labelled texts by name: from a directory of files, or from the Hugging Face hub.

`HEADWATER_DATA` names a directory with one folder a dataset and one file a split, `sst2/train.parquet` with the
columns `text` and `label`, or `sst2/train.tsv` with a header line as GLUE hands it out. Without it the hub is asked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import DataError, MissingExtra, UnknownName

DIRECTORY = "HEADWATER_DATA"
TEXT_COLUMNS = ("text", "sentence")

WORD = re.compile(r"[^\W_]+")
SENTENCE_WORDS = 8
PHRASE_WORDS = 3
TUNE_SHARE = 1 / 12

Words = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Texts and their labels, in the order of the source. `source` says where they were read."""

    texts: list[str]
    labels: list[int]
    label_names: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, keep: Sequence[int]) -> Table:
        """The rows at these positions, as a table of the same source."""
        return Table([self.texts[i] for i in keep], [self.labels[i] for i in keep], self.label_names, self.source)


@dataclass(frozen=True)
class Dataset:
    """Where a dataset lies, and which further splits are made from the stored ones."""

    label_names: tuple[str, ...]
    hub: str
    hub_splits: Mapping[str, str]
    derived: Mapping[str, tuple[str, Callable[[Table], Table]]] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        return (*self.hub_splits, *self.derived)


def load(name: str, split: str) -> Table:
    """The texts and labels of one split: `load("sst2", "dev")`.

    SST-2 has `train` and `dev` (GLUE's validation set), and two made from `train`: `tune`, about 500 whole sentences
    held back for choices made later (such as the settings of an explanation method), and `train-without-tune`, which
    the bundled model was trained on and which holds no phrase of three or more words from a `tune` sentence.
    """
    if name not in DATASETS:
        raise UnknownName("dataset", name, DATASETS)
    dataset = DATASETS[name]
    if split in dataset.hub_splits:
        return _stored(name, dataset, split)
    if split in dataset.derived:
        base, make = dataset.derived[split]
        return make(_stored(name, dataset, base))
    raise UnknownName(f"split of {name}", split, dataset.splits)


def hold_back(table: Table, share: float, salt: str) -> tuple[Table, Table]:
    """Whole sentences held back, and the rest of the table without any phrase of theirs.

    SST-2's training set lists phrases beside the sentences they were cut from, so holding back rows at random would
    leave most of their words in training. Here a row can be held back when it has at least 8 words and is no part of
    a longer row. Which ones are taken follows from a hash of salt and words: it depends on no random state and
    no order of rows. From the rest go all rows whose words stand in a held sentence one after the other, whatever their
    punctuation. Rows of one or two words stay: "good" stands everywhere, and dropping it would teach nothing safer.
    No remaining row contains a held sentence, since a held sentence is no part of a longer row.
    """
    rows = [words(text) for text in table.texts]
    sentences = _fullest(_sentences(rows), rows, table.texts)
    held = [i for i in sentences if _fraction(salt, rows[i]) < share]
    phrases = {phrase for i in held for phrase in _phrases(rows[i])}
    return table.rows(held), table.rows([i for i, row in enumerate(rows) if row not in phrases])


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation: two texts of equal words are taken as the same."""
    return tuple(WORD.findall(text.lower()))


def _sentences(rows: Sequence[Words]) -> set[Words]:
    """The rows that are long enough and no part of a longer row, compared word by word."""
    starts: dict[Words, set[Words]] = defaultdict(set)
    for row in rows:
        if len(row) >= SENTENCE_WORDS:
            starts[row[:SENTENCE_WORDS]].add(row)
    inside = {part for row in set(rows) for part in _parts(row, starts)}
    return {row for group in starts.values() for row in group} - inside


def _parts(row: Words, starts: Mapping[Words, set[Words]]) -> Iterator[Words]:
    """The shorter rows that stand inside this one; `starts` finds them by their first words."""
    for i in range(len(row) - SENTENCE_WORDS + 1):
        for part in starts.get(row[i : i + SENTENCE_WORDS], ()):
            if len(part) < len(row) and row[i : i + len(part)] == part:
                yield part


def _fullest(chosen: set[Words], rows: Sequence[Words], texts: Sequence[str]) -> list[int]:
    """One position for each chosen row: the longest text, where the same words come with and without a full stop."""
    best: dict[Words, int] = {}
    for i, row in enumerate(rows):
        if row in chosen and (row not in best or len(texts[i]) > len(texts[best[row]])):
            best[row] = i
    return sorted(best.values())


def _phrases(row: Words) -> Iterator[Words]:
    """All runs of at least three words."""
    for start in range(len(row)):
        for end in range(start + PHRASE_WORDS, len(row) + 1):
            yield row[start:end]


def _fraction(salt: str, row: Words) -> float:
    """A number in [0, 1) that depends on the salt and the words alone."""
    digest = hashlib.sha256(f"{salt}:{' '.join(row)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _stored(name: str, dataset: Dataset, split: str) -> Table:
    directory = os.environ.get(DIRECTORY)
    if directory:
        return _from_directory(Path(directory) / name, split, dataset.label_names)
    return _from_hub(dataset, split)


def _from_directory(folder: Path, split: str, label_names: tuple[str, ...]) -> Table:
    for suffix, read in ((".parquet", _read_parquet), (".tsv", _read_tsv)):
        path = folder / f"{split}{suffix}"
        if path.is_file():
            return _table(read(path), label_names, str(path))
    raise DataError(
        f"no file {split}.parquet or {split}.tsv in {folder}. Put it there, point {DIRECTORY} at the directory "
        f"above {folder.name}/, or unset {DIRECTORY} to load from the Hugging Face hub."
    )


def _read_parquet(path: Path) -> dict[str, list[object]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(f"reading {path.name}", "data") from error
    columns: dict[str, list[object]] = parquet.read_table(path).to_pydict()
    return columns


def _read_tsv(path: Path) -> dict[str, list[object]]:
    """Tab-separated columns under a header line, without quoting: a quotation mark is part of the text."""
    header, *lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    names = header.split("\t")
    rows = [line.split("\t") for line in lines]
    bad = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if bad is not None:
        raise DataError(f"{path}, line {bad + 2}: {len(rows[bad])} columns under a header of {len(names)}.")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _from_hub(dataset: Dataset, split: str) -> Table:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra(f"loading {dataset.hub} from the hub", "data") from error
    hub_split = dataset.hub_splits[split]
    try:
        columns = load_dataset(dataset.hub, split=hub_split)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{dataset.hub} could not be loaded from the hub: {error}. Set {DIRECTORY} to a directory that holds it."
        ) from error
    names = columns.column_names
    return _table({n: list(columns[n]) for n in names}, dataset.label_names, f"{dataset.hub}, {hub_split}")


def _table(columns: Mapping[str, list[object]], label_names: tuple[str, ...], source: str) -> Table:
    text = next((c for c in TEXT_COLUMNS if c in columns), None)
    if text is None or "label" not in columns:
        raise DataError(f"{source} has the columns {', '.join(columns)}; needed are text (or sentence) and label.")
    texts = [str(value).strip() for value in columns[text]]
    labels = [_label(value, len(label_names), source) for value in columns["label"]]
    return Table(texts, labels, label_names, source)


def _label(value: object, classes: int, source: str) -> int:
    text = str(value)
    if text.isdigit() and int(text) < classes:
        return int(text)
    raise DataError(f"{source} holds the label {text!r}; it must be a number from 0 to {classes - 1}.")


def _tune(train: Table) -> Table:
    return hold_back(train, TUNE_SHARE, "headwater tune")[0]


def _without_tune(train: Table) -> Table:
    return hold_back(train, TUNE_SHARE, "headwater tune")[1]


DATASETS: Mapping[str, Dataset] = {
    "sst2": Dataset(
        label_names=("negative", "positive"),
        hub="stanfordnlp/sst2",
        hub_splits={"train": "train", "dev": "validation"},
        derived={"tune": ("train", _tune), "train-without-tune": ("train", _without_tune)},
    ),
}
