"""What is drawn of an image: the picture itself, then every explanation by patch and by pixel, each as one panel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import InputError, UsageError, require_extra
from headwater.results.explanation import Explanation
from headwater.results.picture import Box, Picture

from .colour import largest
from .panels import describe_panel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Numbers = NDArray[np.float64]

SIDE = 224  # of a picture's longer side, in units of the sheet
LEAST = 4  # units: pixels that would be smaller are drawn in blocks
LEVELS = ("patches", "pixels")


@dataclass(frozen=True)
class View:
    """One panel: `values` [rows, columns] over the `box` of the picture, None for the picture itself.

    `named` says that each value is a patch with a name; else they are pixels, or blocks of them.
    """

    name: str
    note: str
    values: Numbers | None
    scale: float
    box: Box
    lines: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    named: bool = False

    def edges(self, original: tuple[int, int], size: tuple[int, int]) -> tuple[list[float], list[float]]:
        """Where the columns and rows of values begin and end in a drawing of this size."""
        x, y = size[0] / original[0], size[1] / original[1]
        left, top, right, bottom = self.box[0] * x, self.box[1] * y, self.box[2] * x, self.box[3] * y
        across, down = self.lines
        return [left + (right - left) * s for s in across], [top + (bottom - top) * s for s in down]


def views(explanations: Sequence[Explanation], image: Any, levels: Sequence[str]) -> tuple[list[View], Image]:
    """What is drawn: the picture, then every explanation at every level that it has."""
    if not explanations:
        raise UsageError("there is no explanation to draw. Give at least one.")
    for level in levels:
        if level not in LEVELS:
            raise UsageError(f"an image is drawn by {' or '.join(LEVELS)}, not by {level!r}.")
    ground = as_image(image)
    many = len(explanations) > 1 and len(levels) == 1  # of which the method is all there is to say
    found = [original_view(box_on_image(explanations[0], ground), ground)]
    for e in explanations:
        box, shape = box_on_image(e, ground), shape_of(e)
        if "patches" in levels or shape.pixels is None:
            found.append(by_patch(e, shape, box, many))
        if "pixels" in levels and shape.pixels is not None:
            found.append(by_pixel(e, shape, box, ground.size, many))
    return found, ground


def original_view(box: Box, ground: Image) -> View:
    inside = min(box) >= 0 and box[2] <= ground.width and box[3] <= ground.height
    whole = box == (0, 0, *ground.size)
    seen = "seen whole" if whole else "the model sees the frame" if inside else "padded for the model"
    return View("the picture", f"{ground.width} x {ground.height}, {seen}", None, 0.0, box)


def by_patch(e: Explanation, shape: Picture, box: Box, many: bool) -> View:
    import numpy as np

    values = np.asarray(e.patches.double().numpy())
    scale = largest(e.relevance.tolist())
    name = e.method if many else f"{e.method}, patches"
    grid = shape.grid
    xs = (*(grid.edges(0, c)[0] / grid.width for c in range(grid.columns)), 1.0)
    ys = (*(grid.edges(r, 0)[1] / grid.height for r in range(grid.rows)), 1.0)
    return View(name, describe_panel(e, scale), values, scale, box, (xs, ys), named=True)


def by_pixel(e: Explanation, shape: Picture, box: Box, size: tuple[int, int], many: bool) -> View:
    """Pixels of at least 4 units on the sheet: smaller ones are summed in blocks, so that hatching can be seen."""
    import numpy as np

    values = np.asarray(e.pixels.double().numpy())
    unit = SIDE / max(size) * (box[2] - box[0]) / shape.grid.width
    block = max(1, math.ceil(LEAST / unit))
    rows, columns = (np.arange(0, n, block) for n in values.shape)
    values = np.add.reduceat(np.add.reduceat(values, rows, 0), columns, 1)
    scale = largest(values.ravel().tolist())
    what = "pixels" if block == 1 else f"blocks of {block} x {block} pixels"
    xs = (*(columns / shape.grid.width).tolist(), 1.0)
    ys = (*(rows / shape.grid.height).tolist(), 1.0)
    return View(
        f"{e.method}, {what}" if not many else f"{e.method}", describe_panel(e, scale), values, scale, box, (xs, ys)
    )


def shape_of(e: Explanation) -> Picture:
    if e.image is None:
        raise InputError(f"the explanation by {e.method!r} is not of an image.")
    return e.image


def box_on_image(e: Explanation, ground: Image) -> Box:
    frame = shape_of(e).frame
    if frame.size != ground.size:
        raise InputError(
            f"the image has {ground.width} x {ground.height} pixels, the explained one {frame.size[0]} x "
            f"{frame.size[1]}. Draw the image that was explained."
        )
    if frame.box is None:
        raise InputError("the processor does more than resize, cut and pad, so pixels cannot be found in the picture.")
    return frame.box


def pillow() -> Any:
    with require_extra("a picture of an image", "images"):
        from PIL import Image
    return Image


def as_image(image: Any) -> Image:
    module = pillow()
    if isinstance(image, module.Image):
        return image  # type: ignore[no-any-return]
    try:
        return module.fromarray(image)  # type: ignore[no-any-return]
    except (TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the picture must be a Pillow image or an array of bytes: {error}") from error


def size_on_sheet(size: tuple[int, int]) -> tuple[int, int]:
    """The picture's size on the sheet."""
    unit = SIDE / max(size)
    return max(1, round(size[0] * unit)), max(1, round(size[1] * unit))
