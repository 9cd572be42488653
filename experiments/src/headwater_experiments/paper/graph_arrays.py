"""BACE and MNIST superpixels as arrays: made once where RDKit and scikit-image are, trained on where only torch is.

An array file is small because it holds what cannot be computed again cheaply: molecules with the edges on their
shortest paths, and the patch of each pixel of a digit. All else is found on the device when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwater.errors import DataError, require_extra
from headwater.evaluation.progress import show_progress
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models.graphormer import GraphormerConfig
from headwater.models.graphs import collate, find_distances
from headwater.models.molecules import ATOM_RANGES, BOND_RANGES, from_smiles
from headwater_experiments.models.superpixels import NUMBERS, Superpixels, measure_regions, mnist_superpixels

PARTS = ("train", "valid", "test")
DIGITS = ("train", "test")  # the parts that MNIST comes in
PAIRS = ("distances", "edge_paths")  # tensors with a row and a column for each node
BACE = GraphormerConfig(node_ranges=ATOM_RANGES, edge_ranges=BOND_RANGES, num_labels=2)
MNIST = GraphormerConfig(number_features=len(NUMBERS), num_labels=10)
CHUNK = 2000  # images whose graphs are found at once


@dataclass(frozen=True)
class Sheet:
    """A whole dataset as the tensors of one large batch, on one device; a training batch is some of its rows."""

    tensors: Mapping[str, Tensor]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def labels(self) -> Tensor:
        return self.tensors["labels"]

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """These rows (on the CPU) as inputs of a model, padded no further than the largest of them needs."""
        size = int(self.sizes[rows.numpy()].max())
        place = rows.to(self.labels.device, non_blocking=True)
        return {name: _crop(name, tensor, size)[place] for name, tensor in self.tensors.items()}


def _crop(name: str, tensor: Tensor, size: int) -> Tensor:
    if name == "labels":
        return tensor
    return tensor[:, :size, :size] if name in PAIRS else tensor[:, :size]


def prepare_bace(out: Path) -> Path:
    """All molecules of BACE, featurised, in `out/bace.npz`."""
    columns = read_bace()
    graphs = []
    with show_progress(len(columns["smiles"]), doing="bace", what="molecules") as tick:
        for smiles, label in zip(columns["smiles"], columns["label"], strict=True):
            graphs.append(from_smiles(smiles, int(label)))
            tick(1)
    small = {name: _in_bytes(tensor.numpy()) for name, tensor in collate(graphs, BACE).items()}
    scaffold = np.array([PARTS.index(part) for part in columns["scaffold_split"]], np.int8)
    return _write_arrays(out / "bace.npz", scaffold=scaffold, smiles=np.array(columns["smiles"]), **small)


def _in_bytes(values: NDArray[Any]) -> NDArray[Any]:
    """The same whole numbers in one byte each."""
    small = values.astype(np.int8 if values.min() < 0 else np.uint8)
    if (small != values).any():
        raise DataError(f"a molecule holds the number {values.max()}, which does not fit in a byte.")
    return small


def read_bace() -> dict[str, list[Any]]:
    """The columns of BACE: smiles, label, scaffold_split and others."""
    directory = os.environ.get(DATA_DIRECTORY)
    path = Path(directory or ".") / "bace" / "bace.parquet"
    if not directory or not path.is_file():
        raise DataError(
            f"no BACE: {DATA_DIRECTORY} is {directory!r}. Set it to a directory that holds bace/bace.parquet."
        )
    with require_extra(f"reading {path.name}", "data"):
        from pyarrow import parquet
    columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    return columns


def prepare_mnist(out: Path) -> Path:
    """All images of MNIST and their patches, in `out/mnist.npz`."""
    arrays: dict[str, NDArray[Any]] = {}
    for split in DIGITS:
        found = mnist_superpixels(split)
        arrays |= {f"images_{split}": found.images, f"segments_{split}": found.segments}
        arrays[f"labels_{split}"] = found.labels.astype(np.int8)
    return _write_arrays(out / "mnist.npz", **arrays)


def count_patches(path: Path) -> dict[str, dict[str, float]]:
    """Into how many patches the digits of each part were cut: SLIC does not give exactly what it is asked for."""
    with np.load(path) as kept:
        counts = {part: kept[f"segments_{part}"].max((1, 2)) + 1.0 for part in DIGITS}
    shares = (0, 5, 25, 50, 75, 95, 100)
    return {
        part: {
            "mean": round(float(found.mean()), 2),
            "spread": round(float(found.std()), 2),
            **{f"{share} %": float(np.percentile(found, share)) for share in shares},
        }
        for part, found in counts.items()
    }


def _write_arrays(path: Path, **arrays: NDArray[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def load_bace(directory: Path, device: str) -> tuple[Sheet, NDArray[np.int8]]:
    """The molecules as tensors, and each one's part of the scaffold split (an index into PARTS)."""
    arrays = _read(directory / "bace.npz")
    scaffold = arrays.pop("scaffold")
    arrays.pop("smiles")
    sizes = arrays["attention_mask"].sum(1, dtype=np.int64)
    tensors = {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
    return Sheet(tensors, sizes), scaffold


def load_mnist(directory: Path, split: str, device: str, limit: int | None = None) -> Sheet:
    """The digits as tensors; patches are measured, joined and their distances found on the device."""
    arrays = _read(directory / "mnist.npz")
    names = (f"{what}_{split}" for what in ("images", "segments", "labels"))
    images, segments, labels = (arrays[name][:limit] for name in names)
    return superpixel_sheet(Superpixels(images, segments, labels.astype(np.int64)), device)


def superpixel_sheet(found: Superpixels, device: str) -> Sheet:
    """Graphs of all images, made on the device."""
    nodes, chunks = int(found.sizes.max()), []
    for start in range(0, len(found), CHUNK):
        part = slice(start, start + CHUNK)
        images, segments = (torch.from_numpy(a[part]).to(device) for a in (found.images, found.segments))
        numbers, adjacency = measure_regions(images, segments, nodes)
        distances = find_distances(adjacency).to(torch.int8)
        chunks.append((numbers, adjacency.sum(-1).to(torch.int8), distances))
    numbers, degrees, distances = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    sizes = torch.from_numpy(found.sizes).to(device)
    tensors = {
        "node_numbers": numbers,
        "degrees": degrees,
        "distances": distances,
        "attention_mask": torch.arange(nodes, device=device) < sizes[:, None],
        "labels": torch.from_numpy(found.labels).to(device),
    }
    return Sheet(tensors, found.sizes)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DataError(
            f"no {path.name} in {path.parent}. Make it: python -m headwater_experiments.paper.graphs prepare --out DIR."
        )
    with np.load(path) as arrays:
        return dict(arrays)
