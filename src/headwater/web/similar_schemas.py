"""What the API of two texts takes and gives."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from .schemas import LedgerShown, Masked, ModelChosen, PhraseShown, Strict

TEXT, PASSAGES, DIRECTIONS, SHOWN = 4_000, 1_000, 4_096, 50
Passage = Annotated[str, StringConstraints(max_length=TEXT)]
Place = Annotated[int, Field(ge=0, le=PASSAGES - 1)]


class SimilarAsked(Strict):
    """Two texts. Words that are left out count from 0, the special tokens among them."""

    first: str = Field(min_length=1, max_length=TEXT, description="One text.")
    second: str = Field(min_length=1, max_length=TEXT, description="The other text.")
    rank: int | None = Field(
        default=16, ge=2, le=DIRECTIONS, description="Directions along which the vectors are explained; null: all."
    )
    model: ModelChosen = None
    left_first: Masked = Field(default=[], description="Words of the first text without which it is read again.")
    left_second: Masked = Field(default=[], description="Words of the second text without which it is read again.")


class RankAsked(Strict):
    """A query and passages. Places count from 0, the most similar passage first."""

    query: str = Field(min_length=1, max_length=TEXT, description="What is searched for.")
    passages: list[Passage] = Field(min_length=1, max_length=PASSAGES, description="What is ranked.")
    places: list[Place] = Field(
        default=list(range(10)), max_length=SHOWN, description="Places whose passages are given with their words."
    )
    above: Place = Field(default=0, description="Why does the passage at this place stand above …")
    below: Place = Field(default=1, description="… the one at this place?")
    model: ModelChosen = None


class ComparedWord(BaseModel):
    """A word with what it does for the similarity in all: with words, biases and constants of the other text."""

    text: str
    gap: bool
    special: bool
    relevance: float


class SideShown(BaseModel):
    """One of two texts. `rest` has what each word makes with biases and constants of the other text."""

    words: list[ComparedWord]
    rest: list[float]
    prompt: int = Field(
        description="The first word that is the text's own: before it stand special tokens, and a prompt."
    )


class SimilarAnswer(BaseModel):
    """Two texts, a number for every pair of their words, and the sum."""

    measure: str
    score: float
    first: SideShown
    second: SideShown
    matrix: list[list[float]] = Field(description="Words of the first text by words of the second.")
    ledger: LedgerShown
    verdict: list[PhraseShown]
    rank: int
    dimensions: int
    seconds: float = Field(description="What it took to compute.")
    method: str
    model: str


class MovedAnswer(BaseModel):
    """The similarity as it is without some words, and what the explanation had given to them."""

    name: str
    before: float
    after: float
    claim: float
    first: str
    second: str


class PassageShown(BaseModel):
    """A passage at its place; `number` is its line. `words` are given for the places that were asked for."""

    place: int
    number: int
    score: float
    text: str
    words: list[ComparedWord] | None


class RankAnswer(BaseModel):
    measure: str
    passages: list[PassageShown]
    seconds: float
    model: str


class WhyAnswer(BaseModel):
    """The difference of two similarities: words of the query and what its biases do, which sum."""

    score: float
    measure: str
    above: PassageShown
    below: PassageShown
    query: list[ComparedWord]
    rest: float
    sum: str = Field(description="The ledger of the difference, in a line.")
    closed: bool
