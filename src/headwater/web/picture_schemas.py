"""What the routes of images and molecules take and give."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .schemas import (
    FILE,
    NAME,
    ExplanationAnswer,
    ExplanationAsked,
    Masked,
    PaletteName,
)

SMILES = 400

Columns = Annotated[int | None, Field(ge=1, le=8, description="Panels side by side in the drawing.")]


class ImageAsked(ExplanationAsked):
    """An image, as base64 of a PNG, JPEG, WebP, GIF or BMP file, or as a data URL of one."""

    image: str = Field(min_length=1, max_length=FILE, description="Base64, or a data URL.")
    name: str = Field(default="image", max_length=NAME, description="What the image is called in reports.")
    level: Literal["patches", "pixels"] = Field(default="patches", description="What has a number each.")
    palette: PaletteName = "red-blue"
    columns: Columns = None
    masked: Masked = Field(default=[], description="Patches that are painted over, counted line by line from 0.")


class MoleculeAsked(ExplanationAsked):
    """A molecule as a SMILES string."""

    smiles: str = Field(min_length=1, max_length=SMILES, description="The molecule.")
    palette: PaletteName = "red-blue"
    columns: Columns = None
    masked: Masked = Field(default=[], description="Atoms whose embedding is taken out, counted from 0.")


class PictureAnswer(ExplanationAnswer):
    """A drawing with one panel a method, and the numbers behind it."""

    svg: str
    items: list[str]
