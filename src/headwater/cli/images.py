"""Images on the command line: what `--image` means for every command that has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import UsageError

from .screen import save_file

if TYPE_CHECKING:
    from headwater.results.comparison import Comparison
    from headwater.results.explanation import Explanation


def check_alone(others: Sequence[object], of_texts: Sequence[bool]) -> None:
    """Nothing else is to be explained, and nothing was asked for that only a text has."""
    if any(others):
        raise UsageError("--image is in place of a text or a molecule: give one of them.")
    if any(of_texts):
        raise UsageError("--words, --window, --truncate, --at and --sinks are about texts, not about an --image.")


def check_readable(images: Sequence[Path]) -> None:
    """What cannot be opened is said before any model is loaded."""
    from headwater.inputs.images import open_image

    for image in images:
        open_image(image)


def write_pictures(
    made: Sequence[Explanation], images: Sequence[Path], png: Path | None, svg: Path | None, html: Path | None
) -> None:
    """The files that were asked for: each image with its explanation drawn over it."""
    if png is None and svg is None and html is None:
        return
    from headwater.inputs.images import open_image
    from headwater.viz import images as viz
    from headwater.viz.html import page

    pairs = [([e], open_image(image)) for e, image in zip(made, images, strict=True)]
    if png is not None:
        save_file(png, viz.stack_png([viz.png(e, image) for e, image in pairs]))
    sheets = [viz.picture(e, image) for e, image in pairs] if svg is not None or html is not None else []
    if svg is not None:
        save_file(svg, viz.stack_svg(sheets))
    if html is not None:
        save_file(html, page(made, pictures=sheets))


def draw_comparison(
    found: Comparison, image: Path, pixels: bool, png: Path | None, svg: Path | None, html: Path | None
) -> None:
    """The same for several methods side by side: by patch, or by pixel where a method has them."""
    if png is None and svg is None and html is None:
        return
    from headwater.inputs.images import open_image
    from headwater.viz import images as viz
    from headwater.viz.comparison import page

    ground, levels = open_image(image), ["pixels" if pixels else "patches"]
    if png is not None:
        save_file(png, viz.png(found.explanations, ground, levels=levels))
    sheet = viz.picture(found.explanations, ground, levels=levels) if svg is not None or html is not None else ""
    if svg is not None:
        save_file(svg, sheet)
    if html is not None:
        save_file(html, page(found, picture=sheet))
