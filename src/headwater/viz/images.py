"""Relevance drawn over the picture it is about: as PNG and as SVG, patches or pixels, methods side by side.

The picture is drawn pale and grey under the tint, at the place where the model saw it. What takes away is hatched, so
that colour is not the only sign and a print in black and white can be read. Nothing is read from files here.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.results.explanation import Explanation

from .colour import NEGATIVE, POSITIVE, shade
from .panels import Panel, css, panel_sheet, swatch
from .raster import HATCH, PERIOD, STRONGEST, VISIBLE, draw_sheet, encode_png, make_pale, resize, scale_up, tint_panel
from .reading import with_sign
from .views import LEVELS, View, pillow, size_on_sheet, views

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["overlay", "picture", "png"]

HATCHING = (
    f"<pattern id='hatch' width='{PERIOD * 0.7071:.3f}' height='8' patternUnits='userSpaceOnUse' "
    f"patternTransform='rotate(45)'><line x1='0' y1='0' x2='0' y2='8' stroke='{css(HATCH)}' stroke-width='1.4'/>"
    "</pattern>"
)
EDGE = "stroke='#888' stroke-width='0.4'"


def png(explanations: Sequence[Explanation], image: Any, *, levels: Sequence[str] = LEVELS, columns: int = 4) -> bytes:
    """The picture, then every explanation drawn over it, at every level that it has.

    Full colour is each panel's own largest relevance, said above it: methods differ in unit and size.

    Args:
        explanations: of the image, by one or several methods.
        image: a Pillow image, a path or an array.
        levels: "patches", "pixels", or both.
        columns: so many panels stand side by side.

    Returns:
        The bytes of a PNG file.

    Example:
        >>> from PIL import Image
        >>> from headwater.viz.images import png
        >>> image = Image.new("L", (28, 28))
        >>> png([hw.explain("headwater/mnist", image)], image)[1:4]
        b'PNG'
    """
    shown, picture = views(explanations, image, levels)
    return encode_png(draw_sheet(shown, picture, explanations[0], columns))


def picture(
    explanations: Sequence[Explanation], image: Any, *, levels: Sequence[str] = LEVELS, columns: int = 4
) -> str:
    """The picture, then every explanation drawn over it, at every level that it has, as SVG.

    A patch says its number when it is pointed at.

    Args:
        explanations: of the image, by one or several methods.
        image: a Pillow image, a path or an array.
        levels: "patches", "pixels", or both.
        columns: so many panels stand side by side.

    Returns:
        SVG.

    Example:
        >>> from PIL import Image
        >>> from headwater.viz.images import picture
        >>> image = Image.new("L", (28, 28))
        >>> picture([hw.explain("headwater/mnist", image)], image).startswith("<svg")
        True
    """
    shown, ground = views(explanations, image, levels)
    size = size_on_sheet(ground.size)
    panels = [Panel(view.name, view.note, svg_of(view, ground, size)) for view in shown]
    hatched = f"{swatch()}<rect width='18' height='18' fill='url(#hatch)'/>"
    made = panel_sheet(panels, size, min(columns, len(panels)), explanations[0], hatched, "hatched")
    return made.replace("</title>", f"</title><defs>{HATCHING}</defs>", 1)


def overlay(explanation: Explanation, image: Any, level: str = "patches") -> Image:
    """One explanation over its picture and nothing else, as a Pillow image.

    Args:
        explanation: of the image.
        image: a Pillow image, a path or an array.
        level: "patches" or "pixels".

    Returns:
        A Pillow image.

    Example:
        >>> from PIL import Image
        >>> from headwater.viz.images import overlay
        >>> image = Image.new("L", (28, 28))
        >>> overlay(hw.explain("headwater/mnist", image), image).mode
        'RGB'
    """
    shown, ground = views([explanation], image, [level])
    return tint_panel(shown[-1], ground, scale_up(size_on_sheet(ground.size)))


def stack_png(sheets: Sequence[bytes]) -> bytes:
    """PNG sheets one below the other."""
    module = pillow()
    images = [module.open(io.BytesIO(one)) for one in sheets]
    whole = module.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), "white")
    for number, one in enumerate(images):
        whole.paste(one, (0, sum(i.height for i in images[:number])))
    return encode_png(whole)


def stack_svg(sheets: Sequence[str]) -> str:
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


def svg_of(view: View, ground: Image, size: tuple[int, int]) -> str:
    if not view.named:
        return embed_png(tint_panel(view, ground, scale_up(size)), size)
    shown = embed_png(resize(make_pale(ground), scale_up(size)), size)
    return f"{shown}{''.join(patch_rectangles(view, ground.size, size))}"


def embed_png(image: Image, size: tuple[int, int]) -> str:
    data = base64.b64encode(encode_png(image)).decode()
    return f"<image width='{size[0]}' height='{size[1]}' href='data:image/png;base64,{data}'/>"


def patch_rectangles(view: View, original: tuple[int, int], size: tuple[int, int]) -> list[str]:
    assert view.values is not None
    xs, ys = view.edges(original, size)
    found = []
    for row, line in enumerate(view.values.tolist()):
        for column, amount in enumerate(line):
            corner = f"x='{xs[column]:.2f}' y='{ys[row]:.2f}'"
            shape = f"{corner} width='{xs[column + 1] - xs[column]:.2f}' height='{ys[row + 1] - ys[row]:.2f}'"
            found.append(rectangle(shape, amount, view.scale, f"[{row}, {column}]", row * len(line) + column))
    return found


def rectangle(shape: str, amount: float, scale: float, name: str, item: int) -> str:
    tone = shade(amount, scale)
    colour = css((POSITIVE if tone.sign > 0 else NEGATIVE)["light"])
    words = f"<title>{name}: {with_sign(amount).strip()}</title>"
    looks = f"fill='{colour}' fill-opacity='{tone.opacity * STRONGEST:.3f}' {EDGE} data-item='{item}'"
    ground = f"<rect {shape} {looks}>{words}</rect>"
    if tone.sign >= 0 or tone.opacity < VISIBLE:
        return ground
    return f"{ground}<rect {shape} fill='url(#hatch)' fill-opacity='{tone.opacity:.3f}' pointer-events='none'/>"
