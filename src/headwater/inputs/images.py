"""Images -> Batch: opened, given to their processor, and traced back to where each pixel of the model comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import EmptyInput, InputError, UsageError, check_least, require_extra
from ..results.picture import Box, ImageFrame
from .batch import Batch, Item
from .patches import patches_of, pixel_argument
from .protocol import sample_name

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB"}
LOW, HIGH = 55, 255  # of a ramp that is sent through a processor, so that black stays for padding
NEAR = 0.01  # of a side: an edge of the box that is so near to the image's own is it
PLAIN = 0.02  # of a side: how far a processor may be from one that only resizes, cuts and pads

Boxes = dict[tuple[int, int], Box | None]  # by the size of an image


@dataclass(frozen=True)
class Seen:
    """An image as its model takes it: `pixels` [channels, height, width], and the frame that it came from."""

    pixels: Tensor
    frame: ImageFrame

    @property
    def sha256(self) -> str:
        """Of all that the model sees."""
        told = repr(tuple(self.pixels.shape)).encode()
        return hashlib.sha256(told + self.pixels.double().numpy().tobytes()).hexdigest()


def is_image(data: Any) -> bool:
    """What can be nothing but an image: a Pillow image, a path object, or an image made ready; or a list of those."""
    if isinstance(data, list):
        return bool(data) and all(is_image(part) for part in data)
    return isinstance(data, (Path, Seen)) or type(data).__module__.startswith("PIL.")


def list_images(data: Any) -> tuple[list[Any], bool]:
    """The images, and whether it is one alone. An array of four dimensions is a list of images."""
    if isinstance(data, (list, tuple)):
        return list(data), False
    if isinstance(data, (np.ndarray, Tensor)) and data.ndim == 4:
        return list(data), False
    return [data], True


def import_pillow() -> Any:
    with require_extra("an image", "images"):
        from PIL import Image, ImageOps, UnidentifiedImageError
    return Image, ImageOps, UnidentifiedImageError


def open_image(image: Any, name: str = "the image") -> Image:
    """A Pillow image from a path, an array or a Pillow image, turned the way its camera was held."""
    module, operations, unidentified = import_pillow()
    if isinstance(image, (str, Path)):
        try:
            with module.open(image) as file:
                image = operations.exif_transpose(file)
        except FileNotFoundError as error:
            raise InputError(f"there is no file {image}.") from error
        except (unidentified, OSError, module.DecompressionBombError) as error:
            raise InputError(f"{image} cannot be read as an image: {error}") from error
    elif isinstance(image, (np.ndarray, Tensor)):
        image = module.fromarray(to_bytes(np.asarray(image), name))
    elif isinstance(image, module.Image):
        image = operations.exif_transpose(image)
    else:
        raise InputError(f"{name} must be a Pillow image, a path or an array, not {type(image).__name__}.")
    if image.mode.startswith(("I", "F")):
        raise InputError(f"{name} has more than 8 bits a pixel (mode {image.mode}). Bring it to 8 bits first.")
    if not all(image.size):
        raise EmptyInput(f"{name} has no pixels.")
    return image  # type: ignore[no-any-return]


def to_bytes(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """[rows, columns] or [rows, columns, channels] of bytes, from bytes or from numbers between 0 and 1."""
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise InputError(f"{name} has the shape {array.shape}; needed is [rows, columns] or [rows, columns, 3].")
    if not array.size:
        raise EmptyInput(f"{name} has no pixels.")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f" or not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
        raise InputError(f"{name} holds {array.dtype}; needed are bytes, or numbers between 0 and 1.")
    return np.ascontiguousarray(np.rint(array * 255).astype(np.uint8))


def channels_of(model: nn.Module) -> int:
    """How many channels the model takes: what its config says, else its first convolution; colour where none does."""
    config = getattr(model, "config", None)
    for part in (config, getattr(config, "vision_config", None)):
        said = getattr(part, "num_channels", None)
        if isinstance(said, int) and said in MODES:
            return said
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    return first.in_channels if first is not None and first.in_channels in MODES else 3


def prepare_images(images: Sequence[Any], processor: Any, channels: int, boxes: Boxes | None = None) -> list[Seen]:
    """Every image as the model takes it; what is ready already stays as it is. `boxes`: what is known of a size."""
    boxes = {} if boxes is None else boxes
    return [
        _ready(image, processor, channels, sample_name("image", i, len(images)), boxes)
        for i, image in enumerate(images)
    ]


def _ready(image: Any, processor: Any, channels: int, name: str, boxes: Boxes) -> Seen:
    if isinstance(image, Seen):
        return image
    if processor is None:
        raise InputError("an image needs a processor: explain(model, image, processor=processor).")
    picture = open_image(image, name).convert(MODES[channels])
    pixels = process_image(processor, picture, channels)
    if picture.size not in boxes:
        boxes[picture.size] = find_box(lambda one: process_image(processor, one, channels), picture.size, channels)
    source = str(image) if isinstance(image, (str, Path)) else None
    return Seen(pixels, ImageFrame(picture.size, boxes[picture.size], source))


def process_image(processor: Any, picture: Image, channels: int) -> Tensor:
    """[channels, height, width]: what the processor makes of one image."""
    try:
        found = processor(images=picture, return_tensors="pt")["pixel_values"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"the processor cannot take this image: {error}") from error
    pixels = (found if isinstance(found, Tensor) else torch.as_tensor(np.asarray(found))).detach().cpu()
    if pixels.dim() != 4 or len(pixels) != 1 or pixels.shape[1] != channels:
        raise InputError(
            f"the processor gives pixel_values of shape {tuple(pixels.shape)}; the model takes one image of {channels} "
            "channels. Is it the processor of this model?"
        )
    return pixels[0]


def find_box(process: Callable[[Image], Tensor], size: tuple[int, int], channels: int) -> Box | None:
    """Which part of an image of this size the processor shows to the model.

    The processor is asked: it gets images that rise from left to right and from top to bottom, beside two flat ones
    that say what it does to grey. So it may be any processor; one that does not keep lines straight has no box.
    """
    width, height = size
    flat = [ramp(channels, np.full((height, width), share)) for share in (0.0, 1.0)]
    dark, bright = (process(one)[0].double() for one in flat)
    inside = (bright - dark).abs() > 1e-6  # what is padded is the same in both
    sides = []
    for length, axis in ((width, 1), (height, 0)):
        share = np.linspace(0, 1, length) if length > 1 else np.full(1, 0.5)
        image = ramp(channels, np.broadcast_to(np.expand_dims(share, 1 - axis), (height, width)))
        risen = (process(image)[0].double() - dark) / torch.where(inside, bright - dark, 1.0)
        sides.append(side_of(risen, inside, axis, length))
    if sides[0] is None or sides[1] is None:
        return None
    (left, right), (top, bottom) = sides[0], sides[1]
    return left, top, right, bottom


def ramp(channels: int, share: np.ndarray[Any, Any]) -> Image:
    grey = np.rint(LOW + (HIGH - LOW) * share).astype(np.uint8)
    module, *_ = import_pillow()
    image: Image = module.fromarray(np.ascontiguousarray(grey)).convert(MODES[channels])
    return image


def side_of(risen: Tensor, inside: Tensor, axis: int, length: int) -> tuple[float, float] | None:
    """Where the first and the last line of the model's input lie along one side of the image, by least squares."""
    counts = inside.double().sum(1 - axis)
    lines = counts > 0
    means = ((risen * inside).sum(1 - axis) / counts.clamp(min=1))[lines]
    places = torch.arange(risen.shape[axis], dtype=torch.float64)[lines] + 0.5
    if length == 1 or len(places) < 2:
        return (0.0, float(length)) if len(places) else None
    there = means * (length - 1) + 0.5
    slope = ((places - places.mean()) * (there - there.mean())).sum() / (places - places.mean()).square().sum()
    start = there.mean() - slope * places.mean()
    if slope <= 0 or float((start + slope * places - there).abs().median()) > PLAIN * length + 0.5:
        return None
    end = start + slope * risen.shape[axis]
    return snap_to_edge(float(start), 0.0, length), snap_to_edge(float(end), float(length), length)


def snap_to_edge(found: float, edge: float, length: int) -> float:
    return edge if abs(found - edge) <= max(NEAR * length, 0.25) else found


def in_groups(seen: Sequence[Seen], size: int) -> list[list[int]]:
    """Indices of images of one shape, at most `size` together."""
    check_least("batch_size", size)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for i, one in enumerate(seen):
        shapes.setdefault(tuple(one.pixels.shape), []).append(i)
    return [group[start : start + size] for group in shapes.values() for start in range(0, len(group), size)]


def batch_images(model: nn.Module, seen: Sequence[Seen], side: int | None = None) -> Batch:
    """Images of one shape as one batch; `side` asks for cells other than the model's own patches."""
    channels, height, width = seen[0].pixels.shape
    if side is not None and not hasattr(side, "__index__"):
        raise UsageError(f"patch must be a number of pixels, not {side!r}.")
    if side is not None and not 1 <= side <= min(height, width):
        raise UsageError(f"patch must be from 1 to {min(height, width)} pixels, not {side}.")
    patches = patches_of(model, channels, height, width, side)
    pixels = torch.stack([one.pixels for one in seen])
    names = patches.cells.names
    return Batch(
        samples=len(seen),
        items=[Item(tokens=names, frame=one.frame) for one in seen],
        kwargs={pixel_argument(model): pixels},
        tensor=pixels,
        patches=patches,
    )
