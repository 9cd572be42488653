"""Images cut into patches, as SVG: every patch tinted by its relevance, methods side by side.

What takes away is hatched, so that colour is not the only sign. The image itself is drawn in light grey under the tint.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from headwater.errors import InputError, UsageError
from headwater.results.explanation import Explanation

from .colour import NEGATIVE, POSITIVE, largest, shade
from .panels import css, panel_sheet, picture_of, swatch
from .reading import with_sign

__all__ = ["picture"]

SIDE = 200  # of a picture, in pixels of the screen
INK = 150  # how much darker than white the brightest pixel is drawn
STRONGEST = 0.85  # opacity of full colour, under which the image is still seen
VISIBLE = 0.05  # of full colour: fainter patches are not hatched

Rows = Sequence[Sequence[int]]


def picture(explanations: Sequence[Explanation], image: Any, segments: Any, *, columns: int = 4) -> str:
    """The image once for every explanation.

    Full colour is each method's own largest relevance, said above its picture: methods differ in unit and size.

    Args:
        explanations: of the patches, by one or several methods.
        image: bytes [rows, columns].
        segments: each pixel's patch, from 0 [rows, columns].
        columns: so many pictures stand side by side.

    Returns:
        SVG.

    Raises:
        UsageError: there is no explanation, or shapes do not fit.

    Example:
        >>> import numpy
        >>> from PIL import Image
        >>> from headwater.viz.superpixels import picture
        >>> image = Image.new("L", (28, 28))
        >>> squares = torch.arange(49).view(7, 7).repeat_interleave(4, 0).repeat_interleave(4, 1).numpy()
        >>> picture([hw.explain("headwater/mnist", image)], numpy.asarray(image), squares).startswith("<svg")
        True
    """
    if not explanations:
        raise UsageError("there is no explanation to draw. Give at least one.")
    pixels, patches = pixel_rows(image, "the image"), pixel_rows(segments, "the segments")
    check_shapes(explanations, pixels, patches)
    unit = SIDE / max(len(pixels), len(pixels[0]))
    size = (round(unit * len(pixels[0])), round(unit * len(pixels)))
    shapes = trace_outlines(patches)
    ground = f"<g transform='scale({unit:.4f})' shape-rendering='crispEdges'>{draw_greys(pixels)}"
    panels = []
    for explanation in explanations:
        scale = largest(explanation.relevance.tolist())
        tints = [tint(shapes[i], i, amount, scale) for i, amount in enumerate(explanation.relevance.tolist())]
        body = f"{ground}{''.join(tints)}</g><g transform='scale({unit:.4f})'>{draw_borders(patches)}</g>"
        panels.append(picture_of(explanation, scale, body))
    hatched = f"<rect width='{18 / unit:.3f}' height='{18 / unit:.3f}' fill='url(#hatch)'/>"
    negative = f"{swatch()}<g transform='scale({unit:.4f})'>{hatched}</g>"
    drawn = panel_sheet(panels, size, columns, explanations[0], negative, "hatched")
    return drawn.replace("</title>", f"</title><defs>{HATCH}</defs>", 1)


HATCH = (
    "<pattern id='hatch' width='0.8' height='0.8' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
    "<line x1='0' y1='0' x2='0' y2='0.8' stroke='#0b2a6b' stroke-width='0.25'/></pattern>"
)


def pixel_rows(values: Any, name: str) -> list[list[int]]:
    found = values.tolist() if hasattr(values, "tolist") else [list(row) for row in values]
    if not found or not isinstance(found[0], list) or not found[0] or isinstance(found[0][0], list):
        raise InputError(f"{name} must have two dimensions, [rows, columns].")
    return [[int(value) for value in row] for row in found]


def check_shapes(explanations: Sequence[Explanation], pixels: Rows, patches: Rows) -> None:
    if len(pixels) != len(patches) or len(pixels[0]) != len(patches[0]):
        raise InputError(
            f"the image has {len(pixels)} rows of {len(pixels[0])} pixels, the segments {len(patches)} of "
            f"{len(patches[0])}. Give both of one size."
        )
    count = max(max(row) for row in patches) + 1
    for explanation in explanations:
        if tuple(explanation.relevance.shape) != (count,):
            raise InputError(
                f"{explanation.method!r} explains {tuple(explanation.relevance.shape)} nodes, the image has {count} "
                "patches. Draw the image that was explained."
            )


def draw_greys(pixels: Rows) -> str:
    """The image, white where it is 0, in runs of equal pixels."""
    return "".join(
        f"<rect x='{x}' y='{y}' width='{width}' height='1' fill='{css((tone, tone, tone))}'/>"
        for y, row in enumerate(pixels)
        for x, width, value in runs(row)
        if (tone := 255 - value * INK // 255) < 255
    )


def runs(row: Sequence[int]) -> list[tuple[int, int, int]]:
    """(start, length, value) of each run of equal values."""
    found, start = [], 0
    for value, group in groupby(row):
        length = len(list(group))
        found.append((start, length, value))
        start += length
    return found


def trace_outlines(patches: Rows) -> dict[int, str]:
    """The path of every patch: its runs of pixels, row by row."""
    found: dict[int, str] = {}
    for y, row in enumerate(patches):
        for x, width, patch in runs(row):
            found[patch] = f"{found.get(patch, '')}M{x} {y}h{width}v1h-{width}z"
    return found


def tint(shape: str, patch: int, amount: float, scale: float) -> str:
    tone = shade(amount, scale)
    if not tone.sign:
        return ""
    colour = (POSITIVE if tone.sign > 0 else NEGATIVE)["light"]
    said = f"<title>patch {patch}: {with_sign(amount).strip()}</title>"
    path = f"<path d='{shape}' fill='{css(colour)}' fill-opacity='{tone.opacity * STRONGEST:.3f}'>{said}</path>"
    if tone.sign > 0 or tone.opacity < VISIBLE:
        return path
    return f"{path}<path d='{shape}' fill='url(#hatch)' fill-opacity='{tone.opacity:.3f}' pointer-events='none'/>"


def draw_borders(patches: Rows) -> str:
    """Thin lines between patches, and around the image."""
    high, wide = len(patches), len(patches[0])
    lines = [f"M{x} {y}v1" for y in range(high) for x in range(1, wide) if patches[y][x] != patches[y][x - 1]] + [
        f"M{x} {y}h1" for y in range(1, high) for x in range(wide) if patches[y][x] != patches[y - 1][x]
    ]
    frame = f"M0 0h{wide}v{high}h-{wide}z"
    return f"<path d='{frame}{''.join(lines)}' fill='none' stroke='#888' stroke-width='0.06'/>"
