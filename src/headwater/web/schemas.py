"""What the API takes and gives: the OpenAPI document is made of these, and of those of every tab.

Bounds that need nothing but the field itself stand here, so that a reader of the document sees them too.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TEXT, PROMPT, NAME = 20_000, 4_000, 200
METHODS, MASKED = 8, 512
FILE = 11_000_000  # characters of base64: files of 8 MB

Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME)]
Methods = Annotated[list[Name], Field(min_length=1, max_length=METHODS)]
Output = Literal["logit", "advantage", "probability", "log-probability"]
PaletteName = Annotated[
    Literal["red-blue", "orange-blue", "green-purple", "grey"], Field(description="Colours of what is drawn.")
]


class Strict(BaseModel):
    """A request: what it does not know, it refuses."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


TargetChosen = Annotated[
    Name | None, Field(description="A class by name or index, or 'a - b'; the predicted one by default.")
]
OutputChosen = Annotated[
    Output | None, Field(description="Which number of the target; by default what suits the model's kind.")
]
ModelChosen = Annotated[
    Name | None, Field(description="One of the models in /api/about; by default the first of its kind.")
]
ScoreName = Annotated[
    Literal["advantage", "logit", "logprob", "contrast"], Field(description="Which number of a token is explained.")
]
Masked = Annotated[list[Annotated[int, Field(ge=0, le=TEXT)]], Field(max_length=MASKED)]


class ExplanationAsked(Strict):
    """What every explanation may be asked for."""

    model: ModelChosen = None
    methods: Methods | None = Field(
        default=None, description="By default the one of the model's kind: `method` of the model in /api/about."
    )
    target: TargetChosen = None
    output: OutputChosen = None
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Of methods that draw random numbers.")


class ModelAbout(BaseModel):
    kind: Literal["text", "image", "molecule", "language", "sentence"]
    name: str
    state: Literal["absent", "idle", "loading", "ready", "failed"]
    hint: str
    classes: list[str]
    method: str = Field(description="What is taken for this model where no method is named.")
    vector: str = Field(default="", description="Of a sentence encoder: how it makes a vector of a text.")


class MethodAbout(BaseModel):
    name: str
    summary: str
    group: str


class PaletteAbout(BaseModel):
    name: str
    said: str
    positive: dict[Literal["dark", "light"], tuple[int, int, int]]
    negative: dict[Literal["dark", "light"], tuple[int, int, int]]


class About(BaseModel):
    """What this server has and allows."""

    version: str
    models: list[ModelAbout]
    methods: list[MethodAbout]
    palettes: list[PaletteAbout]
    limits: dict[str, float]
    datasets: int
    words: dict[str, str] = Field(description="What the words beside the numbers mean.")


class PhraseShown(BaseModel):
    """A part of a sentence; `named`: a word, patch or atom of the input, or a method."""

    text: str
    named: bool


class ClassShare(BaseModel):
    name: str
    logit: float
    probability: float


class TokenAnswer(BaseModel):
    """A word or token. `word` is the number of the word it belongs to, to be masked by; None for special tokens."""

    text: str
    gap: bool
    word: int | None


class LedgerEntry(BaseModel):
    name: str
    amount: float


class Folded(BaseModel):
    """Lines of the ledger that belong to one layer."""

    name: str
    amount: float
    lines: list[LedgerEntry]


class LedgerShown(BaseModel):
    score: float
    inputs: float
    biases: list[Folded]
    constants: list[Folded]
    cut_off: list[Folded] = Field(description="What depends on the input, but was cut off by the model's own code.")
    held: list[Folded] = Field(description="Parameters that are weighed by what the rules hold constant.")
    readout: float
    unaccounted: float
    closed: bool
    error: float
    verdict: str
    sum: str = Field(description="The lines as a sum, rounded such that it adds up: words 4.31 + biases -1.18 = 3.13.")


class MethodRow(BaseModel):
    """What one method says: a number for every cell; `scale` is the one that gets full colour."""

    method: str
    relevance: list[float]
    scale: float
    ledger: LedgerShown


class Refused(BaseModel):
    method: str
    reason: str


class ExplanationAnswer(BaseModel):
    """What every explanation answers: one score, and what each method says of it."""

    target: str
    output: str
    score: float
    prediction: str | None
    verdict: list[PhraseShown] = Field(description="What was predicted and why, in one sentence.")
    classes: list[ClassShare]
    rows: list[MethodRow]
    refused: list[Refused]
    model: str


class Claim(BaseModel):
    """What a method had given to what was masked."""

    method: str
    amount: float


class MaskedScores(BaseModel):
    """The prediction before and after masking, and the score that the target has in each."""

    target: str
    output: str
    before: list[ClassShare]
    after: list[ClassShare]
    score_before: float
    score_after: float


class MaskAnswer(MaskedScores):
    """A score before and after some inputs were masked, beside what each method had given to them."""

    claims: list[Claim]
    nearest: list[str] = Field(description="The methods whose claim came nearest to the change.")
    said: list[PhraseShown]
    text: str | None = Field(default=None, description="The text with its words masked.")


class JobShown(BaseModel):
    """A request's place in the line: 0 is running, 1 comes next. None: it was answered, or is not known."""

    id: str
    place: int | None


class Problem(BaseModel):
    """Why there is no answer. `error` is a word for programs, `message` a sentence for people."""

    error: str
    message: str
