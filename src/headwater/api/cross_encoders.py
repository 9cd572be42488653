"""A model that reads two texts at once: relevance per token, and what words of one side do with those of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..engine.kind import choose_method
from ..engine.options import Options
from ..engine.session import Session
from ..engine.steps import Step
from ..engine.texts import TextJob
from ..errors import NotApplicable, UsageError
from ..inputs.classes import class_names
from ..inputs.places import find_place
from ..inputs.protocol import sample_name
from ..inputs.readouts import logits_of
from ..inputs.targets import Reader
from ..inputs.text import Encoded, encode, find_nothing_token
from ..models.sentence_parts import find_pair_model
from ..results.explanation import Explanation
from ..results.ledger import SPECIAL, Ledger, Lines
from ..results.similarity import ComparedText, Similarity
from .text_encoders import VectorOptions, open_session, without_windows


@dataclass(frozen=True)
class PairComparer:
    """Compares texts by a model that reads both at once. The score is a logit, as `explain` has it.

    Relevance is that of `explain`, token by token. What token i of a and token j of b do together is asked by masking:
    half of the relevance that j loses when i is masked, and half of what i loses when j is. It is taken from what the
    two have alone, so that matrix and lines sum to the logit. This takes an explanation for each token.
    """

    session: Session
    options: Options
    job: TextJob
    target: Any
    measure: str = "logit"

    def compare(self, a: Any, b: Any, rank: int | None) -> Similarity:
        if rank is not None:
            raise NotApplicable("a model that reads both texts at once has no directions: leave out rank=.")
        (encoded,) = self.encode([(a, b)])
        reader = self.fix_target(encoded)
        (whole,) = self.explain([encoded], reader)
        sides = [find_side(whole, side) for side in (0, 1)]
        lost = self.mask_each(encoded, reader, whole, sides)
        together = (lost[0] + lost[1].T) / 2
        return join_pair_sides(whole, sides, together, (a, b))

    def score(self, query: Any, passages: Sequence[Any]) -> Tensor:
        """[passages]: the logit of each with the query."""
        config = getattr(self.session.model, "config", None)
        size = getattr(config, "num_labels", 1)
        if self.target is None and size > 1:
            names = ", ".join(map(class_names(config, size), range(size)))
            raise UsageError(
                f"the model has {size} classes ({names:.200}), and passages are put in the order of one of them: name "
                "it, target=."
            )
        encoded = self.encode([(query, passage) for passage in passages])
        reader = self.fix_target(encoded[0])
        found = torch.zeros(len(passages), dtype=torch.float64)
        for group, batch in self.job.batches(encoded):
            placed = batch.to(self.session.device, self.session.dtype)
            with torch.no_grad():
                found[group] = reader(self.session.model(**placed.kwargs), placed).score.double().cpu()
        return found

    def encode(self, pairs: Sequence[tuple[Any, Any]]) -> list[Encoded]:
        for number, texts in enumerate(pairs):
            for text in texts:
                if not isinstance(text, str):
                    raise UsageError(f"{sample_name('text', number, len(pairs))} must be a string, not {text!r:.60}.")
                encode([text], self.job.tokenizer, None, False)  # one empty text would hide behind the other
        with without_windows():
            return encode(pairs, self.job.tokenizer, self.job.limit, self.job.truncate)

    def fix_target(self, encoded: Encoded) -> Reader:
        """The class that was asked for, or the one that is predicted; masked texts are read alike."""
        reader = Reader(self.session.model, self.job.tokenizer, self.target)
        if self.target is not None:
            return reader
        batch = self.job.batch([encoded]).to(self.session.device, self.session.dtype)
        with torch.no_grad():
            logits = logits_of(self.session.model(**batch.kwargs))
        return replace(reader, target=int(logits[0].argmax()))

    def explain(self, encoded: Sequence[Encoded], reader: Reader) -> list[Explanation]:
        """Texts of one length, as many at a time as `batch_size` says."""
        method, size = choose_method(self.options.method, self.session.model), self.job.batch_size
        parts = [encoded[at : at + size] for at in range(0, len(encoded), size)]
        steps = [Step(self.job.batch(part), reader) for part in parts]
        return [one for step in steps for one in self.session.explain_step(step, method, self.options)]

    def mask_each(
        self, encoded: Encoded, reader: Reader, whole: Explanation, sides: Sequence[list[int]]
    ) -> tuple[Tensor, Tensor]:
        """[tokens of one side, tokens of the other] for both sides: what the latter lose when the former is masked."""
        nothing = find_nothing_token(self.job.tokenizer)
        if nothing is None:
            raise NotApplicable("the tokenizer has no token for an unknown word, which would stand for a masked one.")
        masked = [replace_token(encoded, at, nothing) for side in sides for at in side]
        found = torch.stack([one.relevance.double().cpu() for one in self.explain(masked, reader)])
        lost = whole.relevance.double().cpu() - found
        count = len(sides[0])
        return lost[:count][:, sides[1]], lost[count:][:, sides[0]]


def open_cross_encoder(model: Any, options: VectorOptions) -> PairComparer:
    """A `CrossEncoder` with its tokenizer and its longest length, or a classifier with `tokenizer`."""
    for name in ("pooling", "dimensions", "prompts", "processor"):
        if getattr(options, name) is not None:
            raise UsageError(f"a model that reads both texts at once gives no vectors: leave out {name}=.")
    if not options.normalise:
        raise UsageError("a model that reads both texts at once gives no vectors: leave out normalise=False.")
    own = getattr(model, "tokenizer", None)
    options = replace(options, tokenizer=options.tokenizer if options.tokenizer is not None else own)
    session, asked = open_session(find_pair_model(model), options)
    place = find_place(session.model, options.inputs, "embeddings")
    job = TextJob(session.model, options.tokenizer, options.batch_size, options.truncate, place)
    limits = (job.limit, getattr(model, "max_length", None))
    job.limit = min((limit for limit in limits if isinstance(limit, int)), default=None)
    return PairComparer(session, asked, job, options.target)


def replace_token(encoded: Encoded, at: int, token: int) -> Encoded:
    ids = list(encoded.fields["input_ids"])
    ids[at] = token
    return replace(encoded, fields={**encoded.fields, "input_ids": ids})


def find_side(whole: Explanation, side: int) -> list[int]:
    """Where the tokens of one text stand, without special ones."""
    if whole.sequence_ids is None:
        raise NotApplicable("whose text a token is from is known from fast tokenizers alone.")
    return [at for at, owner in enumerate(whole.sequence_ids) if owner == side]


def join_pair_sides(
    whole: Explanation, sides: Sequence[list[int]], matrix: Tensor, texts: tuple[str, str]
) -> Similarity:
    relevance = whole.relevance.double().cpu()
    rows, columns = (relevance[at] for at in sides)
    return Similarity(
        a=describe_side(whole, sides[0], texts[0]),
        b=describe_side(whole, sides[1], texts[1]),
        matrix=matrix,
        row_rest=rows - matrix.sum(1),
        column_rest=columns - matrix.sum(0),
        ledger=share_ledger(whole.ledger, float(rows.sum()), float(columns.sum()), matrix),
        measure=f"logit of {whole.target!r}",
        rank=0,
        dimensions=0,
        method=whole.method,
        provenance=whole.provenance,
    )


def describe_side(whole: Explanation, places: list[int], text: str) -> ComparedText:
    """The tokens of one text with where they stand in it."""

    def pick(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(values[at] for at in places)

    tokens = tuple(whole.tokens[at] for at in places)
    return ComparedText(text, tokens, (False,) * len(places), pick(whole.offsets), pick(whole.word_ids))


def share_ledger(ledger: Ledger, rows: float, columns: float, matrix: Tensor) -> Ledger:
    """The same books with the pairs as inputs. Each half of a pair is taken from what that side's words have."""
    pairs = float(matrix.sum())
    alone = {
        "words of a alone": rows - pairs / 2,
        "words of b alone": columns - pairs / 2,
        SPECIAL: ledger.inputs - rows - columns,
    }
    spread = max(ledger.spread, float(matrix.abs().sum()))
    return replace(ledger, inputs=pairs, constants=Lines({**ledger.constants, **alone}), spread=spread)
