"""Two texts with a vector each: relevance along directions, and the products of two such relevances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..engine.assemble import coarser
from ..engine.kind import choose_method
from ..engine.model import DTYPES
from ..errors import InputError, NotApplicable, in_range
from ..inputs.batch import Batch, Item
from ..inputs.pooling import DirectionReader, VectorRecipe, states_of
from ..inputs.readouts import ScoreReading
from ..results.explanation import Explanation, Provenance
from ..results.ledger import Ledger, Lines
from ..results.similarity import ComparedText, Similarity
from .directions import bound_remainder, choose_directions
from .text_encoders import Encoder, TextEncoder

GROUPS = ("words", "biases", "constants", "cut off", "held")  # what a text's vector is made of
FIELDS = {"biases": "biases", "constants": "constants", "cut off": "cut_off", "held": "held"}


@dataclass(frozen=True)
class VectorComparer:
    """Compares texts, or a text and an image, by the product of their vectors."""

    encoders: tuple[Encoder, Encoder]

    @property
    def measure(self) -> str:
        return "cosine" if self.encoders[0].recipe.normalise else "dot product"

    def compare(self, a: Any, b: Any, rank: int | None) -> Similarity:
        if rank is not None and rank > 0 and runs_together(self.encoders):
            return self.compare_together(a, b, rank)
        sides = OpenText.of(self.encoders[0], a), OpenText.of(self.encoders[1], b)
        vectors, states = (sides[0].vector, sides[1].vector), (sides[0].states, sides[1].states)
        check_dimensions(len(vectors[0]), len(vectors[1]))
        directions = choose_all(vectors, states, rank)
        first, second = (side.explain(side.read_along(directions)) for side in sides)
        return join_sides(first, second, vectors[0] * vectors[1], self.measure, len(directions), len(vectors[0]))

    def compare_together(self, a: Any, b: Any, rank: int) -> Similarity:
        """Both texts in one batch: one forward pass, from which directions are chosen, and one way back for both."""
        encoder = self.encoders[0]
        assert isinstance(encoder, TextEncoder)
        batch = encoder.job.batch(encoder.encode([a, b]))
        chosen = SharedDirections(encoder.recipe, rank)
        found = explain_along(encoder, batch, [SharedReader(chosen, number) for number in range(rank)])
        first, second = (gather_side(encoder, batch.items[side], found[side::2]) for side in (0, 1))
        each = chosen.vectors[0] * chosen.vectors[1]
        return join_sides(first, second, each, self.measure, rank, len(each))

    def score(self, query: Any, passages: Sequence[Any]) -> Tensor:
        """[passages]: the similarity of each to the query."""
        vector, vectors = self.encoders[0].embed([query])[0], self.encoders[1].embed(passages)
        check_dimensions(len(vector), vectors.shape[1])
        return vectors @ vector


def check_dimensions(mine: int, theirs: int) -> None:
    if mine != theirs:
        raise InputError(
            f"the vectors of the two texts have {mine} and {theirs} dimensions, so they have no product: dimensions= "
            "cuts both to the first ones."
        )


def choose_all(vectors: tuple[Tensor, Tensor], states: tuple[Tensor | None, Tensor | None], rank: int | None) -> Tensor:
    """All dimensions, or as many directions as `rank` says."""
    width = len(vectors[0])
    rank = width if rank is None else in_range("rank", rank, 1, width)
    return torch.eye(width) if rank == width else choose_directions(vectors, states, rank)


@dataclass(frozen=True)
class OpenText:
    """A text, or an image, that is explained along directions, with its vector and what this was made of."""

    encoder: Encoder
    batch: Batch
    vector: Tensor
    states: Tensor | None

    @classmethod
    def of(cls, encoder: Encoder, text: Any) -> OpenText:
        batch = encoder.make_batch(text)
        return cls(encoder, batch, *encoder.read_states(batch))

    def read_along(self, directions: Tensor) -> list[DirectionReader]:
        return [DirectionReader(self.encoder.recipe, direction) for direction in directions]

    def explain(self, readers: Sequence[DirectionReader]) -> ExplainedText:
        """Its relevance along every direction: one forward pass, and as few backward passes as memory allows."""
        found = explain_along(self.encoder, self.batch, readers)
        return gather_side(self.encoder, self.batch.items[0], found, self.batch)


def explain_along(encoder: Encoder, batch: Batch, readers: Sequence[Any]) -> list[Explanation]:
    """For each reader, the explanation of each sample of the batch."""
    method = choose_method(encoder.options.method, encoder.session.model, plain=False)
    if method.group != "rules":
        raise NotApplicable(
            f"{method.name!r} has no relevance whose products add up: take a method of rules, such as 'lrp' or "
            "'lrp-gamma'."
        )
    return list(encoder.session.explain_scores(batch, readers, method, encoder.options))


def gather_side(
    encoder: Encoder, item: Item, found: Sequence[Explanation], batch: Batch | None = None
) -> ExplainedText:
    """One sample's relevance along all directions."""
    parts = torch.tensor([[read_group(one, group) for group in GROUPS[1:]] for one in found], dtype=torch.float64)
    return ExplainedText(
        encoder.describe(item, batch),
        torch.stack([one.relevance.double().cpu() for one in found]),
        parts,
        found[0].ledger.dtype,
        found[0].method,
        found[0].provenance,
    )


def runs_together(encoders: tuple[Encoder, Encoder]) -> bool:
    """Whether two texts can stand in one batch: one model for both, which knows padding."""
    first = encoders[0]
    if first is not encoders[1] or not isinstance(first, TextEncoder):
        return False
    return first.job.mixes and first.job.pads and not first.job.place.lookups


@dataclass
class SharedDirections:
    """Directions for both texts of a batch, chosen when the model's output is first read."""

    recipe: VectorRecipe
    rank: int
    vectors: Tensor = field(default_factory=lambda: torch.zeros(0))
    chosen: Tensor | None = None

    def choose(self, out: Any, batch: Batch, vectors: Tensor) -> Tensor:
        """[rank, dimensions]."""
        if self.chosen is None:
            self.vectors = vectors.detach().double().cpu()
            states = read_states(out, batch, self.vectors.shape[1])
            self.chosen = choose_all((self.vectors[0], self.vectors[1]), states, self.rank)
        return self.chosen


@dataclass(frozen=True)
class SharedReader:
    """Reads how far the vectors of a batch reach along one of the shared directions."""

    shared: SharedDirections
    number: int

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        vectors = self.shared.recipe(out, batch)
        direction = self.shared.choose(out, batch, vectors)[self.number]
        score = (vectors * direction.to(vectors)).sum(-1)
        return ScoreReading(score, ["direction"] * batch.samples, [None] * batch.samples)

    def with_fixed_target(self, out: Any, batch: Batch) -> SharedReader:
        """The direction is fixed already."""
        return self


def read_states(out: Any, batch: Batch, width: int) -> tuple[Tensor | None, Tensor | None]:
    """[tokens, width] of both texts: the states of the last layer, where the output has them."""
    states = states_of(out)
    if states is None or batch.real is None or states.shape[1] != batch.real.shape[1]:
        return None, None
    first, second = (states[side].detach()[batch.real[side]].double().cpu()[:, :width] for side in (0, 1))
    return first, second


def read_group(one: Explanation, group: str) -> float:
    """What a group of the ledger has. What a pooling adds that is not linear in the outputs is a constant."""
    amount: float = getattr(one.ledger, FIELDS[group]).total
    added = abs(one.ledger.readout) > one.ledger.tolerance * one.ledger.size  # less is rounding
    return amount + one.ledger.readout if group == "constants" and added else amount


@dataclass(frozen=True)
class ExplainedText:
    """A text's vector along every direction: `relevance` [directions, tokens], `rest` [directions, other groups]."""

    text: ComparedText
    relevance: Tensor
    rest: Tensor
    dtype: str
    method: str
    provenance: Provenance

    @property
    def groups(self) -> Tensor:
        """[directions, groups]."""
        return torch.cat([self.relevance.sum(1, keepdim=True), self.rest], 1)


def join_sides(
    first: ExplainedText, second: ExplainedText, each: Tensor, measure: str, rank: int, dimensions: int
) -> Similarity:
    """Products of the two explanations, summed over directions. `each` are the products that sum to the score."""
    matrix = first.relevance.T @ second.relevance
    return Similarity(
        a=first.text,
        b=second.text,
        matrix=matrix,
        row_rest=first.relevance.T @ second.rest.sum(1),
        column_rest=second.relevance.T @ first.rest.sum(1),
        ledger=make_pair_ledger(first, second, matrix, each),
        measure=measure,
        rank=rank,
        dimensions=dimensions,
        method=first.method,
        provenance=first.provenance,
        remainder=bound_remainder(first.relevance, second.relevance, rank, dimensions),
    )


def make_pair_ledger(first: ExplainedText, second: ExplainedText, matrix: Tensor, each: Tensor) -> Ledger:
    """The similarity, and what words, biases and constants of one text make with those of the other."""
    products = first.groups.T @ second.groups
    lines: dict[str, dict[str, float]] = {group: {} for group in GROUPS}
    for i, mine in enumerate(GROUPS):
        for j, theirs in enumerate(GROUPS):
            if (amount := float(products[i, j])) != 0.0:
                lines[GROUPS[max(i, j)]][f"{mine} of a × {theirs} of b"] = amount
    return Ledger(
        score=float(each.sum()),
        inputs=float(matrix.sum()),
        **{field: Lines(lines[group]) for group, field in FIELDS.items()},  # type: ignore[arg-type]
        dtype=coarser(first.dtype, DTYPES[second.dtype]),
        magnitude=float(each.abs().sum()),
        spread=float(matrix.abs().sum()),
    )
