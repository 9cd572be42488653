"""`rank`: passages in the order of their similarity to a query, each explained when that is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..errors import EmptyInput, InputError
from ..inputs.restoring import restores
from ..inputs.walking import walk_once
from ..results.ranking import Ranking
from ..results.similarity import Similarity
from .similarity import SimilarityOptions, compare_texts, read_vector_options
from .text_encoders import TextEncoder, open_encoders

CHUNK = 1024  # passages that are tokenised at once; batches of like length are made of them


@restores
def rank(
    model: Any,
    query: str,
    passages: Iterable[str],
    *,
    directions: int | None = None,
    **options: Unpack[SimilarityOptions],
) -> Ranking:
    """Passages by their similarity to a query, and why one stands above another.

    The model, and the options by name, are those of `explain_similarity`; `prompts` is a pair, the query's and the
    passages'. All passages are embedded, in batches of `batch_size`. None is explained before it is asked for:
    `r.explain(0)` is a `Similarity`, `r.words(0)` has the words of the first passage, `r.why(0, 1)` is the difference
    of two similarities, which sums. `directions` is the rank of the explanations.

    >>> r = hw.rank(model, "Who wrote Emma?", passages, tokenizer=tokenizer)      # doctest: +SKIP
    >>> r.why(0, 1).query_words()                                                 # doctest: +SKIP
    """
    texts = tuple(passages) if not isinstance(passages, str) else ()
    if not texts:
        raise EmptyInput("there are no passages to rank: pass a list of texts.")
    with walk_once():
        encoders = open_encoders(model, read_vector_options(options))
        vector, vectors = encoders[0].embed([query])[0], embed_passages(encoders[1], texts)
    if len(vector) != vectors.shape[1]:
        raise InputError(f"the query has {len(vector)} dimensions and the passages {vectors.shape[1]}.")

    @restores
    def explain_passage(number: int) -> Similarity:
        with walk_once():
            return compare_texts(encoders, (query, texts[number]), directions)

    measure = "cosine" if encoders[0].recipe.normalise else "dot product"
    return Ranking(query, texts, tuple((vectors @ vector).tolist()), measure, explain_passage)


def embed_passages(encoder: TextEncoder, texts: tuple[str, ...]) -> Tensor:
    """[texts, dimensions], chunk by chunk. One that cannot be embedded is named by its number among all."""
    found = []
    for start in range(0, len(texts), CHUNK):
        try:
            found.append(encoder.embed(texts[start : start + CHUNK]))
        except InputError as error:
            if start == 0:
                raise
            raise InputError(f"among the passages from number {start} on: {error}") from error
    return torch.cat(found)
