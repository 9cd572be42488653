"""`explain_similarity`: which words of two texts made their vectors similar."""

from __future__ import annotations

from typing import Any, TypedDict

import torch
from typing_extensions import Unpack

from ..errors import check_integer
from ..inputs.pooling import Pooling
from ..inputs.restoring import restores
from ..inputs.walking import walk_once
from ..methods.registry import Method
from ..results.similarity import Similarity
from .comparers import check_sample, open_comparer, read_vector_options


class SimilarityOptions(TypedDict, total=False):
    """The options of `explain_similarity` and `rank`, for the types of functions that take them."""

    tokenizer: Any
    processor: Any
    pooling: Pooling | None
    normalise: bool
    dimensions: int | None
    prompts: str | tuple[str | None, str | None] | None
    target: Any
    method: str | Method | None
    truncate: bool
    inputs: Any
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    seed: int
    batch_size: int


@restores
def explain_similarity(
    model: Any, a: Any, b: Any, *, rank: int | None = None, **options: Unpack[SimilarityOptions]
) -> Similarity:
    """How much each pair of tokens, one of each text, contributed to the similarity of two texts.

    Similarity is the sum of u_k v_k over the dimensions of the two vectors. Each u_k and each v_k is explained by the
    rules, and their relevances are multiplied: matrix[i, j] is the sum of R_ki R_kj (BiLRP, Eberle et al. 2020).

    Args:
        model: gives a vector per text. A transformers encoder (with `tokenizer`), a `SentenceTransformer`, a directory
            or hub name, a module or a method of one that gives vectors, or two of these as a pair: a model for each
            text. A model with a tower for images (CLIP, SigLIP; with `processor`) takes an image in place of a text. A
            `CrossEncoder`, or a classifier of pairs, reads both texts at once: `target` is the class. A function of
            texts that gives vectors is asked again without each word. docs/similarity.md has what each of them gives.
        a: the first text, or image.
        b: the second.
        rank: takes that many directions in place of all dimensions, which costs as many backward passes per text. The
            sum, and from rank 2 on what each token does in all, stay exact; single pairs are then approximate. At
            rank 2 their order comes nearest to what is lost without both words (docs/similarity.md).
        options: by name. `pooling`: "mean", "cls", "max", "last", "mean-sqrt", "weighted-mean", several of them as a
            tuple, "pooler", or a function of the output and of what is no padding; None is the model's own, or else the
            mean. "maxsim" keeps a vector per token, and each token of a is compared with its nearest of b (late
            interaction). `normalise`: True compares by the cosine, False by the dot product. `dimensions`: so many
            first ones of the vectors are compared (Matryoshka). `prompts` stand in front of the texts: a text, a name
            among the prompts of a `SentenceTransformer`, or a pair of these. `method`: a method of rules; those that
            close the ledger make the matrix and its lines sum to the similarity. `truncate` cuts texts that are too
            long. `inputs`: the module whose output is explained. `tokenizer`, `processor`, `target`, `device`, `dtype`,
            `seed` and `batch_size` are those of `explain`.

    Returns:
        A `Similarity`.

    Raises:
        UsageError: an option is wrong, or does not fit the kind of model.
        InputError: a text is empty or too long.
        ModelError: as for `explain`.

    Example:
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> s = hw.explain_similarity(model.bert, "a fine film", "a wonderful movie", tokenizer=tokenizer, rank=2)
        >>> s.measure, s.ledger.closed
        ('cosine', True)
    """
    check_sample("the first text", a)
    check_sample("the second text", b)
    rank = None if rank is None else check_integer("rank", rank, 1)
    with walk_once():
        return open_comparer(model, read_vector_options(options), (a, b)).compare(a, b, rank)
