"""What the API of a model's parts takes and gives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from .schemas import NAME, TEXT, ClassShare, ModelChosen, Name, OutputChosen, Strict, TargetChosen, TokenAnswer

NODES = 64  # parts that are replaced at once
Unit = Annotated[int, Field(ge=0, le=2**24, description="Counted from 0, in its module.")]
PartKind = Annotated[Literal["heads", "neurons"], Field(description="Kind of part.")]
ModuleName = Annotated[str, Field(max_length=NAME, description="The module, by its dotted name.")]


class InsideAsked(Strict):
    """A text, and the score whose relevance is followed into the model."""

    text: str = Field(min_length=1, max_length=TEXT, description="The model's input.")
    method: Name | None = Field(default=None, description="By default the one of the model's kind.")
    target: TargetChosen = None
    output: OutputChosen = None
    kind: Literal["text", "language"] = Field(
        default="text", description="A model that gives one prediction a text, or one that gives the next token."
    )
    model: ModelChosen = None


class NodeAsked(Strict):
    """A head or a neuron: its number in the attention or the layer of that module."""

    kind: PartKind
    module: ModuleName
    unit: Unit


class HeadAsked(InsideAsked):
    """One head whose attention is read."""

    module: ModuleName
    head: Unit


class PatchAsked(InsideAsked):
    """Parts that are replaced: by zeros, or by their own mean over the tokens of the text."""

    nodes: list[NodeAsked] = Field(min_length=1, max_length=NODES, description="Parts that are replaced together.")
    replaced_by: Literal["zeros", "mean"] = Field(default="zeros", description="What stands in their place.")


class ReportAsked(PatchAsked):
    """What is on the screen: also where nothing was replaced."""

    nodes: list[NodeAsked] = Field(default=[], max_length=NODES, description="Parts that are replaced together.")


class CircuitAsked(InsideAsked):
    """The parts that carry most of the score."""

    nodes: int = Field(default=30, ge=1, le=100, description="How many parts.")


class CutShown(BaseModel):
    """The ledger of a cut: nodes + what by-passes them + biases so far + readout = score."""

    name: str
    nodes: float
    by_passing: float
    sources: float
    readout: float
    unaccounted: float
    score: float
    closed: bool
    sum: str = Field(description="The lines as a sum, rounded such that it adds up.")


class HeadGroup(BaseModel):
    """The heads of one attention."""

    label: str
    module: str
    relevance: list[float]
    positions: list[list[float]] = Field(description="By head, by token it gives to; empty where that cannot be told.")
    cut: CutShown | None


class LayerGroup(BaseModel):
    """What one layer leaves: by token."""

    label: str
    module: str
    relevance: float
    positions: list[float]
    cut: CutShown | None


class NeuronShown(BaseModel):
    """A neuron; `token` is the one at which its relevance is largest."""

    name: str
    module: str
    unit: int
    relevance: float
    token: int | None
    at_token: float | None


class NeuronGroup(BaseModel):
    label: str
    module: str
    count: int
    cut: CutShown | None


class KindRefused(BaseModel):
    kind: str
    reason: str


class InsideAnswer(BaseModel):
    """Relevance of the model's parts for one text. What cannot be told says why in `refused`."""

    target: str
    output: str
    score: float
    prediction: str | None
    method: str
    model: str
    classes: list[ClassShare] = Field(description="With their probabilities; of a language model likely next tokens.")
    cells: list[TokenAnswer]
    heads: list[HeadGroup]
    layers: list[LayerGroup]
    neurons: list[NeuronShown] = Field(description="Those with most relevance.")
    neuron_groups: list[NeuronGroup]
    refused: list[KindRefused]


class HeadAnswer(BaseModel):
    """One head between words: [query][key]. `relevance` summed over keys is the head's relevance by position."""

    module: str
    head: int
    attention: list[list[float]]
    relevance: list[list[float]]


class PatchAnswer(BaseModel):
    """What really happened when the parts were replaced: the model was run both ways."""

    nodes: list[str]
    target: str
    output: str
    score: float
    patched: float
    probability: float | None
    patched_probability: float | None
    prediction: str | None
    patched_prediction: str | None


class CircuitNodeShown(BaseModel):
    """A part, a word or the score: edges into it + biases + what is left out = its relevance."""

    label: str
    kind: str
    relevance: float
    sources: float
    from_left_out: float
    to_left_out: float


class CircuitEdgeShown(BaseModel):
    """What the node number `start` gives to the node number `end`."""

    start: int
    end: int
    relevance: float


class CircuitAnswer(BaseModel):
    """The circuit as a drawing, and the numbers behind it. In the drawing a node has its number as `data-item`."""

    svg: str
    nodes: list[CircuitNodeShown]
    edges: list[CircuitEdgeShown]
    left_out: int = Field(description="Parts that are no nodes.")
    closed: bool


class InsideRun(BaseModel):
    """A stored run that has parts of the model in its columns."""

    id: str
    name: str
    model: str
    kinds: list[str]
    rows: int


class TokenShown(BaseModel):
    text: str
    rows: int
    total: float


class UnitShown(BaseModel):
    """A head or neuron over the rows of a run."""

    name: str
    module: str
    unit: int
    mean: float
    size: float
    tokens: list[TokenShown]


class UnitsAnswer(BaseModel):
    kind: str
    rows: int
    of: int = Field(description="Rows that the run has.")
    units: list[UnitShown]
