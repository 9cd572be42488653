"""What the API takes and gives: the OpenAPI document is made of these.

Bounds that need nothing but the field itself stand here, so that a reader of the document sees them too.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TEXT, PROMPT, SMILES, NAME = 20_000, 4_000, 400, 200
METHODS, MASKED, IMAGE, DOCUMENTS = 8, 512, 11_000_000, 200
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


Columns = Annotated[int | None, Field(ge=1, le=8, description="Panels side by side in the drawing.")]


class ImageAsked(ExplanationAsked):
    """An image, as base64 of a PNG, JPEG, WebP, GIF or BMP file, or as a data URL of one."""

    image: str = Field(min_length=1, max_length=IMAGE, description="Base64, or a data URL.")
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


class DocumentAsked(Strict):
    """A document that is put into the prompt, under its name."""

    name: str = Field(default="", max_length=NAME, description="Without one it is numbered.")
    text: str = Field(max_length=TEXT, description="The document itself.")


class DocumentFileAsked(Strict):
    """A file to be read as a document, as base64. What its name ends in says what it is: text, Markdown, HTML, PDF."""

    name: Annotated[Name, Field(description="The file's name, with its ending.")]
    content: str = Field(max_length=FILE, description="The file, as base64.")


class DocumentRead(BaseModel):
    """The text of a file, as it is put into a prompt."""

    name: str
    text: str


class SourceAsked(Strict):
    """A source: a document, and one of its sentences or all of it. Both count from 0."""

    document: int = Field(ge=0, le=DOCUMENTS - 1)
    sentence: int | None = Field(default=None, ge=0, le=TEXT - 1)


class AnswerAsked(Strict):
    """A question about documents. The model answers it, or `answer` is explained as if it had."""

    question: str = Field(min_length=1, max_length=PROMPT, description="What the model is asked.")
    documents: list[DocumentAsked] = Field(default=[], max_length=DOCUMENTS, description="In the prompt's order.")
    answer: str | None = Field(
        default=None, min_length=1, max_length=PROMPT, description="Explain this in place of its own."
    )
    new_tokens: int = Field(default=60, ge=1, le=120, description="How many it writes at most.")
    method: Name | None = Field(default=None, description="By default the one of the model's kind.")
    score: ScoreName = "advantage"
    aside: bool = Field(default=True, description="Move the attention sink, the first token, to a line of the ledger.")
    model: ModelChosen = None
    left_out: list[SourceAsked] = Field(
        default=[], max_length=MASKED, description="Sources without which the same answer is read again."
    )


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


class TextAnswer(BaseModel):
    """An explanation of a text by several methods, over the same cells."""

    target: str
    output: str
    score: float
    prediction: str | None
    verdict: list[PhraseShown] = Field(description="What was predicted and why, in one sentence.")
    classes: list[ClassShare]
    cells: list[TokenAnswer]
    rows: list[MethodRow]
    refused: list[Refused]
    windows: int
    model: str


class PredictAnswer(BaseModel):
    """The prediction before and after masking, and the score that the target has in each."""

    target: str
    output: str
    before: list[ClassShare]
    after: list[ClassShare]
    score_before: float
    score_after: float
    text: str


class Claim(BaseModel):
    """What a method had given to what was masked."""

    method: str
    amount: float


class MaskAnswer(BaseModel):
    """A score before and after some inputs were masked, beside what each method had given to them."""

    target: str
    output: str
    before: list[ClassShare]
    after: list[ClassShare]
    score_before: float
    score_after: float
    claims: list[Claim]
    nearest: list[str] = Field(description="The methods whose claim came nearest to the change.")
    said: list[PhraseShown]
    text: str | None = Field(default=None, description="The text with its words masked.")


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


class PictureAnswer(BaseModel):
    """A drawing with one panel a method, and the numbers behind it."""

    target: str
    output: str
    score: float
    prediction: str | None
    verdict: list[PhraseShown] = Field(description="What was predicted and why, in one sentence.")
    classes: list[ClassShare]
    svg: str
    items: list[str]
    rows: list[MethodRow]
    refused: list[Refused]
    model: str


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


class DocumentShown(BaseModel):
    name: str
    sentences: list[str]


class AnswerSentence(BaseModel):
    """A sentence of the answer: what every sentence of every document gave to it, and whose words gave what."""

    text: str
    score: float
    log_probability: float
    sources: list[list[float]] = Field(description="Relevance by document, by sentence of it.")
    roles: list[LedgerEntry]
    ledger: LedgerShown


class WholeAnswer(BaseModel):
    text: str
    documents: list[DocumentShown]
    sentences: list[AnswerSentence]
    method: str
    score: str
    model: str


class CitationShown(BaseModel):
    """A source that carries a sentence; `change` says in words what happens without it."""

    document: int
    sentence: int
    name: str
    text: str
    share: float
    drop: float
    change: str
    sure: float | None


class SentenceSources(BaseModel):
    verdict: list[PhraseShown] = Field(description="What the sentence rests on, in plain words.")
    citations: list[CitationShown]


class DocumentLoss(BaseModel):
    name: str
    change: str


class SourcesAnswer(BaseModel):
    """What every sentence rests on, after its sources were left out one by one."""

    sentences: list[SentenceSources]
    without: list[DocumentLoss] = Field(
        description="The whole answer without each document, of many those that matter most."
    )


class WithoutAnswer(BaseModel):
    """The same answer, read again without some sources: log-probabilities, and how they moved in words."""

    name: str
    before: float
    after: float
    change: str
    sentences: list[str] = Field(description="How each sentence moved.")


class JobShown(BaseModel):
    """A request's place in the line: 0 is running, 1 comes next. None: it was answered, or is not known."""

    id: str
    place: int | None


class Problem(BaseModel):
    """Why there is no answer. `error` is a word for programs, `message` a sentence for people."""

    error: str
    message: str
