"""Images and molecules: the same question, and an answer that is drawn."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..engine.model import where_it_is
from ..engine.options import Options, Request
from ..engine.plan import make_plan
from ..engine.session import Session
from ..errors import InputError
from ..inputs.readouts import logits_of
from ..results.comparison import Comparison
from ..viz import images, molecules
from ..viz.colour import palette
from ..viz.reading import units_name
from .limits import Limits
from .models import Loaded
from .picture_schemas import ImageAsked, MoleculeAsked, PictureAnswer
from .texts import check_some, class_shares, explanation_fields, method_row

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def open_picture(ask: ImageAsked, limits: Limits) -> Image:
    """The image of a request, small enough to be worked on. Its size is looked at before its pixels are."""
    from PIL import Image as module
    from PIL import ImageOps

    try:
        content = base64.b64decode(ask.image.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("the image is no base64, nor a data URL of it.") from error
    try:
        with module.open(io.BytesIO(content), formats=FORMATS) as file:
            check_image_size(file.width, file.height, limits)
            turned = ImageOps.exif_transpose(file)
            turned.load()
            return turned
    except InputError:
        raise
    except Exception as error:  # a broken file makes Pillow raise almost anything
        raise InputError(f"this cannot be read as an image ({', '.join(FORMATS)}).") from error


def check_image_size(width: int, height: int, limits: Limits) -> None:
    """Refuses what takes too much to unpack, and strips, which a processor that enlarges the shorter side blows up."""
    said = f"the image has {width} x {height} pixels; "
    if width * height > limits.image_pixels:
        raise InputError(f"{said}at most {limits.image_pixels:,} are taken.")
    if max(width, height) > limits.image_side:
        raise InputError(f"{said}a side may have at most {limits.image_side:,}.")
    if max(width, height) > limits.image_ratio * min(width, height):
        raise InputError(f"{said}its longer side may be at most {limits.image_ratio} times the shorter one.")


def image_comparison(loaded: Loaded, ask: ImageAsked, image: Image) -> Comparison:
    found = check_some(
        loaded.session.compare(
            image,
            processor=loaded.reader,
            methods=ask.methods or [loaded.method],
            target=ask.target,
            output=ask.output,
            seed=ask.seed,
        )
    )
    named = []
    for e in found.explanations:
        assert e.image is not None
        named.append(replace(e, image=replace(e.image, frame=replace(e.image.frame, source=ask.name))))
    return replace(found, explanations=tuple(named))


def image_sheet(found: Comparison, image: Image, ask: ImageAsked) -> str:
    with palette(ask.palette):
        return images.picture(found.explanations, image, levels=[ask.level], columns=ask.columns or 4)


def image_answer(loaded: Loaded, ask: ImageAsked, found: Comparison, image: Image) -> PictureAnswer:
    return picture_answer(loaded, found, image, {"processor": loaded.reader}, image_sheet(found, image, ask))


def make_graph(ask: MoleculeAsked, limits: Limits) -> Any:
    from ..models.molecules import from_smiles

    graph = from_smiles(ask.smiles)
    if len(graph) > limits.atoms:
        raise InputError(f"the molecule has {len(graph)} atoms; at most {limits.atoms} are taken.")
    return graph


def molecule_comparison(loaded: Loaded, ask: MoleculeAsked, limits: Limits) -> Comparison:
    found = check_some(
        loaded.session.compare(
            make_graph(ask, limits),
            methods=ask.methods or [loaded.method],
            target=ask.target,
            output=ask.output,
            seed=ask.seed,
        )
    )
    return replace(found, explanations=tuple(replace(e, text=ask.smiles) for e in found.explanations))


def molecule_sheet(found: Comparison, ask: MoleculeAsked) -> str:
    alone = len(found.explanations) == 1
    with palette(ask.palette):
        return molecules.picture(
            found.explanations, ask.smiles, columns=ask.columns or 2, size=(560, 380) if alone else (420, 300)
        )


def molecule_answer(loaded: Loaded, ask: MoleculeAsked, found: Comparison, limits: Limits) -> PictureAnswer:
    return picture_answer(loaded, found, make_graph(ask, limits), {}, molecule_sheet(found, ask))


def picture_answer(loaded: Loaded, found: Comparison, data: Any, options: dict[str, Any], svg: str) -> PictureAnswer:
    first = found.explanations[0]
    items = [f"{token} {i}" for i, token in enumerate(first.tokens)] if first.image is None else list(first.tokens)
    classes = class_shares(loaded, logits(loaded, data, options))
    rows = [method_row(e, e.relevance.flatten().tolist(), units_name(e)) for e in found.explanations]
    return PictureAnswer(**explanation_fields(loaded, found, classes, rows), svg=svg, items=items)


def logits(loaded: Loaded, data: Any, options: dict[str, Any]) -> Sequence[float]:
    ask = Request(loaded.session.model, data, Options(**options, dtype=loaded.session.dtype))
    model = Session.open(ask.model, ask.options).model
    batch = make_plan(ask, model).steps[0].batch.to(*where_it_is(model))
    with torch.no_grad():
        found: list[float] = logits_of(model(*batch.args, **batch.kwargs)).reshape(-1).double().tolist()
    return found
