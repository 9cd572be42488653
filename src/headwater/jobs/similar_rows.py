"""Rows that are pairs of texts: which words of each made the two similar.

A row of the results is the explanation of the first text, as of any text, with the second's own columns beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from ..api.comparers import Comparer, names_cross_encoder, open_comparer
from ..api.text_encoders import TextEncoder, VectorOptions
from ..errors import EmptyInput, InputError, TooLong, UsageError
from ..inputs.places import PLACES
from ..inputs.text import encode
from ..models.pretrained import locate
from ..models.sentence_parts import read_sentence_files
from ..results.explanation import Explanation
from ..results.ledger import Ledger, Lines
from ..results.similarity import Similarity
from ..store.columns import SIMILAR_COLUMNS, similar_types
from .explaining import Explainer, TokenisedRow, to_arrays
from .reading.rows import EMPTY, NOT_TEXT, TOO_LONG, Bad, escape_beginning
from .reading.sources import InputFiles
from .settings import JobSettings

if TYPE_CHECKING:
    import pyarrow as pa

STRONGEST = 20  # pairs of words that a row keeps
REST = "all else of a × all of b"  # biases and constants of the first text


@dataclass(frozen=True)
class PairRow(TokenisedRow):
    """Two texts that can be compared. `encoded` is always None: they are tokenised when they are compared."""

    other: str = ""


class SimilarRows(Explainer):
    """A model that gives vectors, with its settings, ready for chunks of pairs."""

    def __init__(self, model: nn.Module, tokenizer: Any, settings: JobSettings, sources: InputFiles) -> None:
        super().__init__(model, tokenizer, settings, sources)
        pooling = settings.pooling
        options = VectorOptions(
            tokenizer=tokenizer,
            pooling=pooling[0] if pooling is not None and len(pooling) == 1 else pooling,
            normalise=settings.normalise,
            method=settings.method,
            truncate=settings.truncate,
            inputs=None if settings.at == PLACES[0] else settings.at,
            dtype=settings.dtype,
            seed=settings.seed,
        )
        self.comparer: Comparer = open_comparer(self.session.model, options, ("", ""))
        for encoder in getattr(self.comparer, "encoders", ()):
            if isinstance(encoder, TextEncoder):
                encoder.job.limit = self.job.limit
        self.found: dict[int, Similarity] = {}

    def read_beside(self, texts: Sequence[str | Bad | None], carried: pa.Table | None) -> Sequence[Any]:
        """The second text of each pair."""
        assert carried is not None
        assert self.settings.similar is not None
        return list(carried.column(self.settings.similar).to_pylist())

    def row(self, row: int, text: str | Bad, known: Any) -> TokenisedRow | Bad:
        if isinstance(text, Bad):
            return text
        if not isinstance(known, str):
            held = "nothing" if known is None else type(known).__name__
            return Bad(
                NOT_TEXT, f"the cell of {self.settings.similar!r} holds {held}, not a text", escape_beginning(text)
            )
        try:
            encoded = [self.measure(one) for one in (text, known)]
        except EmptyInput as error:
            return Bad(EMPTY, str(error), escape_beginning(text))
        except TooLong as error:
            return Bad(TOO_LONG, str(error), escape_beginning(text))
        except InputError as error:
            return Bad(NOT_TEXT, str(error), escape_beginning(text))
        return PairRow(row, text, sum(encoded), None, known)

    def measure(self, text: str) -> int:
        """How many tokens a text has; one that is empty or too long is refused."""
        return encode([text], self.job.tokenizer, self.job.limit, self.settings.truncate)[0].length

    def explain_batch(self, batch: Sequence[TokenisedRow]) -> list[Explanation]:
        """Rows come one by one: each has its own directions."""
        made = []
        for row in batch:
            assert isinstance(row, PairRow)
            found = self.comparer.compare(row.text, row.other, self.settings.rank)
            self.found[row.id] = found
            made.append(explain_first(found, self.settings.at))
        return made

    def more_columns(self, ids: Sequence[int]) -> dict[str, pa.Array]:
        """The second text's columns beside them."""
        rows = [similar_row(self.found[i]) for i in ids]
        self.found.clear()
        return to_arrays(rows, similar_types())


def explain_first(found: Similarity, at: str) -> Explanation:
    """The first text with what each of its tokens does for the similarity; all else is one line of the ledger."""
    relevance, ledger = found.row_relevance, found.ledger
    words = float(relevance.sum())
    rest = Lines({REST: ledger.score - ledger.unaccounted - words})
    return Explanation(
        tokens=found.a.tokens,
        relevance=relevance,
        score=found.score,
        target=found.measure,
        ledger=Ledger(
            score=ledger.score,
            inputs=words,
            biases=rest,
            dtype=ledger.dtype,
            magnitude=ledger.magnitude,
            spread=float(relevance.abs().sum()),
        ),
        method=found.method,
        provenance=found.provenance,
        text=found.a.text,
        at=at,
        special=found.a.special,
        offsets=found.a.offsets,
        word_ids=found.a.word_ids,
    )


def similar_row(found: Similarity) -> dict[str, Any]:
    """The columns of the second text, and the strongest pairs of words; of tokens where words are not known."""
    known = found.a.offsets is not None and found.b.offsets is not None
    words = found.words() if known else found.tokens()
    pairs = [{"a": a, "b": b, "relevance": amount} for a, b, amount in words.strongest(STRONGEST)]
    values = (found.measure, found.columns, found.column_relevance.tolist(), pairs)
    return dict(zip(SIMILAR_COLUMNS, values, strict=True))


def find_pooling(model: str | os.PathLike[str], max_tokens: int | None) -> tuple[tuple[str, ...] | None, int | None]:
    """What the files of a model of sentence-transformers say: its pooling, and how many tokens it takes at most.

    A model that reads both texts at once pools nothing.
    """
    if names_cross_encoder(model):
        return None, max_tokens
    place = locate(model) if isinstance(model, str) else os.fspath(model)
    parts = read_sentence_files(place)
    if parts is None:
        raise UsageError(
            f"{place} does not say how its states become one vector (no modules.json): pass pooling='mean' or "
            "pooling='cls'."
        )
    if parts.prompt_name is not None:
        raise UsageError(f"{place} has a prompt in front of its texts: write it into the column, and pass pooling=.")
    return parts.pooling, min((n for n in (max_tokens, parts.limit) if n is not None), default=None)
