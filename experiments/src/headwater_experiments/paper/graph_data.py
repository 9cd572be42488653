"""The paper's two graph datasets: names, terms, where their arrays lie, and which graphs a model is judged on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwater.errors import UnknownName
from headwater.models.graphs import Graph
from headwater.models.molecules import from_smiles
from headwater_experiments import data
from headwater_experiments.models.segmentation import Cut, segment_all
from headwater_experiments.models.superpixels import Superpixels, cache_directory, load_mnist_images

from .graph_arrays import PARTS, read_bace
from .graphs import bace_split, prepare
from .published import ACCURACY, GRAPHS, ROC_AUC

TEST_DIGITS = 10_000


@dataclass(frozen=True)
class GraphDataset:
    """What its graphs and classes are, and what is known of the paper's model: `paper` is its value of `measure`.

    `parts` says for each split how training, validation and test graphs were chosen.
    """

    title: str
    samples: str
    label_names: tuple[str, ...]
    measure: str
    paper: float
    parts: Mapping[str, str]
    terms: str


DATASETS: Mapping[str, GraphDataset] = {
    "bace": GraphDataset(
        title="BACE",
        samples="molecules",
        label_names=("inactive", "active"),
        measure="ROC-AUC",
        paper=ROC_AUC["bace"],
        parts={
            "random": "1,513 molecules; a tenth for validation and a tenth for the test, drawn with the seed",
            "scaffold": "1,513 molecules; 80 : 10 : 10 by Murcko scaffolds, the largest in the training part",
        },
        terms="BACE-1 inhibitors (Subramanian et al. 2016) as in MoleculeNet (Wu et al. 2018): cite both.",
    ),
    "mnist": GraphDataset(
        title="MNIST",
        samples="digits",
        label_names=tuple("0123456789"),
        measure="accuracy",
        paper=ACCURACY["mnist"],
        parts={
            "standard": "about 75 superpixels a digit, cut by SLIC (not the file of Monti et al. 2017); the published "
            "10,000 test digits; for validation, 5,000 of the 60,000 others, drawn with the seed"
        },
        terms="MNIST (LeCun, Cortes and Burges): research use is customary; cite LeCun et al. (1998).",
    ),
}


def find_graph_dataset(name: str) -> GraphDataset:
    """The graph dataset called so."""
    if name not in DATASETS:
        raise UnknownName("graph dataset", name, DATASETS)
    return DATASETS[name]


def check_known(name: str) -> None:
    """Refuses a name that no dataset of the paper has, be it of texts or of graphs."""
    if name not in data.DATASETS and name not in GRAPHS:
        raise UnknownName("dataset", name, (*data.DATASETS, *GRAPHS))


def dataset_title(name: str) -> str:
    """What a dataset of texts or graphs is called in tables and figures."""
    return DATASETS[name].title if name in DATASETS else data.find_dataset(name).title


def samples(name: str) -> str:
    """What a dataset's samples are."""
    return DATASETS[name].samples if name in DATASETS else "texts"


def arrays_directory() -> Path:
    """Where array files are kept unless another place is asked for."""
    return cache_directory() / "graphs"


def ensure_arrays(name: str, directory: Path) -> Path:
    """The array file of a dataset, made now if it is not there; that takes seconds for BACE, minutes for MNIST."""
    find_graph_dataset(name)
    path = directory / f"{name}.npz"
    if not path.is_file():
        prepare(directory, [name])
    return path


def unseen(name: str, record: Mapping[str, Any], rows: int | None = None, seed: int = 0) -> list[Graph]:
    """The labelled graphs that the model of this record has not seen; `rows` draws so many of them with `seed`."""
    if name == "bace":
        return [from_smiles(smiles, label) for smiles, label in unseen_molecules(record, rows, seed)]
    found = unseen_digits(rows, seed)
    return [found.graph(i) for i in range(len(found))]


def unseen_molecules(record: Mapping[str, Any], rows: int | None = None, seed: int = 0) -> list[tuple[str, int]]:
    """SMILES strings and labels of the test molecules of BACE: split and seed of the record say which they are."""
    columns = read_bace()
    scaffold = np.array([PARTS.index(part) for part in columns["scaffold_split"]], np.int8)
    held = bace_split(scaffold, record["split"], record["seed"])[2].tolist()
    chosen = [held[i] for i in draw_indices(len(held), rows, seed)]
    return [(columns["smiles"][i], int(columns["label"][i])) for i in chosen]


def unseen_digits(rows: int | None = None, seed: int = 0) -> Superpixels:
    """Test digits of MNIST; only those that were drawn are cut into patches."""
    images, labels = load_mnist_images("test")
    chosen = draw_indices(len(images), rows, seed)
    return Superpixels(images[chosen], segment_all(images[chosen], Cut()), labels[chosen])


def draw_indices(count: int, rows: int | None, seed: int) -> list[int]:
    """At most `rows` of `count`, drawn with the seed and left in their order."""
    if rows is None or rows >= count:
        return list(range(count))
    chosen: list[int] = sorted(np.random.default_rng(seed).permutation(count)[:rows].tolist())
    return chosen
