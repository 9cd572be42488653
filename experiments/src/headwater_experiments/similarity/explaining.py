"""Numbers for the words of two texts, and for their pairs, by any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import headwater as hw
from headwater.methods.registry import resolve_method

from .removing import MaskedPair, MaskedText

RANK = 16  # where a name has none: "lrp@2" is lrp at rank 2
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PairRelevance:
    """[words of a], [words of b], and [words of a, words of b]."""

    rows: Floats
    columns: Floats
    matrix: Floats


def explain_pair(pair: MaskedPair, method: str) -> PairRelevance:
    """A method of rules multiplies relevances; any other has a number per word, and for a pair the product of both."""
    if method == "leave-one-out":
        return leave_words_out(pair)
    name, _, rank = method.partition("@")
    if resolve_method(name).group == "rules":
        return explain_by_rules(pair, name, int(rank or RANK))
    rows, columns = (explain_side(mine, other, method) for mine, other in ((pair.a, pair.b), (pair.b, pair.a)))
    return PairRelevance(rows, columns, np.outer(rows, columns))


def explain_by_rules(pair: MaskedPair, method: str, rank: int) -> PairRelevance:
    a, b = pair.a, pair.b
    s = hw.explain_similarity(a.model, a.text, b.text, tokenizer=a.tokenizer, rank=rank, method=method, truncate=True)
    by_rows = np.stack([b.sum_words(row) for row in s.matrix])
    matrix = np.stack([a.sum_words(torch.from_numpy(column)) for column in by_rows.T], 1)
    return PairRelevance(a.sum_words(s.row_relevance), b.sum_words(s.column_relevance), matrix)


def explain_side(mine: MaskedText, other: MaskedText, method: str) -> Floats:
    """The other text's vector held fixed, similarity is a score like any other."""
    (theirs,) = other.without([frozenset()])
    with torch.no_grad():
        length = float(own_length(mine))

    def score(out: Any) -> Tensor:
        return out.last_hidden_state.mean(1) @ theirs.to(out.last_hidden_state) / length  # type: ignore[no-any-return]

    fields = {"input_ids": torch.tensor([mine.ids]), "attention_mask": torch.ones(1, len(mine.ids), dtype=torch.long)}
    (found,) = hw.explain(mine.model, fields, tokenizer=mine.tokenizer, method=method, score=score)
    return mine.sum_words(found.relevance)


def own_length(text: MaskedText) -> Tensor:
    """The length of the text's vector before it is normalised."""
    ids = torch.tensor([text.ids])
    states: Tensor = text.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    length: Tensor = states.mean(1).norm()
    return length


def leave_words_out(pair: MaskedPair) -> PairRelevance:
    """What the vectors lose without each word, and the products of these losses."""
    (u, *us), (v, *vs) = (
        text.without([frozenset(), *(frozenset([word]) for word in text.words)]) for text in (pair.a, pair.b)
    )
    mine, theirs = u - torch.stack(us), v - torch.stack(vs)
    return PairRelevance((mine @ v).numpy(), (theirs @ u).numpy(), (mine @ theirs.T).numpy())
