"""Digits as graphs: an image is cut into patches of like grey, and patches that touch are joined.

MNIST has about 75 patches an image, as in Monti et al. (2017), but they are cut here, by SLIC: it is not their file.
A node has three numbers: the mean grey of its pixels, and x and y of their centre, all between 0 and 1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwater.errors import DataError
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models.graphs.graph import Graph
from headwater_experiments.models.segmentation import Cut, Pixels, segment_all

CACHE = "HEADWATER_CACHE"
NUMBERS = ("grey", "x", "y")


@dataclass(frozen=True)
class Superpixels:
    """Images [images, rows, columns], which patch each pixel belongs to (numbered from 0), and the images' labels."""

    images: Pixels
    segments: Pixels
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    def graph(self, index: int) -> Graph:
        """One image as a graph."""
        return graph_of(self.images[index], self.segments[index], int(self.labels[index]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many patches each image has."""
        most: NDArray[np.int64] = self.segments.reshape(len(self), -1).max(1).astype(np.int64)
        return most + 1


def graph_of(image: Pixels, segments: Pixels, label: int | None = None) -> Graph:
    """The graph of an image whose patches are known."""
    count = int(segments.max()) + 1
    numbers, adjacency = measure_regions(torch.from_numpy(image[None]), torch.from_numpy(segments[None]), count)
    values = numbers[0].double().numpy()
    return Graph(
        features=np.zeros((count, 0), np.int64),
        edges=adjacency[0].triu().nonzero().T.numpy(),
        numbers=values,
        positions=values[:, 1:],
        label=label,
    )


def measure_regions(images: Tensor, segments: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """The patches' numbers [images, nodes, 3] and which of them touch [images, nodes, nodes], on the images' device.

    Two patches touch where a pixel of one is above, below or beside a pixel of the other. Rows past an image's own
    patches are 0.
    """
    rows, columns = images.shape[1:]
    index = segments.long().flatten(1)
    y, x = torch.meshgrid(torch.arange(rows) / (rows - 1), torch.arange(columns) / (columns - 1), indexing="ij")
    place = torch.stack([x, y]).to(images.device).flatten(1)[:, None].expand(-1, *index.shape)
    channels = torch.stack([images.flatten(1) / 255.0, *place], -1)
    total = channels.new_zeros(len(index), nodes, 3).scatter_add_(1, index[..., None].expand_as(channels), channels)
    pixels = total.new_zeros(len(index), nodes).scatter_add_(1, index, torch.ones_like(channels[..., 0]))
    return total / pixels.clamp(min=1)[..., None], _touching(segments.long(), nodes)


def _touching(segments: Tensor, nodes: int) -> Tensor:
    pairs = [(segments[:, :, :-1], segments[:, :, 1:]), (segments[:, :-1], segments[:, 1:])]
    first = torch.cat([a.flatten(1) for a, _ in pairs], 1)
    second = torch.cat([b.flatten(1) for _, b in pairs], 1)
    adjacency = torch.zeros(len(segments), nodes * nodes, dtype=torch.bool, device=segments.device)
    adjacency.scatter_(1, first * nodes + second, True)
    adjacency.scatter_(1, second * nodes + first, True)
    square = adjacency.view(-1, nodes, nodes)
    square.diagonal(dim1=-2, dim2=-1).fill_(False)
    return square


def mnist_superpixels(split: str, cut: Cut | None = None, processes: int | None = None) -> Superpixels:
    """MNIST's `train` or `test` images, cut once and kept in the cache directory.

    That is `HEADWATER_CACHE`, or `~/.cache/headwater`. Images are read from `mnist/mnist.npz` in `HEADWATER_DATA`.
    """
    images, labels = load_mnist_images(split)
    cut = cut or Cut()
    kept = cache_directory() / f"mnist-{split}-superpixels-{cut.key}.npz"
    if kept.is_file():
        with np.load(kept) as arrays:
            segments = arrays["segments"]
    else:
        segments = segment_all(images, cut, processes)
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(unfinished, segments=segments)
        unfinished.replace(kept)
    return Superpixels(images, segments, labels)


def load_mnist_images(split: str) -> tuple[Pixels, NDArray[np.int64]]:
    """Images [images, 28, 28] and labels of `train` or `test`."""
    directory = os.environ.get(DATA_DIRECTORY)
    path = Path(directory or ".") / "mnist" / "mnist.npz"
    if not directory or not path.is_file():
        raise DataError(
            f"no MNIST: {DATA_DIRECTORY} is {directory!r}. Set it to a directory that holds mnist/mnist.npz."
        )
    with np.load(path) as arrays:
        if f"x_{split}" not in arrays:
            raise DataError(f"{path} has no split {split!r}. It has train and test.")
        return arrays[f"x_{split}"], arrays[f"y_{split}"].astype(np.int64)


def cache_directory() -> Path:
    """Where things are kept that can be computed again."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "headwater")
