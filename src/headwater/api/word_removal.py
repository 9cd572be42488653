"""Any function that gives vectors: what each word brings to its text's vector, by leaving it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import EmptyInput, NotApplicable, TargetError, UsageError
from ..inputs.pooling import divide_by_length
from ..inputs.protocol import sample_name
from ..plurals import say_count
from ..results.explanation import Provenance
from ..results.similarity import ComparedText, Similarity
from ..version import __version__
from .text_encoders import VectorOptions
from .text_pairs import GROUPS, ExplainedText, check_dimensions, join_sides

WORD = re.compile(r"\w+|[^\w\s]")
METHOD = "leave-one-out"


@dataclass(frozen=True)
class RemovalComparer:
    """Compares texts by a function from a list of texts to a vector for each; it may compute them in any way.

    With u the vector of a text and u_i that of the text without word i, the word brings u - u_i. What these do not sum
    to is a line of the ledger ("constants"). The product of two such sums is again a sum of products, so that matrix
    and lines sum to the similarity. It takes as many vectors as the texts have words.
    """

    function: Callable[[list[str]], Any]
    options: VectorOptions

    @classmethod
    def of(cls, function: Callable[[list[str]], Any], options: VectorOptions) -> RemovalComparer:
        if options.method not in (None, METHOD):
            raise NotApplicable(
                f"a function of texts shows no operations to method={options.method!r}: it can be asked again without "
                "each word ('leave-one-out'). Pass the model itself for a method of rules."
            )
        if options.pooling is not None or options.tokenizer is not None:
            raise UsageError(
                "a function of texts gives its vectors as they are, so pooling= and tokenizer= have no place beside "
                "it. Where it takes what a tokenizer gives, pass a method of the model, or an nn.Module around it."
            )
        for name in ("truncate", "inputs", "processor", "device", "dtype"):
            if getattr(options, name):
                raise UsageError(f"a function of texts is asked for its vectors alone: leave out {name}=.")
        return cls(function, options)

    @property
    def measure(self) -> str:
        return "cosine" if self.options.normalise else "dot product"

    def compare(self, a: Any, b: Any, rank: int | None) -> Similarity:
        if rank is not None:
            raise NotApplicable("a function of texts is asked once for every word, whatever the rank: leave out rank=.")
        first, second = (self.explain(text, self.options.for_side(side)) for side, text in enumerate((a, b)))
        check_dimensions(len(first.relevance), len(second.relevance))
        each = first.groups.sum(1) * second.groups.sum(1)
        return join_sides(first, second, each, self.measure, len(each), len(each))

    def score(self, query: Any, passages: Sequence[Any]) -> Tensor:
        """[passages]: the similarity of each to the query."""
        sides = self.options.for_side(0), self.options.for_side(1)
        check_texts([query])
        check_texts(passages)
        mine = self.finish(self.embed([write_with_prompt(query, sides[0])]))[0]
        theirs = self.finish(self.embed([write_with_prompt(one, sides[1]) for one in passages]))
        check_dimensions(len(mine), theirs.shape[1])
        return theirs @ mine

    def explain(self, text: str, options: VectorOptions) -> ExplainedText:
        """What each word, and all else, brings to every dimension."""
        check_texts([text])
        whole = write_with_prompt(text, options)
        spans = [(found.start(), found.end()) for found in WORD.finditer(whole)]
        others = [" ".join((whole[:start] + whole[end:]).split()) for start, end in spans]
        vectors = self.embed([whole, *(one for one in others if one)])
        length = vectors[0].norm().clamp_min(1e-12) if self.options.normalise else 1.0
        alone = len(others) == 1 and not others[0]  # the only word brings all
        brought = (vectors[:1] if alone else vectors[:1] - vectors[1:]) / length
        rest = torch.zeros(vectors.shape[1], len(GROUPS) - 1, dtype=torch.float64)
        rest[:, GROUPS.index("constants") - 1] = vectors[0] / length - brought.sum(0)
        words = tuple(whole[start:end] for start, end in spans)
        described = ComparedText(
            whole,
            words,
            (False,) * len(words),
            tuple(spans),
            tuple(range(len(words))),
            len(whole) - len(text),
        )
        return ExplainedText(described, brought.T, rest, "float64", METHOD, self.describe())

    def finish(self, vectors: Tensor) -> Tensor:
        return divide_by_length(vectors) if self.options.normalise else vectors

    def embed(self, texts: list[str]) -> Tensor:
        """[texts, dimensions], as many texts at a time as `batch_size` says."""
        size = self.options.batch_size
        parts = [
            read_vectors(self.function(texts[at : at + size]), len(texts[at : at + size]))
            for at in range(0, len(texts), size)
        ]
        if len({part.shape[1] for part in parts}) > 1:
            raise TargetError("the function gives vectors of different lengths for different texts.")
        vectors, asked = torch.cat(parts), self.options.dimensions
        if asked is not None and asked > vectors.shape[1]:
            raise UsageError(
                f"dimensions={asked}: the function's vectors have {vectors.shape[1]}, of which the first can be taken."
            )
        return vectors[:, :asked]

    def describe(self) -> Provenance:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return Provenance(__version__, torch.__version__, None, str(name), "cpu", "float64", self.options.seed)


def write_with_prompt(text: str, options: VectorOptions) -> str:
    return f"{options.prompts or ''}{text}"


def check_texts(texts: Sequence[Any]) -> None:
    """Refuses what is no text, or has no words, as a tokenizer would."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"{sample_name('text', number, len(texts))} must be a string, not {text!r:.60}.")
        if not WORD.search(text):
            raise EmptyInput(f"{sample_name('text', number, len(texts))} is empty: there is nothing to explain.")


def read_vectors(found: Any, count: int) -> Tensor:
    """[texts, dimensions] of what a function gave: a tensor, an array, or lists of numbers."""
    try:
        vectors = (
            found.detach().cpu().double() if isinstance(found, Tensor) else torch.as_tensor(np.asarray(found, float))
        )
    except (TypeError, ValueError) as error:
        raise TargetError(f"the function gives no vector per text, but {type(found).__name__}: {error}") from error
    if vectors.dim() != 2 or len(vectors) != count:
        raise TargetError(
            f"the function gives {tuple(vectors.shape)} for {say_count(count, 'text')}; it gets a list of texts, "
            "and must give [texts, dimensions]."
        )
    if not bool(vectors.isfinite().all()):
        raise TargetError("the function gives vectors with numbers that are not finite.")
    return vectors
