"""What the routes of a text take and give: its explanation, its prediction without words, its audit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from .schemas import (
    TEXT,
    ExplanationAnswer,
    ExplanationAsked,
    Masked,
    MaskedScores,
    ModelChosen,
    Name,
    OutputChosen,
    Strict,
    TargetChosen,
    TokenAnswer,
)


class TextAsked(ExplanationAsked):
    """A text to be explained. One that is longer than the model takes is explained in overlapping windows."""

    text: str = Field(min_length=1, max_length=TEXT, description="The model's input.")
    unit: Literal["word", "token"] = Field(default="word", description="What has a number each.")
    masked: Masked = Field(
        default=[], description="Words whose masking a report tells of; the text is explained whole."
    )


class AuditAsked(Strict):
    """A text whose relevance is followed through the model, by one or two methods."""

    text: str = Field(min_length=1, max_length=TEXT, description="The model's input.")
    methods: Annotated[list[Name], Field(min_length=1, max_length=2)] | None = Field(
        default=None, description="By default gi and the one of the model's kind."
    )
    target: TargetChosen = None
    output: OutputChosen = None
    model: ModelChosen = None


class PredictAsked(Strict):
    """A text with some of its words masked, and what the model makes of it."""

    text: str = Field(min_length=1, max_length=TEXT, description="The model's input.")
    masked: Masked = Field(default=[], description="Words that are masked, counted from 0.")
    target: TargetChosen = None
    output: OutputChosen = None
    model: ModelChosen = None


class TextAnswer(ExplanationAnswer):
    """An explanation of a text by several methods, over the same cells."""

    cells: list[TokenAnswer]
    windows: int


class PredictAnswer(MaskedScores):
    """The prediction before and after masking, and the score that the target has in each."""

    text: str


class LeakShown(BaseModel):
    operation: str
    module: str
    amount: float


class LayerShown(BaseModel):
    """What happened to relevance in one layer, on its way from the score to the inputs.

    `arrives` - `sources` - `lost` = `leaves`. `lost` below 0 was invented.
    """

    name: str
    arrives: float
    sources: float
    lost: float
    leaves: float
    leaks: list[LeakShown]


class AuditRow(BaseModel):
    method: str
    score: float
    inputs: float
    sources: float
    lost: float
    closed: bool
    layers: list[LayerShown]
    svg: str = Field(description="At every layer what is still there, taken and lost: together the score.")


class AuditAnswer(BaseModel):
    """Layer by layer, from the score to the inputs: what a method keeps and what it loses."""

    target: str
    output: str
    rows: list[AuditRow]
