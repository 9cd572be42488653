"""Any view as a file of its own: a page, a drawing, or the numbers. Drawn by `viz`, as on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from rich.console import Group

from ..errors import UnknownName
from ..results.audit import Audit
from ..results.comparison import Comparison
from ..results.generation import Generation
from ..results.verdict import Phrase
from ..viz import audit_page, comparison, generation, images
from ..viz.bars import share_bars
from ..viz.colour import palette
from ..viz.html import amounts, verdict_paragraph
from ..viz.reading import decimals, visible
from ..viz.svg import picture
from ..viz.terminal import render_audit
from .schemas import ClassShare, MaskAnswer

if TYPE_CHECKING:
    from PIL.Image import Image

Format = Annotated[Literal["html", "svg", "json"], Field(description="Kind of file.")]
PageFormat = Annotated[Literal["html", "json"], Field(description="Kind of file.")]
PictureFormat = Annotated[Literal["html", "svg", "png", "json"], Field(description="Kind of file.")]
MEDIA = {
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}
FORMS = ("html", "svg", "json")
WIDTH = 110  # of a drawing of text, in characters


def text_report(
    found: Comparison, words: bool, form: Format, colours: str, tested: str = "", prediction: str = ""
) -> str:
    """`prediction` has the classes' probabilities, `tested` what masking words showed: HTML, parts of the page."""
    if form == "json":
        return write_json(found.to_dict())
    with palette(colours):
        check_form(form)
        if form == "svg":
            drawn = comparison.render(found, words=words, theme="light")
            return picture(drawn, width=WIDTH, theme="light", frame=False)
        return comparison.page(found, words=words, more=tested, before=prediction)


def prediction_part(before: Sequence[ClassShare], predicted: str | None, after: Sequence[ClassShare] = ()) -> str:
    """The classes' probabilities as bars; `after` is what they became when words were masked."""
    if not before:
        return ""
    was, became = ([(visible(one.name), one.probability) for one in some] for some in (before, after))
    return f"<h3>Prediction</h3>{share_bars(was, None if predicted is None else visible(predicted), became)}"


def mask_section(found: MaskAnswer) -> str:
    """What masking words, patches or atoms showed: the sentence of the screen, and what each method had said."""
    said = [Phrase(part.text, part.named) for part in found.said]
    rows = [(claim.method, claim.amount) for claim in found.claims]
    change = found.score_after - found.score_before
    places = decimals([change, *(amount for _, amount in rows)], digits=4)
    table = amounts(("what each method gave to it", "relevance"), rows, ("change of the score", change), places)
    return f"<h3>Put to the test</h3>{verdict_paragraph([*said, Phrase('.')])}{table}"


def audit_report(found: Sequence[Audit], form: Format) -> str:
    if form == "json":
        return write_json([one.to_dict() for one in found])
    check_form(form)
    if form == "svg":
        return picture(Group(*map(render_audit, found)), width=WIDTH, theme="light", frame=False)
    return audit_page.page(found)


def sheet_report(
    found: Comparison, svg: str, form: PictureFormat, colours: str, prediction: str = "", tested: str = ""
) -> str:
    """Of a molecule or an image, the sheet as it is on the screen."""
    if form == "json":
        return write_json(found.to_dict())
    check_form(form)
    with palette(colours):
        return svg if form == "svg" else comparison.page(found, picture=svg, more=tested, before=prediction)


def image_png(found: Comparison, image: Image, level: str, colours: str) -> bytes:
    with palette(colours):
        return images.png(found.explanations, image, levels=[level], columns=4)


def generation_report(found: Generation, form: Format, colours: str, tested: str = "") -> str:
    """`tested`: what masking showed, as a part of the page."""
    if form == "json":
        return write_json(found.to_dict())
    with palette(colours):
        check_form(form)
        if form == "svg":
            return picture(generation.render(found, theme="light"), width=WIDTH, theme="light", frame=False)
        return generation.page(found, tested=tested)


def check_form(form: str) -> None:
    if form not in FORMS:
        raise UnknownName("format", form, FORMS)


def write_json(found: object) -> str:
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"
