"""The datasets of the paper by name: where they lie, what they must hold, and `load`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import DataError, UnknownName
from headwater.inputs.table import DATA_DIRECTORY, LabelledTexts

from .holding import hold_back, whole_sentences
from .tables import Hub, read_folder

TUNE_SHARE = 1 / 12

Counts = tuple[int, ...]
SENTIMENT = ("negative", "neutral", "positive")


@dataclass(frozen=True)
class Dataset:
    """Where a dataset lies, how many rows of each label its parts have, and which parts are made from others.

    `parts` holds, for each published part, the row counts by label that a faithful copy can have: one, or two where
    the published part could not be had and was rebuilt. `stems` names its files where they differ from the part.
    """

    title: str
    label_names: tuple[str, ...]
    parts: Mapping[str, tuple[Counts, ...]]
    hub: Hub
    terms: str
    stems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    derived: Mapping[str, tuple[str, Callable[[LabelledTexts], LabelledTexts]]] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        return (*self.parts, *self.derived)


def load(name: str, split: str) -> LabelledTexts:
    """The texts and labels of one part: `load("sst2", "dev")`.

    `HEADWATER_DATA` names a directory with one folder a dataset and one file per part, `sst2/train.parquet` with the
    columns `text` and `label`, or `sst2/train.tsv` with a header line as GLUE hands it out. Without it the Hugging
    Face hub is asked. Columns, labels and the number of rows of each label are checked.

    SST-2 has `train` and `dev` (GLUE's validation set), and three made from `train`: `sentences`, its about 6,000 whole
    sentences without the phrases cut from them; `tune`, about 500 of those, held back for choices made later (such as
    the settings of an explanation method); and `train-without-tune`, which the bundled model was trained on and which
    holds no phrase of three or more words from a `tune` sentence.
    """
    dataset = find_dataset(name)
    if split in dataset.parts:
        return _load_published(name, dataset, split)
    if split in dataset.derived:
        base, make = dataset.derived[split]
        return make(_load_published(name, dataset, base))
    raise UnknownName(f"split of {name}", split, dataset.splits)


def find_dataset(name: str) -> Dataset:
    """The dataset called so."""
    if name not in DATASETS:
        raise UnknownName("dataset", name, DATASETS)
    return DATASETS[name]


def _load_published(name: str, dataset: Dataset, split: str) -> LabelledTexts:
    directory = os.environ.get(DATA_DIRECTORY)
    if directory:
        stems = dataset.stems.get(split, (split,))
        table = read_folder(Path(directory) / FOLDERS.get(name, name), stems, dataset.label_names)
    else:
        table = dataset.hub.read(split, dataset.label_names)
    return check_counts(table, dataset, split)


def check_counts(table: LabelledTexts, dataset: Dataset, split: str) -> LabelledTexts:
    """The table, if it has as many rows of each label as the published part."""
    if table.counts in dataset.parts[split]:
        return table
    wanted = " or ".join(" / ".join(map(str, counts)) for counts in dataset.parts[split])
    raise DataError(
        f"{table.source} has {' / '.join(map(str, table.counts))} rows of the labels "
        f"{' / '.join(dataset.label_names)}; the {split} part of {dataset.title} has {wanted}. Numbers made with "
        "another copy could not be compared. For data of your own, pass its path or a table instead of a name."
    )


def _tune(train: LabelledTexts) -> LabelledTexts:
    return hold_back(train, TUNE_SHARE, "headwater tune")[0]


def _without_tune(train: LabelledTexts) -> LabelledTexts:
    return hold_back(train, TUNE_SHARE, "headwater tune")[1]


FOLDERS = {
    "t-emotions": "tweeteval_emotion",
    "t-hate": "tweeteval_hate",
    "t-sentiment": "tweeteval_sentiment",
    "meld-s": "silicone_meld_s",
    "semaine": "silicone_sem",
}

TWEETS = "Tweets under Twitter's terms, collected by TweetEval: for research, not for commercial use."
SILICONE = "SILICONE is CC BY-NC-SA 4.0: not for commercial use."


def _tweeteval(config: str) -> Hub:
    return Hub("cardiffnlp/tweet_eval", {"train": "train", "val": "validation", "test": "test"}, config)


def _silicone(config: str) -> Hub:
    splits = {"train": "train", "dev": "validation", "test": "test"}
    return Hub("eusip/silicone", splits, config, revision="refs/convert/parquet")


DATASETS: Mapping[str, Dataset] = {
    "sst2": Dataset(
        title="SST-2",
        label_names=("negative", "positive"),
        parts={"train": ((29780, 37569),), "dev": ((428, 444),)},
        hub=Hub("stanfordnlp/sst2", {"train": "train", "dev": "validation"}),
        terms="Stanford Sentiment Treebank (Socher et al. 2013) as in GLUE: research use is customary.",
        derived={
            "sentences": ("train", whole_sentences),
            "tune": ("train", _tune),
            "train-without-tune": ("train", _without_tune),
        },
    ),
    "imdb": Dataset(
        title="IMDB",
        label_names=("negative", "positive"),
        parts={"train": ((12500, 12500),), "test": ((12500, 12500),)},
        hub=Hub("stanfordnlp/imdb", {"train": "train", "test": "test"}),
        terms="Large Movie Review Dataset (Maas et al. 2011): the reviews belong to their authors; cite the paper.",
    ),
    "t-emotions": Dataset(
        title="T-Emotions",
        label_names=("anger", "joy", "optimism", "sadness"),
        parts={"train": ((1400, 708, 294, 855),), "val": ((160, 97, 28, 89),), "test": ((558, 358, 123, 382),)},
        hub=_tweeteval("emotion"),
        terms=TWEETS,
    ),
    "t-hate": Dataset(
        title="T-Hate",
        label_names=("not-hate", "hate"),
        parts={"train": ((5217, 3783),), "val": ((573, 427),), "test": ((1718, 1252),)},
        hub=_tweeteval("hate"),
        terms=TWEETS,
    ),
    "t-sentiment": Dataset(
        title="T-Sentiment",
        label_names=SENTIMENT,
        parts={
            "train": ((7093, 20673, 17849), (7103, 20665, 17838)),
            "val": ((312, 869, 819),),
            "test": ((3972, 5937, 2375),),
        },
        hub=_tweeteval("sentiment"),
        stems={"train": ("train", "train_rebuilt")},
        terms=TWEETS,
    ),
    "meld-s": Dataset(
        title="Meld-S",
        label_names=SENTIMENT,
        parts={"train": ((2945, 4710, 2334),), "dev": ((406, 470, 233),), "test": ((833, 1256, 521),)},
        hub=_silicone("meld_s"),
        terms=SILICONE,
    ),
    "semaine": Dataset(
        title="Semaine",
        label_names=SENTIMENT,
        parts={"train": ((844, 2291, 1129),), "dev": ((92, 261, 132),), "test": ((158, 488, 232),)},
        hub=_silicone("sem"),
        terms=SILICONE,
    ),
}
