"""Panels over an image as pixels: tinted, hatched where something takes away, and put on a sheet. Pillow alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import check_least
from headwater.results.explanation import Explanation
from headwater.results.picture import Box

from .colour import NEGATIVE, POSITIVE
from .panels import CAPTION, HEAD, LEGEND, MARGIN, SOFT, WIDE, describe_result
from .views import View, pillow, size_on_sheet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Numbers = NDArray[np.float64]

FINE = 2  # pixels of a PNG for each unit
DARKEST = 210  # the grey that black is drawn in, under the tint
STRONGEST = 0.85  # opacity of full colour, under which the image is still seen
VISIBLE = 0.05  # of full colour: what is fainter is not hatched
HATCH, PERIOD = (11, 42, 107), 6  # colour of the lines, and how far they are apart
NAMED = 200  # units: room for what stands above a narrow picture


def encode_png(image: Image) -> bytes:
    kept = io.BytesIO()
    image.save(kept, "PNG", optimize=True)
    return kept.getvalue()


def scale_up(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * FINE, size[1] * FINE


def resize(image: Image, size: tuple[int, int]) -> Image:
    """Small images keep their pixels to be seen, large ones are made smaller smoothly."""
    from PIL.Image import Resampling

    grows = size[0] > 2 * image.width
    return image.resize(size, Resampling.NEAREST if grows else Resampling.LANCZOS)


def make_pale(image: Image) -> Image:
    """Grey, and no darker than what a tint can be seen on."""
    return image.convert("L").point([round(DARKEST + v * (255 - DARKEST) / 255) for v in range(256)]).convert("RGB")


def tint_panel(view: View, ground: Image, size: tuple[int, int]) -> Image:
    """A panel as a picture of this size in pixels."""
    import numpy as np

    if view.values is None:
        return draw_frame(resize(ground.convert("RGB"), size), view.box, ground.size)
    pixels = np.asarray(resize(make_pale(ground), size)).astype(np.float64)
    amounts = spread_out(view, ground.size, size) / (view.scale or 1.0)
    strength = np.minimum(np.abs(amounts), 1.0)[..., None]
    colour = np.where(amounts[..., None] > 0, POSITIVE["light"], NEGATIVE["light"])
    pixels += (colour - pixels) * strength * STRONGEST
    y, x = np.ogrid[: size[1], : size[0]]
    line = ((x + y) % (PERIOD * FINE) < FINE) & (amounts < -VISIBLE)
    pixels += (np.array(HATCH) - pixels) * strength * line[..., None]
    module = pillow()
    image: Image = module.fromarray(np.rint(pixels).astype(np.uint8))
    return draw_lines(image, view, ground.size) if view.named else image


def spread_out(view: View, original: tuple[int, int], size: tuple[int, int]) -> Numbers:
    """[height, width] of the drawing: the value at each place, 0 where the model does not look."""
    import numpy as np

    assert view.values is not None
    left, top, right, bottom = view.box
    places = []
    for count, whole, start, end, edges in (
        (size[0], original[0], left, right, view.lines[0]),
        (size[1], original[1], top, bottom, view.lines[1]),
    ):
        share = ((np.arange(count) + 0.5) / count * whole - start) / (end - start)
        cell = np.searchsorted(np.array(edges), share, side="right") - 1
        places.append((np.clip(cell, 0, len(edges) - 2), (share >= 0) & (share < 1)))
    (columns, across), (rows, down) = places
    found: Numbers = view.values[np.ix_(rows, columns)] * (down[:, None] & across)
    return found


def draw_frame(image: Image, box: Box, original: tuple[int, int]) -> Image:
    """The picture with a frame around what the model sees, where that is not all of it."""
    from PIL import ImageDraw

    if box != (0, 0, *original):
        corners = place_box(box, original, image.size)
        ImageDraw.Draw(image).rectangle(corners, outline=(255, 255, 255), width=FINE + 2)
        ImageDraw.Draw(image).rectangle(corners, outline=(17, 17, 17), width=FINE)
    return image


def place_box(box: Box, original: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
    x, y = size[0] / original[0], size[1] / original[1]
    return box[0] * x, box[1] * y, min(box[2] * x, size[0] - 1.0), min(box[3] * y, size[1] - 1.0)


def draw_lines(image: Image, view: View, original: tuple[int, int]) -> Image:
    """Thin lines between patches, where these are large enough for lines to leave something of them."""
    from PIL import ImageDraw

    xs, ys = view.edges(original, image.size)
    if xs[1] - xs[0] < 8 * FINE:
        return image
    pen = ImageDraw.Draw(image)
    for x in xs:
        pen.line((min(x, image.width - 1), ys[0], min(x, image.width - 1), ys[-1]), fill=(136, 136, 136))
    for y in ys:
        pen.line((xs[0], min(y, image.height - 1), xs[-1], min(y, image.height - 1)), fill=(136, 136, 136))
    return image


def draw_sheet(shown: Sequence[View], ground: Image, explanation: Explanation, columns: int) -> Image:
    """All panels in rows, each under its name, the heading above and the legend below."""
    from PIL import ImageDraw

    check_least("columns", columns)
    columns = min(columns, len(shown))
    width, height = size_on_sheet(ground.size)
    rows = -(-len(shown) // columns)
    step = max(width, NAMED)
    full = max(WIDE, columns * (step + MARGIN) + MARGIN)
    tall = MARGIN + HEAD + rows * (height + CAPTION + MARGIN) + LEGEND
    whole: Image = pillow().new("RGB", (full * FINE, tall * FINE), "white")
    pen = ImageDraw.Draw(whole)
    write(pen, MARGIN, MARGIN, describe_result(explanation), 15)
    for number, view in enumerate(shown):
        x = MARGIN + number % columns * (step + MARGIN)
        y = MARGIN + HEAD + number // columns * (height + CAPTION + MARGIN)
        write(pen, x, y, view.name, 15)
        for i, line in enumerate(view.note.splitlines()):
            write(pen, x, y + 20 + 16 * i, line, 12, SOFT)
        whole.paste(tint_panel(view, ground, (width * FINE, height * FINE)), (x * FINE, (y + CAPTION) * FINE))
    draw_legend(whole, tall - LEGEND)
    return whole


def write(pen: Any, x: int, y: int, words: str, size: int, colour: str = "#111") -> None:
    from PIL import ImageFont

    pen.text((x * FINE, y * FINE), words, fill=colour, font=ImageFont.load_default(size * FINE))


def draw_legend(whole: Image, y: int) -> None:
    """A swatch of each sign."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(whole)
    for x, colour, words in ((MARGIN, POSITIVE, "adds"), (MARGIN + 86, NEGATIVE, "takes away (hatched)")):
        corner = (x * FINE, (y + 2) * FINE)
        patch: Image = pillow().new("RGB", (18 * FINE, 18 * FINE), colour["light"])
        if colour is NEGATIVE:
            inside = ImageDraw.Draw(patch)
            for at in range(0, 2 * patch.width, PERIOD * FINE):
                inside.line((at, 0, 0, at), fill=HATCH, width=FINE)
        whole.paste(patch, corner)
        write(pen, x + 26, y + 2, words, 13)
