"""`rank`: passages in the order of their similarity to a query, each explained when that is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..errors import EmptyInput, InputError, NotFinite, check_integer
from ..inputs.restoring import restores
from ..inputs.walking import walk_once
from ..results.ranking import Ranking
from ..results.similarity import Similarity
from .comparers import Comparer, check_sample, open_comparer, read_vector_options
from .kept_scores import KeptScores
from .similarity import SimilarityOptions

CHUNK = 256  # passages that are tokenised at once; batches of like length are made of them


@restores
def rank(
    model: Any,
    query: Any,
    passages: Iterable[Any],
    *,
    directions: int | None = None,
    tell: Callable[[int], None] | None = None,
    keep: str | os.PathLike[str] | None = None,
    **options: Unpack[SimilarityOptions],
) -> Ranking:
    """Passages by their similarity to a query, and why one stands above another.

    All passages are embedded, in batches of `batch_size`. None is explained before it is asked for: `r.explain(0)` is a
    `Similarity`, `r.words(0)` has the words of the first passage, `r.why(0, 1)` is the difference of two similarities,
    which sums.

    Args:
        model: as for `explain_similarity`.
        query: a text, or an image where the model takes images.
        passages: any number of them.
        directions: the rank of the explanations, as `rank` of `explain_similarity`.
        tell: hears how many passages more have been compared.
        keep: a file for the scores; a call that was interrupted goes on where it stopped.
        options: those of `explain_similarity`, by name; `prompts` is a pair, the query's and the passages'. A
            classifier of several classes needs `target`: passages are in the order of one class.

    Returns:
        A `Ranking`, the most similar passage first.

    Raises:
        UsageError: there is no passage, or an option is wrong.
        InputError: a text is empty or too long.
        ModelError: as for `explain`.

    Example:
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> r = hw.rank(model.bert, "a fine film", ["dull and lifeless", "a fine movie"], tokenizer=tokenizer)
        >>> r.top(1)[0][0]
        'a fine movie'
    """
    texts = tuple(passages) if not isinstance(passages, str) else ()
    if not texts:
        raise EmptyInput("there are no passages to rank: pass a list of texts.")
    check_sample("the query", query)
    for number, text in enumerate(texts):
        check_sample(f"passage {number}", text)
    directions = None if directions is None else check_integer("directions", directions, 1)
    with walk_once():
        comparer = open_comparer(model, read_vector_options(options), (query, texts[0]))
        kept = None if keep is None else KeptScores.open(keep, comparer, query, texts)
        scores = score_passages(comparer, query, texts, tell, kept)

    @restores
    def explain_passage(number: int) -> Similarity:
        with walk_once():
            return comparer.compare(query, texts[number], directions)

    return Ranking(query, texts, tuple(scores.tolist()), comparer.measure, explain_passage)


def score_passages(
    comparer: Comparer,
    query: Any,
    texts: tuple[Any, ...],
    tell: Callable[[int], None] | None,
    kept: KeptScores | None = None,
) -> Tensor:
    """[texts], chunk by chunk. One that cannot be compared is named by its number among all."""
    found = []
    for start in range(0, len(texts), CHUNK):
        try:
            found.append(score_chunk(comparer, query, texts[start : start + CHUNK], kept))
        except InputError as error:
            if start == 0:
                raise
            raise InputError(f"among the passages from number {start} on: {error}") from error
        if tell is not None:
            tell(len(found[-1]))
    return torch.cat(found)


def score_chunk(comparer: Comparer, query: Any, texts: tuple[Any, ...], kept: KeptScores | None) -> Tensor:
    """Those that are kept are not computed."""
    known = None if kept is None else kept.find(texts)
    if known is not None:
        return known
    scores = comparer.score(query, texts)
    if not bool(scores.isfinite().all()):
        broken = texts[int(scores.isfinite().int().argmin())]
        raise NotFinite(f"the similarity of the query and {broken!r:.60} is not finite: it has no place in an order.")
    if kept is not None:
        kept.add(texts, scores)
    return scores
