"""What came out of a run, as explanations with their ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..defaults import DEFAULT_OUTPUT
from ..inputs.batch import Batch
from ..methods.registry import Method
from ..results.explanation import Explanation, Provenance
from ..results.ledger import SINK, Ledger, Lines
from ..results.picture import Picture
from ..rules.sources import Sort
from .attribution import TARGET, Attributed, attribute
from .model import DTYPES
from .options import SHOWN, Options
from .outcome import Outcome

ROUNDING, FINE_ROUNDING = 1e-6, 1e-12  # of a score that is read from outputs in float32, and in float64


def make_explanations(
    batch: Batch, outcome: Outcome, method: Method, options: Options, provenance: Provenance, sinks: str = SHOWN
) -> list[Explanation]:
    """One for each sample of the batch. With `sinks` "aside", the first token's relevance is a line of its ledger."""
    totals = Totals.of(outcome)
    provenance = replace(provenance, way=outcome.way)
    made = []
    parts = attribute(batch, outcome)
    dtype, met = coarser(provenance.dtype, outcome.coarsest), tuple(sorted(outcome.met.items()))
    reading, place = outcome.reading.names, name_place(batch, options)
    for index, (part, sums) in enumerate(zip(parts, sum_words(parts), strict=True)):
        ledger = make_ledger(index, outcome, totals, part, sums, dtype)
        if sinks == "aside":
            part, ledger = put_sink_aside(batch, part, ledger)
        item = batch.items[index]
        made.append(
            Explanation(
                tokens=name_tokens(batch, index, part, options.tokenizer),
                relevance=part.relevance,
                score=ledger.score,
                target=reading.targets[index],
                ledger=ledger,
                method=method.name,
                provenance=provenance,
                text=item.text,
                prediction=reading.predictions[index],
                output=options.output or DEFAULT_OUTPUT,
                at=place,
                special=item.special,
                offsets=item.offsets,
                word_ids=item.word_ids,
                sequence_ids=item.sequence_ids,
                segments=part.segments,
                edges=part.links,
                image=None if batch.patches is None else make_picture(batch, index, part),
                rules_met=met,
                probabilities=reading.probabilities[index],
            )
        )
    return made


def name_tokens(batch: Batch, index: int, part: Attributed, tokenizer: Any) -> tuple[str, ...]:
    """The tokens by name, also those that a decoder is given."""
    if tokenizer is None or TARGET not in part.segments:
        return part.tokens
    ids = batch.kwargs["decoder_input_ids"][index].tolist()
    return (*part.tokens[: part.segments.index(TARGET)], *tokenizer.convert_ids_to_tokens(ids))


def name_place(batch: Batch, options: Options) -> str:
    """Where relevance was taken, in a word."""
    if batch.patches is not None:
        return "pixels"
    return options.at if batch.at is None else batch.at


def put_sink_aside(batch: Batch, part: Attributed, ledger: Ledger) -> tuple[Attributed, Ledger]:
    """The relevance of the attention sink moved from its token to a line of the ledger, which still adds up."""
    place = find_sink(batch, part)
    if place is None:
        return part, ledger
    relevance = part.relevance.clone()
    relevance[place] = 0
    return replace(part, relevance=relevance), ledger.with_aside({SINK: float(part.relevance[place])})


def find_sink(batch: Batch, part: Attributed) -> int | None:
    """The first token that the model, or the decoder of an encoder-decoder, reads; padding is none of the tokens.

    None without tokens, and where the decoder's start has a line of its own already.
    """
    if batch.ids is None or batch.patches is not None or not len(part.relevance):
        return None
    if TARGET in part.segments:
        return part.segments.index(TARGET)
    return None if batch.starts else 0


@dataclass(frozen=True)
class Totals:
    """The books of a batch, the lines of each sample; its scores, and what of them is not linear."""

    biases: list[Lines]
    constants: list[Lines]
    cut_off: list[Lines]
    held: list[Lines]
    cut_size: list[float]
    score: list[float]
    readout: list[float]

    @classmethod
    def of(cls, outcome: Outcome) -> Totals:
        books, samples, copy_of = outcome.books, len(outcome.score), outcome.fetched.copy_of
        totals, sorts = books.all_totals(), (Sort.BIAS, Sort.CONSTANT, Sort.CUT_OFF, Sort.HELD)
        biases, constants, cut_off, held = (split_by_sample(totals[sort], samples) for sort in sorts)
        for name, amounts in outcome.constants.items():
            constants = [Lines({**lines, name: amount}) for lines, amount in zip(constants, amounts, strict=True)]
        numbers = (books.cut_size().tolist(), copy_of(outcome.score).tolist(), copy_of(outcome.readout).tolist())
        return cls(biases, constants, cut_off, held, *numbers)


def split_by_sample(totals: dict[str, Tensor], samples: int) -> list[Lines]:
    """Amounts by name for each sample."""
    if not totals:
        return [Lines()] * samples
    names = tuple(totals)
    return [Lines.of_row(names, row) for row in torch.stack(list(totals.values()), 1).tolist()]


def sum_words(parts: Sequence[Attributed]) -> list[tuple[float, float]]:
    """The sum of each sample's relevance, and that of its size."""
    if not parts:
        return []
    words = pad_sequence([part.relevance.flatten() for part in parts], batch_first=True).double()
    return list(zip(words.sum(1).tolist(), words.abs().sum(1).tolist(), strict=True))


def make_ledger(
    index: int, outcome: Outcome, lines: Totals, part: Attributed, sums: tuple[float, float], dtype: str
) -> Ledger:
    inputs, spread = sums
    score, magnitudes = lines.score[index], outcome.reading.magnitudes
    magnitude = 0.0 if magnitudes is None else magnitudes[index]
    return Ledger(
        score=score,
        inputs=inputs,
        biases=lines.biases[index],
        constants=add_lines(lines.constants[index], part.constants),
        cut_off=add_lines(lines.cut_off[index], part.untold),
        cut_size=lines.cut_size[index] + sum(map(abs, part.untold.values())),
        held=lines.held[index],
        readout=leave_out_rounding(lines.readout[index], max(abs(score), magnitude), dtype),
        dtype=dtype,
        spread=spread,
        magnitude=magnitude,
    )


def leave_out_rounding(amount: float, size: float, dtype: str) -> float:
    """0 for what a score that is linear in the model's outputs differs from itself by, computed in another order."""
    return 0.0 if abs(amount) <= (FINE_ROUNDING if dtype == "float64" else ROUNDING) * size else amount


def add_lines(lines: Lines, more: dict[str, float]) -> Lines:
    return Lines({**lines, **more}) if more else lines


def make_picture(batch: Batch, index: int, part: Attributed) -> Picture:
    """Where the relevance of one image lies."""
    frame = batch.items[index].frame
    assert batch.patches is not None
    assert frame is not None
    return Picture(batch.patches.cells, frame, part.pixels)


def coarser(dtype: str, inside: torch.dtype | None) -> str:
    """The precision that the books can have: the model's, or what it casts to inside if that is less."""
    if inside is None or torch.finfo(inside).eps <= torch.finfo(DTYPES[dtype]).eps:
        return dtype
    return str(inside).removeprefix("torch.")
