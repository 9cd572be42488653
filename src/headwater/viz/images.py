"""Relevance drawn over the picture it is about: as PNG and as SVG, patches or pixels, methods side by side.

The picture is drawn pale and grey under the tint, at the place where the model saw it. What takes away is hatched, so
that colour is not the only sign and a print in black and white can be read. Nothing is read from files here.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import InputError, MissingExtra, UsageError
from headwater.explanation import Explanation
from headwater.picture import Box, Picture

from .colour import NEGATIVE, POSITIVE, largest, shade
from .panels import CAPTION, HEAD, LEGEND, MARGIN, SOFT, WIDE, Panel, css, said, sheet, swatch
from .reading import signed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Numbers = NDArray[np.float64]

SIDE = 224  # of a picture's longer side, in units of the sheet
FINE = 2  # pixels of a PNG for each unit
DARKEST = 210  # the grey that black is drawn in, under the tint
STRONGEST = 0.85  # opacity of full colour, under which the image is still seen
VISIBLE = 0.05  # of full colour: what is fainter is not hatched
HATCH, PERIOD = (11, 42, 107), 6  # colour of the lines, and how far they are apart
LEAST = 4  # units: pixels that would be smaller are drawn in blocks
LEVELS = ("patches", "pixels")


def png(explanations: Sequence[Explanation], image: Any, *, levels: Sequence[str] = LEVELS, columns: int = 4) -> bytes:
    """The picture, then every explanation drawn over it, at every level that it has. `image`: Pillow image or array.

    Full colour is each panel's own largest relevance, said above it: methods differ in unit and size.
    """
    shown, picture = views(explanations, image, levels)
    return encoded(drawn_sheet(shown, picture, explanations[0], columns))


def picture(
    explanations: Sequence[Explanation], image: Any, *, levels: Sequence[str] = LEVELS, columns: int = 4
) -> str:
    """The same sheet as SVG. A patch says its number when it is pointed at."""
    shown, ground = views(explanations, image, levels)
    size = drawn_size(ground.size)
    panels = [Panel(view.name, view.note, svg_of(view, ground, size)) for view in shown]
    hatched = f"{swatch()}<rect width='18' height='18' fill='url(#hatch)'/>"
    made = sheet(panels, size, min(columns, len(panels)), explanations[0], hatched, "hatched")
    return made.replace("</title>", f"</title><defs>{HATCHING}</defs>", 1)


def overlay(explanation: Explanation, image: Any, level: str = "patches") -> Image:
    """One explanation over its picture and nothing else, as a Pillow image."""
    shown, ground = views([explanation], image, [level])
    return tinted(shown[-1], ground, scaled(drawn_size(ground.size)))


def stacked(sheets: Sequence[bytes]) -> bytes:
    """PNG sheets one below the other."""
    module = pillow()
    images = [module.open(io.BytesIO(one)) for one in sheets]
    whole = module.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), "white")
    for number, one in enumerate(images):
        whole.paste(one, (0, sum(i.height for i in images[:number])))
    return encoded(whole)


def stacked_svg(sheets: Sequence[str]) -> str:
    """SVG sheets one below the other."""
    if len(sheets) == 1:
        return sheets[0]
    sizes = [tuple(int(one.split(f"{name}='")[1].split("'")[0]) for name in (" width", " height")) for one in sheets]
    width, height = max(w for w, _ in sizes), sum(h for _, h in sizes)
    parts = [
        one.replace("<svg ", f"<svg y='{sum(h for _, h in sizes[:i])}' ", 1).strip() for i, one in enumerate(sheets)
    ]
    view = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {view}>{''.join(parts)}</svg>\n"


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


def views(explanations: Sequence[Explanation], image: Any, levels: Sequence[str]) -> tuple[list[View], Image]:
    """What is drawn: the picture, then every explanation at every level that it has."""
    if not explanations:
        raise UsageError("there is no explanation to draw. Give at least one.")
    for level in levels:
        if level not in LEVELS:
            raise UsageError(f"an image is drawn by {' or '.join(LEVELS)}, not by {level!r}.")
    ground = as_image(image)
    many = len(explanations) > 1 and len(levels) == 1  # of which the method is all there is to say
    found = [original(box_of(explanations[0], ground), ground)]
    for e in explanations:
        box, shape = box_of(e, ground), shape_of(e)
        if "patches" in levels or shape.pixels is None:
            found.append(by_patch(e, shape, box, many))
        if "pixels" in levels and shape.pixels is not None:
            found.append(by_pixel(e, shape, box, ground.size, many))
    return found, ground


def original(box: Box, ground: Image) -> View:
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
    return View(name, note(e, scale), values, scale, box, (xs, ys), named=True)


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
    return View(f"{e.method}, {what}" if not many else f"{e.method}", note(e, scale), values, scale, box, (xs, ys))


def note(e: Explanation, scale: float) -> str:
    return f"full colour ±{scale:.3g}, sum {e.ledger.inputs:+.3g}"


def shape_of(e: Explanation) -> Picture:
    if e.image is None:
        raise InputError(f"the explanation by {e.method!r} is not of an image.")
    return e.image


def box_of(e: Explanation, ground: Image) -> Box:
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
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("a picture of an image", "images") from error
    return Image


def as_image(image: Any) -> Image:
    module = pillow()
    if isinstance(image, module.Image):
        return image  # type: ignore[no-any-return]
    try:
        return module.fromarray(image)  # type: ignore[no-any-return]
    except (TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the picture must be a Pillow image or an array of bytes: {error}") from error


def encoded(image: Image) -> bytes:
    kept = io.BytesIO()
    image.save(kept, "PNG", optimize=True)
    return kept.getvalue()


def drawn_size(size: tuple[int, int]) -> tuple[int, int]:
    """The picture's size on the sheet."""
    unit = SIDE / max(size)
    return max(1, round(size[0] * unit)), max(1, round(size[1] * unit))


def scaled(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * FINE, size[1] * FINE


def enlarged(image: Image, size: tuple[int, int]) -> Image:
    """Small images keep their pixels to be seen, large ones are made smaller smoothly."""
    from PIL.Image import Resampling

    grows = size[0] > 2 * image.width
    return image.resize(size, Resampling.NEAREST if grows else Resampling.LANCZOS)


def pale(image: Image) -> Image:
    """Grey, and no darker than what a tint can be seen on."""
    return image.convert("L").point([round(DARKEST + v * (255 - DARKEST) / 255) for v in range(256)]).convert("RGB")


def tinted(view: View, ground: Image, size: tuple[int, int]) -> Image:
    """A panel as a picture of this size in pixels."""
    import numpy as np

    if view.values is None:
        return framed(enlarged(ground.convert("RGB"), size), view.box, ground.size)
    pixels = np.asarray(enlarged(pale(ground), size)).astype(np.float64)
    amounts = spread_out(view, ground.size, size) / (view.scale or 1.0)
    strength = np.minimum(np.abs(amounts), 1.0)[..., None]
    colour = np.where(amounts[..., None] > 0, POSITIVE["light"], NEGATIVE["light"])
    pixels += (colour - pixels) * strength * STRONGEST
    y, x = np.ogrid[: size[1], : size[0]]
    line = ((x + y) % (PERIOD * FINE) < FINE) & (amounts < -VISIBLE)
    pixels += (np.array(HATCH) - pixels) * strength * line[..., None]
    module = pillow()
    image: Image = module.fromarray(np.rint(pixels).astype(np.uint8))
    return ruled(image, view, ground.size) if view.named else image


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


def framed(image: Image, box: Box, original: tuple[int, int]) -> Image:
    """The picture with a frame around what the model sees, where that is not all of it."""
    from PIL import ImageDraw

    if box != (0, 0, *original):
        corners = placed(box, original, image.size)
        ImageDraw.Draw(image).rectangle(corners, outline=(255, 255, 255), width=FINE + 2)
        ImageDraw.Draw(image).rectangle(corners, outline=(17, 17, 17), width=FINE)
    return image


def placed(box: Box, original: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float]:
    x, y = size[0] / original[0], size[1] / original[1]
    return box[0] * x, box[1] * y, min(box[2] * x, size[0] - 1.0), min(box[3] * y, size[1] - 1.0)


def ruled(image: Image, view: View, original: tuple[int, int]) -> Image:
    """Thin lines between patches, where these are large enough for lines to leave something of them."""
    from PIL import ImageDraw

    x, y = image.width / original[0], image.height / original[1]
    left, top, right, bottom = view.box[0] * x, view.box[1] * y, view.box[2] * x, view.box[3] * y
    xs, ys = (
        [a + (b - a) * s for s in edges] for a, b, edges in zip((left, top), (right, bottom), view.lines, strict=True)
    )
    if (right - left) / (len(xs) - 1) < 8 * FINE:
        return image
    pen = ImageDraw.Draw(image)
    for at in xs:
        pen.line((min(at, image.width - 1), top, min(at, image.width - 1), bottom), fill=(136, 136, 136))
    for at in ys:
        pen.line((left, min(at, image.height - 1), right, min(at, image.height - 1)), fill=(136, 136, 136))
    return image


# the sheet as PNG


def drawn_sheet(shown: Sequence[View], ground: Image, explanation: Explanation, columns: int) -> Image:
    """All panels in rows, each under its name, the heading above and the legend below."""
    from PIL import ImageDraw

    if columns < 1:
        raise UsageError(f"columns must be at least 1, not {columns}.")
    columns = min(columns, len(shown))
    width, height = drawn_size(ground.size)
    rows = -(-len(shown) // columns)
    step = max(width, NAMED)
    full = max(WIDE, columns * (step + MARGIN) + MARGIN)
    tall = MARGIN + HEAD + rows * (height + CAPTION + MARGIN) + LEGEND
    whole: Image = pillow().new("RGB", (full * FINE, tall * FINE), "white")
    pen = ImageDraw.Draw(whole)
    write(pen, MARGIN, MARGIN, said(explanation), 15)
    for number, view in enumerate(shown):
        x = MARGIN + number % columns * (step + MARGIN)
        y = MARGIN + HEAD + number // columns * (height + CAPTION + MARGIN)
        write(pen, x, y, view.name, 15)
        write(pen, x, y + 20, view.note, 12, SOFT)
        whole.paste(tinted(view, ground, (width * FINE, height * FINE)), (x * FINE, (y + CAPTION) * FINE))
    legend(whole, tall - LEGEND)
    return whole


NAMED = 200  # units: room for what stands above a narrow picture


def write(pen: Any, x: int, y: int, words: str, size: int, colour: str = "#111") -> None:
    from PIL import ImageFont

    pen.text((x * FINE, y * FINE), words, fill=colour, font=ImageFont.load_default(size * FINE))


def legend(whole: Image, y: int) -> None:
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


# SVG

HATCHING = (
    f"<pattern id='hatch' width='{PERIOD * 0.7071:.3f}' height='8' patternUnits='userSpaceOnUse' "
    f"patternTransform='rotate(45)'><line x1='0' y1='0' x2='0' y2='8' stroke='{css(HATCH)}' stroke-width='1.4'/>"
    "</pattern>"
)


def svg_of(view: View, ground: Image, size: tuple[int, int]) -> str:
    if not view.named:
        return embedded(tinted(view, ground, scaled(size)), size)
    shown = embedded(enlarged(pale(ground), scaled(size)), size)
    return f"{shown}{''.join(patch_rectangles(view, ground.size, size))}"


def embedded(image: Image, size: tuple[int, int]) -> str:
    data = base64.b64encode(encoded(image)).decode()
    return f"<image width='{size[0]}' height='{size[1]}' href='data:image/png;base64,{data}'/>"


def patch_rectangles(view: View, original: tuple[int, int], size: tuple[int, int]) -> list[str]:
    assert view.values is not None
    x, y = size[0] / original[0], size[1] / original[1]
    left, top, right, bottom = view.box[0] * x, view.box[1] * y, view.box[2] * x, view.box[3] * y
    xs, ys = (
        [a + (b - a) * s for s in edges] for a, b, edges in zip((left, top), (right, bottom), view.lines, strict=True)
    )
    found = []
    for row, line in enumerate(view.values.tolist()):
        for column, amount in enumerate(line):
            corner = f"x='{xs[column]:.2f}' y='{ys[row]:.2f}'"
            shape = f"{corner} width='{xs[column + 1] - xs[column]:.2f}' height='{ys[row + 1] - ys[row]:.2f}'"
            found.append(rectangle(shape, amount, view.scale, f"[{row}, {column}]"))
    return found


def rectangle(shape: str, amount: float, scale: float, name: str) -> str:
    tone = shade(amount, scale)
    colour = css((POSITIVE if tone.sign > 0 else NEGATIVE)["light"])
    words = f"<title>{name}: {signed(amount).strip()}</title>"
    ground = f"<rect {shape} fill='{colour}' fill-opacity='{tone.opacity * STRONGEST:.3f}' {EDGE}>{words}</rect>"
    if tone.sign >= 0 or tone.opacity < VISIBLE:
        return ground
    return f"{ground}<rect {shape} fill='url(#hatch)' fill-opacity='{tone.opacity:.3f}' pointer-events='none'/>"


EDGE = "stroke='#888' stroke-width='0.4'"
