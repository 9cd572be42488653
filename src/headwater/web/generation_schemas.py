"""What the routes of generated text take and give."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from .schemas import NAME, PROMPT, LedgerShown, Masked, ModelChosen, Name, PhraseShown, ScoreName, Strict


class GenerateAsked(Strict):
    """A prompt, which the model continues; or one question of a chat."""

    prompt: str = Field(min_length=1, max_length=PROMPT, description="What the model goes on from.")
    chat: bool = Field(default=False, description="Put the prompt to the model as a chat's question.")
    answer: str | None = Field(
        default=None, min_length=1, max_length=PROMPT, description="Explain this in place of its own."
    )
    new_tokens: int = Field(default=12, ge=1, le=48, description="How many it writes at most.")
    method: Name | None = Field(default=None, description="By default the one of the model's kind.")
    score: ScoreName = "advantage"
    contrast: str | None = Field(
        default=None, min_length=1, max_length=NAME, description="Why what it says rather than this."
    )
    unit: Literal["token", "word"] = Field(default="token", description="What has a number each.")
    aside: bool = Field(default=True, description="Move the attention sink, the first token, to a line of the ledger.")
    model: ModelChosen = None
    masked: Masked = Field(default=[], description="Pieces before the output that are masked, counted from 0.")
    masked_for: int = Field(default=0, ge=0, le=48, description="The piece of the output that is asked for then.")


class Piece(BaseModel):
    """A token of prompt or output as text, with the space before it; `aside`: its relevance is in the ledger."""

    text: str
    role: str
    special: bool
    aside: bool


class Chance(BaseModel):
    """A token that could have stood there, and the model's probability of it."""

    text: str
    probability: float


class OutputRow(BaseModel):
    """What one output token came from: a number for every piece before it; and the likeliest tokens in its place."""

    text: str
    target: str
    score: float
    probability: float
    alternatives: list[Chance]
    relevance: list[float]
    ledger: LedgerShown
    verdict: list[PhraseShown]


class GenerateAnswer(BaseModel):
    prompt: int
    pieces: list[Piece]
    rows: list[OutputRow]
    text: str
    method: str
    score: str
    unit: str
    model: str
