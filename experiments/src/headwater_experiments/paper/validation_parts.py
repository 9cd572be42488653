"""The validation or test parts of the paper's models in one small file, so that methods can be compared anywhere.

Lines of JSON, packed: a text with its label, or a graph as lists of numbers. Reading them needs neither the datasets
nor RDKit, pyarrow or SciPy.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.errors import DataError
from headwater.models.graphs import find_distances
from headwater.models.graphs.graph import Graph
from headwater.models.molecules import from_smiles
from headwater_experiments import data
from headwater_experiments.models.segmentation import Cut, segment_all
from headwater_experiments.models.superpixels import Superpixels, load_mnist_images

from .checkpoints import RECIPES, find, seeds
from .graph_arrays import PARTS, read_bace
from .graph_checkpoints import record_of
from .graph_data import draw_indices, unseen
from .graphs import VALID_DIGITS, bace_split
from .published import TEXTS

BUNDLED = "bundled"  # the model that comes with the package
MINILM = "minilm"
VALIDATION, TEST = "validation", "test"
KINDS = ("texts", "graphs")
Sample = tuple[Any, int]  # a text or a graph, and its class


def list_models() -> list[str]:
    """Every trained model as KIND/DATASET/SEED, and the bundled one; of the tuned recipe the first training of each."""
    found = [BUNDLED]
    for kind in (*RECIPES, MINILM):
        for name in (*TEXTS, *(("bace", "mnist") if kind in RECIPES else ())):
            there = seeds(kind, name)
            found += [f"{kind}/{name}/{seed}" for seed in (there[:1] if kind == "tuned" else there)]
    return found


def part_key(model: str) -> str:
    """Which part a model is judged on: all trainings share that of a text, and each has its own of a graph."""
    if model == BUNDLED:
        return "sst2-tune"
    kind, name, seed = model.split("/")
    return name if name in TEXTS else f"{kind}/{name}/{seed}"


def kind_of(model: str) -> str:
    """Whether a model, or a column of them, is about texts or graphs."""
    return "texts" if model == BUNDLED or model.split("/")[1] in TEXTS else "graphs"


def is_reported(column: str) -> bool:
    """Whether a column, or a model of it, is one of the 16."""
    return column.split("/")[0] in ("paper", MINILM)


def write_parts(
    path: Path, rows: int, reviews: int, digits: int, part: str = VALIDATION, seed: int = 0
) -> dict[str, int]:
    """Draws the samples of all parts, writes them, and says how many each part has; of test parts those reported."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        models = [model for model in list_models() if part == VALIDATION or is_reported(model)]
        for key, model in sorted({part_key(model): model for model in models}.items()):
            for given, label in draw_part(model, part, rows, reviews, digits, seed):
                line = {"part": key, "label": label, **write_sample(given)}
                file.write(json.dumps(line) + "\n")
                counts[key] = counts.get(key, 0) + 1
    return counts


def draw_part(model: str, part: str, rows: int, reviews: int, digits: int, seed: int) -> Iterator[Sample]:
    key = part_key(model)
    if key in (*TEXTS, "sst2-tune"):
        table = data.load("sst2", "tune") if model == BUNDLED else getattr(data.experiment(key), part)
        chosen = draw_indices(len(table), reviews if key == "imdb" else rows, seed)
        yield from ((table.texts[i], int(table.labels[i])) for i in chosen)
        return
    kind, name, number = model.split("/")
    record = record_of(find(kind, name, int(number)))
    if part == TEST:
        graphs = unseen(name, record, rows if name == "bace" else digits, seed)
        yield from ((graph, int(graph.label)) for graph in graphs if graph.label is not None)
    elif name == "bace":
        yield from draw_molecules(record, rows, seed)
    else:
        yield from draw_digits(record, digits, seed)


def draw_molecules(record: dict[str, Any], rows: int, seed: int) -> Iterator[Sample]:
    """Of the molecules on which the best epoch of this training was chosen."""
    columns = read_bace()
    scaffold = np.array([PARTS.index(part) for part in columns["scaffold_split"]], np.int8)
    held = bace_split(scaffold, record["split"], record["seed"])[1].tolist()
    for i in (held[i] for i in draw_indices(len(held), rows, seed)):
        label = int(columns["label"][i])
        yield from_smiles(columns["smiles"][i], label), label


def draw_digits(record: dict[str, Any], digits: int, seed: int) -> Iterator[Sample]:
    """Of the digits that were held back from this training; only those that are drawn are cut into patches."""
    images, labels = load_mnist_images("train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(record["seed"]))
    held = order[:VALID_DIGITS].numpy()
    chosen = held[draw_indices(len(held), digits, seed)]
    found = Superpixels(images[chosen], segment_all(images[chosen], Cut()), labels[chosen])
    yield from ((found.graph(i), int(labels[chosen[i]])) for i in range(len(found)))


def write_sample(given: str | Graph) -> dict[str, Any]:
    if isinstance(given, str):
        return {"text": given}
    arrays = {"features": given.features, "edges": given.edges, "numbers": given.numbers}
    arrays["edge_features"] = given.edge_features
    return {name: None if values is None else values.tolist() for name, values in arrays.items()}


def read_parts(path: Path) -> dict[str, list[Sample]]:
    """The samples of every part."""
    if not path.is_file():
        raise DataError(f"no file {path}. Make it: python -m headwater_experiments.paper.choose prepare --out {path}.")
    found: dict[str, list[Sample]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            found.setdefault(line["part"], []).append((read_sample(line), line["label"]))
    return found


def read_sample(line: dict[str, Any]) -> str | Graph:
    if "text" in line:
        text: str = line["text"]
        return text
    nodes = len(line["features"])
    found = Graph(
        features=np.array(line["features"], np.int64).reshape(nodes, -1),
        edges=np.array(line["edges"], np.int64).reshape(2, -1),
        numbers=None if line["numbers"] is None else np.array(line["numbers"], np.float64),
        edge_features=None if line["edge_features"] is None else np.array(line["edge_features"], np.int64),
        label=line["label"],
    )
    found.__dict__["distances"] = measure_distances(found)  # what the cached property would find with SciPy
    return found


def measure_distances(graph: Graph) -> NDArray[np.int16]:
    """[nodes, nodes]: the number of edges on a shortest path, -1 where there is none."""
    touching = torch.zeros(1, len(graph), len(graph), dtype=torch.bool)
    first, second = torch.from_numpy(graph.edges.copy())
    touching[0, first, second] = touching[0, second, first] = True
    found: NDArray[np.int16] = find_distances(touching)[0].numpy().astype(np.int16)
    return found
