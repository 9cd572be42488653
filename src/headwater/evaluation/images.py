"""Images as subjects of perturbation: the items are patches.

A patch that is taken out is painted in the colour that is zero for the model: the processor's mean colour, since it
subtracts that. The empty image is that colour all over. Nothing else changes: the patch keeps its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..engine.model import where_it_is
from ..engine.options import Options, Request
from ..engine.session import answer_all
from ..errors import DataError, HeadwaterError, InputError, UsageError, check_least
from ..inputs.classes import class_names
from ..inputs.images import Boxes, Seen, batch_images, channels_of, is_image, list_images, prepare_images
from ..inputs.patches import pixel_argument
from ..inputs.readouts import logits_of
from ..plurals import say_count
from ..results.explanation import Explanation
from .bounds import Bounds
from .perturbation import Perturbed
from .protocols import Protocol
from .ranking import Counts, Flags, Floats
from .sources import Labelled, check_columns, columns_of, is_pair, label_of
from .tokens import check_relevance, classify

MEAN = "mean colour"


def with_replacement(protocol: Protocol) -> Protocol:
    """The protocol with what stands for a missing patch in its name."""
    if protocol.removal is not None:
        raise UsageError(f"removal={protocol.removal} is about the nodes of a graph; patches are painted over.")
    if protocol.replacement not in ("unk", "mean"):
        raise UsageError(f"replacement={protocol.replacement} is about tokens; a patch is painted in the mean colour.")
    return protocol.replace(replacement="mean")


def read_images(
    model: nn.Module, processor: Any, data: Any, image_column: str, label_column: str, needs_label: bool
) -> Labelled:
    """`data` is a list of (image, label) or of images, a path to a table, or anything with columns by name.

    An image is whatever `explain` takes; in a column, a string is a path. Every row is checked here.
    """
    given, labels, source = split_images(data, image_column, label_column)
    if not given:
        raise DataError(f"{source} has no rows.")
    boxes: Boxes = {}
    seen = [prepare_image(model, processor, value, f"row {i} of {source}", boxes) for i, value in enumerate(given)]
    if labels is None:
        if needs_label:
            raise DataError(f"{source} has images without a label. Give (image, label), or ask for target=predicted.")
        return Labelled(seen, None, list(range(len(seen))), source)
    if len(labels) != len(seen):
        raise DataError(f"{source} has {say_count(len(seen), 'image')} and {say_count(len(labels), 'label')}.")
    names = class_names(getattr(model, "config", None), count_classes(model, seen[0]))
    found = [label_of(value, names, None, i, source) for i, value in enumerate(labels)]
    return Labelled(seen, found, list(range(len(seen))), source)


def split_images(data: Any, image_column: str, label_column: str) -> tuple[list[Any], list[Any] | None, str]:
    """Images, labels where they stand beside them, and what to call the source."""
    if isinstance(data, np.ndarray):
        return list_images(data)[0], None, "the array"
    if isinstance(data, (list, tuple)) and not all(map(is_pair, data)):
        return list(data), None, "the list"
    columns, source = columns_of(data, image_column, label_column)
    known = check_columns(columns, [image_column], source)
    beside = Path(data).parent if isinstance(data, (str, Path)) else None
    images = [path_of(value, beside) for value in columns[image_column]]
    return images, list(columns[label_column]) if label_column in known else None, source


def path_of(value: Any, beside: Path | None) -> Any:
    """A path in a file is counted from the file's own directory."""
    return beside / value if isinstance(value, str) and beside is not None else value


def prepare_image(model: nn.Module, processor: Any, value: Any, name: str, boxes: Boxes) -> Seen:
    try:
        return prepare_images([value], processor, channels_of(model), boxes)[0]
    except HeadwaterError as error:
        raise DataError(f"{name}: {error}") from error


def count_classes(model: nn.Module, seen: Seen) -> int:
    """How many classes the model has, asked of its answer to one image."""
    with torch.inference_mode():
        found = logits_of(model(**{pixel_argument(model): seen.pixels[None].to(*where_it_is(model))}))
    return int(found.shape[-1])


def takes_images(processor: Any, data: Any) -> bool:
    """A processor says so, or the data: images, or pairs of an image and a label."""
    pairs = isinstance(data, list) and all(map(is_pair, data))
    return processor is not None or (isinstance(data, list) and is_image([row[0] for row in data] if pairs else data))


class ImageSource:
    """Labelled images of one classifier; `model` is in evaluation mode and where it is to be computed."""

    mixes = True  # all images have one shape

    def __init__(
        self,
        model: nn.Module,
        images: Sequence[Seen],
        batch_size: int = 32,
        side: int | None = None,
    ) -> None:
        check_least("batch_size", batch_size)
        shapes = {tuple(image.pixels.shape) for image in images}
        if len(shapes) > 1:
            raise InputError(
                f"the processor gives images of {len(shapes)} shapes, such as {sorted(shapes)[:2]}; patches of one "
                "size are compared. Use a processor that brings all images to one size."
            )
        self.model = model
        self.images = images
        self.batch_size = batch_size
        self.side = side
        patches = batch_images(model, images[:1], side).patches
        assert patches is not None
        self.index: Tensor = patches.index
        self.patches: int = len(patches.cells)
        self.cell: tuple[int, int] = patches.cells.cell
        self.bounds: Bounds = Bounds()

    def __len__(self) -> int:
        return len(self.images)

    def part(self, samples: Sequence[int]) -> ImagePart:
        return ImagePart(self, samples)

    def largest(self) -> int:
        return 0

    def describe(self) -> dict[str, Any]:
        high, wide = self.cell
        return {"items": f"patches of {high} by {wide} pixels", "patch": [high, wide], "replacement": MEAN}


class ImagePart:
    """Some images. `numbers` are their places in the source."""

    mixes: bool = True
    tried: int = 2

    def __init__(self, source: ImageSource, numbers: Sequence[int]) -> None:
        self.source = source
        self.numbers = numbers
        self.images: list[Seen] = [source.images[i] for i in numbers]

    def __len__(self) -> int:
        return len(self.images)

    def items(self, sample: int) -> Counts:
        return np.arange(self.source.patches)

    def explain(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        made = answer_all(self.request(samples, method, target, seed))
        for i, explanation in zip(samples, made, strict=True):
            check_relevance(explanation, self.source.patches, self.numbers[i], "patch")
        return made

    def request(self, samples: Sequence[int], method: str, target: int | None, seed: int) -> Request:
        source, images = self.source, [self.images[i] for i in samples]
        size = source.bounds.samples_of(method, source.batch_size)
        options = Options(method=method, target=target, seed=seed, patch=source.side, batch_size=size)
        return Request(source.model, images, options.with_memory(source.bounds.room_of(method)))

    def fields(self, samples: Sequence[int]) -> dict[str, Tensor]:
        """The model's arguments for the whole images."""
        pixels = torch.stack([self.images[i].pixels for i in samples])
        return {pixel_argument(self.source.model): pixels.to(*where_it_is(self.source.model))}

    def perturb(self, sample: int, kept: Flags) -> list[Perturbed]:
        """A patch's cost is that of a token."""
        return [Perturbed((sample, row.tobytes()), self.source.patches, (sample, row)) for row in kept]

    def logits(self, inputs: Sequence[Perturbed]) -> Floats:
        batch = self.fields([entry.value[0] for entry in inputs])
        rows = torch.from_numpy(np.stack([entry.value[1] for entry in inputs]))
        keep = rows[:, self.source.index].unsqueeze(1)
        taken_out = {name: pixels * keep.to(pixels.device) for name, pixels in batch.items()}
        return classify(self.source.model, taken_out, "patches taken out")
