"""`explain_similarity`: which words of two texts made their vectors similar."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypedDict

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..engine.assemble import coarser
from ..engine.kind import choose_method
from ..engine.model import DTYPES
from ..errors import InputError, NotApplicable, UnknownName, in_range
from ..inputs.batch import Item
from ..inputs.pooling import DirectionReader, Pooling
from ..inputs.restoring import restores
from ..inputs.walking import walk_once
from ..methods.registry import Method
from ..results.explanation import Explanation, Provenance
from ..results.ledger import Ledger, Lines
from ..results.similarity import ComparedText, Similarity
from .directions import choose_directions
from .text_encoders import TextEncoder, VectorOptions, open_encoders

GROUPS = ("words", "biases", "constants", "cut off", "held")  # what a text's vector is made of
FIELDS = {"biases": "biases", "constants": "constants", "cut off": "cut_off", "held": "held"}


class SimilarityOptions(TypedDict, total=False):
    """The options of `explain_similarity` and `rank`, for the types of functions that take them."""

    tokenizer: Any
    pooling: Pooling | None
    normalise: bool
    dimensions: int | None
    prompts: str | tuple[str | None, str | None] | None
    method: str | Method | None
    truncate: bool
    inputs: Any
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    seed: int
    batch_size: int


@restores
def explain_similarity(
    model: Any, a: str, b: str, *, rank: int | None = None, **options: Unpack[SimilarityOptions]
) -> Similarity:
    """How much each pair of tokens, one of each text, contributed to the similarity of two texts.

    `model` gives a vector per text. It is a transformers encoder (with `tokenizer`), a `SentenceTransformer`, a
    directory or hub name, a module or a method of one that gives vectors, or two of these as a pair: a model for each
    text. `pooling`: "mean", "cls", "max", "last", "mean-sqrt", "weighted-mean", several of them as a tuple, "pooler",
    or a function of the output and of what is no padding; None is the model's own, or else the mean. `normalise`:
    True compares by the cosine, False by the dot product. `dimensions`: so many first ones of the vectors are compared
    (Matryoshka). `prompts` stand in front of the texts: a text, a name among the prompts of a `SentenceTransformer`,
    or a pair of these. `method`: a method of rules; those that close the ledger make the matrix and its lines sum to
    the similarity. `truncate` cuts texts that are too long. `inputs`: the module whose output is explained.

    Similarity is the sum of u_k v_k over the dimensions of the two vectors. Each u_k and each v_k is explained by the
    rules, and their relevances are multiplied: matrix[i, j] is the sum of R_ki R_kj (BiLRP, Eberle et al. 2020). `rank`
    takes that many directions in place of all dimensions, which costs as many backward passes per text. The sum, and
    from rank 2 on what each token does in all, stay exact; single pairs are then approximate. docs/similarity.md.

    >>> s = hw.explain_similarity("sentence-transformers/all-MiniLM-L6-v2", a, b)      # doctest: +SKIP
    >>> s.words().strongest(3)                                                          # doctest: +SKIP
    """
    with walk_once():
        encoders = open_encoders(model, read_vector_options(options))
        return compare_texts(encoders, (a, b), rank)


def read_vector_options(given: Any) -> VectorOptions:
    """Options by name; an unknown name is answered with the nearest one."""
    names = [field.name for field in fields(VectorOptions)]
    for name in given:
        if name not in names:
            raise UnknownName("option", name, names)
    return VectorOptions(**given)


def compare_texts(encoders: tuple[TextEncoder, TextEncoder], texts: tuple[str, str], rank: int | None) -> Similarity:
    """The similarity of two texts by encoders that are open."""
    sides = [OpenText.of(encoder, text) for encoder, text in zip(encoders, texts, strict=True)]
    vectors = (sides[0].vector, sides[1].vector)
    if vectors[0].shape != vectors[1].shape:
        raise InputError(
            f"the vectors of the two texts have {len(vectors[0])} and {len(vectors[1])} dimensions, so they have no "
            "product: dimensions= cuts both to the first ones."
        )
    width = len(vectors[0])
    rank = width if rank is None else in_range("rank", rank, 1, width)
    states = (sides[0].states, sides[1].states)
    directions = torch.eye(width) if rank == width else choose_directions(vectors, states, rank)
    first, second = (side.explain(directions) for side in sides)
    return join_sides(first, second, encoders[0].recipe.normalise)


@dataclass(frozen=True)
class OpenText:
    """A text that is explained along directions, with its vector and the states that this was made of."""

    encoder: TextEncoder
    batch: Any
    vector: Tensor
    states: Tensor | None

    @classmethod
    def of(cls, encoder: TextEncoder, text: str) -> OpenText:
        batch = encoder.job.batch(encoder.encode([text]))
        return cls(encoder, batch, *encoder.read_states(batch))

    def explain(self, directions: Tensor) -> ExplainedText:
        """Its relevance along every direction: one forward pass, and as few backward passes as memory allows."""
        session, options = self.encoder.session, self.encoder.options
        method = choose_method(options.method, session.model)
        if method.group != "rules":
            raise NotApplicable(
                f"{method.name!r} has no relevance whose products add up: take a method of rules, such as 'lrp' or "
                "'lrp-gamma'."
            )
        readers = [DirectionReader(self.encoder.recipe, direction) for direction in directions]
        found = list(session.explain_scores(self.batch, readers, method, options))
        parts = torch.tensor([[read_group(one, group) for group in GROUPS[1:]] for one in found], dtype=torch.float64)
        return ExplainedText(
            describe_text(self.batch.items[0], len(self.encoder.prompt)),
            self.vector,
            torch.stack([one.relevance.double().cpu() for one in found]),
            parts,
            found[0].ledger.dtype,
            method.name,
            found[0].provenance,
        )


def read_group(one: Explanation, group: str) -> float:
    """What a group of the ledger has. What a pooling adds that is not linear in the outputs is a constant."""
    amount: float = getattr(one.ledger, FIELDS[group]).total
    added = abs(one.ledger.readout) > one.ledger.tolerance * one.ledger.size  # less is rounding
    return amount + one.ledger.readout if group == "constants" and added else amount


def describe_text(item: Item, prompt: int) -> ComparedText:
    assert isinstance(item.text, str)
    return ComparedText(item.text, item.tokens, item.special, item.offsets, item.word_ids, prompt)


@dataclass(frozen=True)
class ExplainedText:
    """A text's vector along every direction: `relevance` [directions, tokens], `rest` [directions, other groups]."""

    text: ComparedText
    vector: Tensor
    relevance: Tensor
    rest: Tensor
    dtype: str
    method: str
    provenance: Provenance

    @property
    def groups(self) -> Tensor:
        """[directions, groups]."""
        return torch.cat([self.relevance.sum(1, keepdim=True), self.rest], 1)


def join_sides(first: ExplainedText, second: ExplainedText, normalise: bool) -> Similarity:
    """Products of the two explanations, summed over directions."""
    matrix = first.relevance.T @ second.relevance
    return Similarity(
        a=first.text,
        b=second.text,
        matrix=matrix,
        row_rest=first.relevance.T @ second.rest.sum(1),
        column_rest=second.relevance.T @ first.rest.sum(1),
        ledger=make_pair_ledger(first, second, matrix),
        measure="cosine" if normalise else "dot product",
        rank=len(first.relevance),
        dimensions=len(first.vector),
        method=first.method,
        provenance=first.provenance,
    )


def make_pair_ledger(first: ExplainedText, second: ExplainedText, matrix: Tensor) -> Ledger:
    """The similarity, and what words, biases and constants of one text make with those of the other."""
    products = first.groups.T @ second.groups
    lines: dict[str, dict[str, float]] = {group: {} for group in GROUPS}
    for i, mine in enumerate(GROUPS):
        for j, theirs in enumerate(GROUPS):
            if (amount := float(products[i, j])) != 0.0:
                lines[GROUPS[max(i, j)]][f"{mine} of a × {theirs} of b"] = amount
    each = first.vector * second.vector
    return Ledger(
        score=float(each.sum()),
        inputs=float(matrix.sum()),
        **{field: Lines(lines[group]) for group, field in FIELDS.items()},  # type: ignore[arg-type]
        dtype=coarser(first.dtype, DTYPES[second.dtype]),
        magnitude=float(each.abs().sum()),
        spread=float(matrix.abs().sum()),
    )
