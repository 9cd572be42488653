"""Images cut into patches of like grey by SLIC, many at a time. It imports no torch, so that processes start fast."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InputError, MissingExtra, require_extra
from headwater.evaluation.progress import show_progress

Pixels = NDArray[np.uint8]
CHUNK = 500  # images that a process cuts before it reports


@dataclass(frozen=True)
class Cut:
    """How an image is cut. On MNIST these numbers give 75 patches in the mean."""

    segments: int = 75
    compactness: float = 0.31

    @property
    def key(self) -> str:
        """A short name that changes with the numbers and with the release of scikit-image that cuts."""
        try:
            release = metadata.version("scikit-image")
        except metadata.PackageNotFoundError as error:
            raise MissingExtra("cutting images into patches", "graphs", "headwater-experiments") from error
        settings = json.dumps({**asdict(self), "skimage": release}, sort_keys=True)
        return hashlib.sha256(settings.encode()).hexdigest()[:12]


def segment(image: Pixels, cut: Cut) -> Pixels:
    """Which patch each pixel belongs to, [rows, columns]. Every patch hangs together."""
    with require_extra("cutting an image into patches", "graphs", "headwater-experiments"):
        from skimage.segmentation import slic
    if image.ndim != 2 or image.dtype != np.uint8:
        raise InputError(f"the image must be bytes [rows, columns]; found {image.dtype} of {image.shape}.")
    labels = slic(image / 255.0, n_segments=cut.segments, compactness=cut.compactness, channel_axis=None, start_label=0)
    if labels.max() > 255:
        raise InputError(f"the image falls into {labels.max() + 1} patches; at most 256 are kept. Ask for fewer.")
    found: Pixels = labels.astype(np.uint8)
    return found


def segment_all(images: Pixels, cut: Cut, processes: int | None = None) -> Pixels:
    """Which patch each pixel of every image belongs to; several processes cut, a bar shows how far they are."""
    chunks = [images[i : i + CHUNK] for i in range(0, len(images), CHUNK)]
    if len(chunks) == 1:
        return _cut_chunk(images, cut)
    return np.concatenate(list(_cut_in_processes(chunks, cut, processes or os.cpu_count() or 1)))


def _cut_in_processes(chunks: list[Pixels], cut: Cut, processes: int) -> Iterator[Any]:
    total = sum(map(len, chunks))
    bar = show_progress(total, doing="superpixels", what="images")
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool, bar as tick:
        for done in pool.map(_cut_chunk, chunks, [cut] * len(chunks)):
            tick(len(done))
            yield done


def _cut_chunk(images: Pixels, cut: Cut) -> Pixels:
    return np.stack([segment(image, cut) for image in images])
