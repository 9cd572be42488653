"""What is trained on, what is chosen on, what is reported: parts that share no text of four words or more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.inputs.table import LabelledTexts

from .catalogue import Dataset, find_dataset, load
from .holding import fraction, hold_back, split_words

VALIDATION_SHARE = 0.1
IMDB_REPORTED = 10_000
SHORT = 4  # "oh my god" is said by everybody; a longer text that comes twice is the same text


@dataclass(frozen=True)
class Experiment:
    """A dataset, ready for an honest experiment. `notes` says what was done to the published parts.

    `train` is what a model learns from, `validation` what the best round and every setting are chosen on, `test` what
    is reported and nothing else.
    """

    name: str
    dataset: Dataset
    train: LabelledTexts
    validation: LabelledTexts
    test: LabelledTexts
    notes: tuple[str, ...]


def experiment(name: str) -> Experiment:
    """The three parts of one of the paper's text datasets.

    Rows without text are dropped. A text of four words or more that stands in a later part (test, then validation) is
    dropped from the earlier ones. SST-2 reports on GLUE's dev part, and its validation part are whole sentences held
    back from `train-without-tune`; IMDB's validation part is a tenth of its training part, and it reports on 10,000
    test reviews. Both are drawn by a hash of the words, so that they do not depend on the order of a copy's rows.
    """
    dataset = find_dataset(name)
    parts, notes = PARTS.get(name, _official)(name)
    train, validation, test = parts
    notes = [*notes, *_rebuilt(dataset, train)]
    test, no_text = _with_text(test)
    validation, repeats = _without(_with_text(validation)[0], _long_texts(test))
    train, more = _without(_with_text(train)[0], _long_texts(test) | _long_texts(validation))
    notes += [f"{no_text} rows of the test part have no text and were dropped"] * bool(no_text)
    said = f"{more} rows of train and {repeats} of validation repeat a text of a later part and were dropped"
    notes += [said] * bool(more or repeats)
    return Experiment(name, dataset, train, validation, test, tuple(notes))


def _official(name: str) -> tuple[tuple[LabelledTexts, LabelledTexts, LabelledTexts], list[str]]:
    middle = next(split for split in ("val", "dev") if split in find_dataset(name).parts)
    return (load(name, "train"), load(name, middle), load(name, "test")), []


def _sst2(name: str) -> tuple[tuple[LabelledTexts, LabelledTexts, LabelledTexts], list[str]]:
    validation, train = hold_back(load(name, "train-without-tune"), VALIDATION_SHARE, "headwater validation")
    note = f"test is GLUE's dev part; validation are {len(validation)} whole sentences of train, none of whose phrases"
    return (train, validation, load(name, "dev")), [f"{note} are trained on"]


def _imdb(name: str) -> tuple[tuple[LabelledTexts, LabelledTexts, LabelledTexts], list[str]]:
    train, test = load(name, "train"), load(name, "test")
    place = [fraction("headwater validation", split_words(text)) for text in train.texts]
    validation = train.rows([i for i, p in enumerate(place) if p < VALIDATION_SHARE])
    rest = train.rows([i for i, p in enumerate(place) if p >= VALIDATION_SHARE])
    order = sorted(range(len(test)), key=lambda i: fraction("headwater test", split_words(test.texts[i])))
    note = f"test are {IMDB_REPORTED:,} of {len(test):,} reviews; validation are {len(validation):,} reviews of train"
    return (rest, validation, test.rows(sorted(order[:IMDB_REPORTED]))), [note]


PARTS = {"sst2": _sst2, "imdb": _imdb}


def _rebuilt(dataset: Dataset, train: LabelledTexts) -> list[str]:
    """The note on a training part that is not the published one."""
    official = dataset.parts["train"][0]
    if len(dataset.parts["train"]) == 1 or train.counts == official:
        return []
    said = f"train is rebuilt from the sources of the published part: {len(train):,} rows for {sum(official):,}"
    return [f"{said}, so results are of a rebuilt training part"]


def _with_text(table: LabelledTexts) -> tuple[LabelledTexts, int]:
    keep = [i for i, text in enumerate(table.texts) if text]
    return table.rows(keep), len(table) - len(keep)


def _long_texts(table: LabelledTexts) -> set[tuple[str, ...]]:
    return {row for row in map(split_words, table.texts) if len(row) >= SHORT}


def _without(table: LabelledTexts, texts: Collection[tuple[str, ...]]) -> tuple[LabelledTexts, int]:
    keep = [i for i, text in enumerate(table.texts) if split_words(text) not in texts]
    return table.rows(keep), len(table) - len(keep)
