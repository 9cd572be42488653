"""Texts: explained by several methods, asked again with words masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..engine.kind import choose_output
from ..engine.model import describe_model, place_batch
from ..engine.options import Options, Request
from ..engine.plan import make_plan
from ..engine.session import Session
from ..errors import InputError, ModelError
from ..inputs.batch import Batch
from ..inputs.readouts import logits_of
from ..inputs.targets import Reader
from ..inputs.text import encode, find_nothing_token
from ..results.comparison import Comparison
from ..results.explanation import Explanation
from ..results.ledger import Ledger, Lines
from ..results.verdict import Phrase
from ..results.words import continues
from ..viz.colour import largest
from ..viz.reading import closing_line, fold_lines, token_cells
from ..viz.sums import ledger_sum
from .models import Loaded
from .schemas import ClassShare, Folded, LedgerEntry, LedgerShown, MethodRow, PhraseShown, Refused, TokenAnswer
from .text_schemas import PredictAnswer, PredictAsked, TextAnswer, TextAsked

CLASSES = 12  # shown, the likeliest


def compare_text(loaded: Loaded, ask: TextAsked) -> Comparison:
    """The methods asked for, on one text."""
    return check_some(
        loaded.session.compare(
            ask.text,
            tokenizer=loaded.reader,
            methods=ask.methods or [loaded.method],
            target=ask.target,
            output=ask.output,
            seed=ask.seed,
            window=True,
        )
    )


def check_some(found: Comparison) -> Comparison:
    """A comparison that has something to show."""
    if not found.explanations:
        raise ModelError("no method gave an explanation: " + " ".join(reason for _, reason in found.refused))
    return found


def text_answer(loaded: Loaded, ask: TextAsked, found: Comparison) -> TextAnswer:
    first = found.explanations[0]
    unit = unit_for(first, ask.unit)
    classes = class_shares(loaded, logits_in(outputs_for(loaded, ask.text)))
    rows = [
        method_row(e, [c.relevance for c in token_cells(e, unit == "word")], f"{unit}s") for e in found.explanations
    ]
    return TextAnswer(
        **explanation_fields(loaded, found, classes, rows), cells=cells_of(first, unit), windows=first.windows
    )


def explanation_fields(
    loaded: Loaded, found: Comparison, classes: list[ClassShare], rows: list[MethodRow]
) -> dict[str, Any]:
    """What the answer about any input has."""
    first = found.explanations[0]
    return {
        "target": first.target,
        "output": first.output,
        "score": first.score,
        "prediction": first.prediction,
        "verdict": verdict_phrases(loaded, found, classes),
        "classes": classes,
        "rows": rows,
        "refused": [Refused(method=name, reason=reason) for name, reason in found.refused],
        "model": first.provenance.model,
    }


def verdict_phrases(loaded: Loaded, found: Comparison, classes: Sequence[ClassShare]) -> list[PhraseShown]:
    """What was predicted and why: by the model's default method, where it is among those asked for."""
    own = [e for e in found.explanations if e.method == loaded.method]
    chosen = own[0] if own else found
    known = {one.name: one.probability for one in classes}
    return show_phrases(chosen.verdict(known.get(found.explanations[0].prediction or "")).phrases)


def show_phrases(phrases: Sequence[Phrase]) -> list[PhraseShown]:
    return [PhraseShown(text=part.text, named=part.named) for part in phrases]


def unit_for(e: Explanation, asked: str) -> str:
    """Words need a tokenizer that says where its tokens stand; without it there are tokens."""
    return asked if e.offsets is not None else "token"


def method_row(e: Explanation, relevance: Sequence[float], unit: str = "words") -> MethodRow:
    return MethodRow(
        method=e.method, relevance=list(relevance), scale=largest(relevance), ledger=ledger_answer(e.ledger, unit)
    )


def ledger_answer(ledger: Ledger, unit: str = "words") -> LedgerShown:
    return LedgerShown(
        score=ledger.score,
        inputs=ledger.inputs,
        biases=fold_ledger(ledger.biases),
        constants=fold_ledger(ledger.constants),
        cut_off=fold_ledger(ledger.cut_off),
        held=fold_ledger(ledger.held),
        readout=ledger.readout,
        unaccounted=ledger.unaccounted,
        closed=ledger.closed,
        error=ledger.error,
        verdict=closing_line(ledger),
        sum=ledger_sum(ledger, unit),
    )


def fold_ledger(lines: Lines) -> list[Folded]:
    """Lines by kind or layer, each with what it is the sum of; what is exactly zero is left out."""
    return [
        Folded(
            name=name,
            amount=sum(inside.values()),
            lines=[LedgerEntry(name=line, amount=amount) for line, amount in inside.items()],
        )
        for name, inside in fold_lines({name: amount for name, amount in lines.items() if amount}).items()
    ]


def cells_of(e: Explanation, unit: str) -> list[TokenAnswer]:
    """The words or tokens, each with the number of its word: what masking goes by."""
    shown = token_cells(e, unit == "word")
    numbers = range(len(shown)) if unit == "word" else word_numbers(e)
    return [
        TokenAnswer(text=cell.text, gap=cell.gap, word=None if cell.special else number)
        for cell, number in zip(shown, numbers, strict=True)
    ]


def word_numbers(e: Explanation) -> list[int]:
    """The word that each token lies in, counted as `Explanation.words` counts."""
    if e.offsets is None:
        return list(range(len(e.tokens)))
    numbers = [0]
    for i in range(1, len(e.tokens)):
        numbers.append(numbers[-1] + (not continues(e, i - 1, i)))
    return numbers


def mask_words(loaded: Loaded, text: str, numbers: Sequence[int]) -> str:
    """The text with these words replaced by what stands for a word taken away, here as in the measures."""
    if not numbers:
        return text
    spans = word_spans(loaded, text)
    wrong = [n for n in numbers if not 0 <= n < len(spans) or spans[n][0] == spans[n][1]]
    if wrong:
        raise InputError(f"word {wrong[0]} cannot be masked: the text has {len(spans)}, special tokens among them.")
    sign = mask_of(loaded.reader)
    for start, end in sorted((spans[n] for n in set(numbers)), reverse=True):
        text = text[:start] + sign + text[end:]
    return text


def mask_of(tokenizer: Any) -> str:
    found = find_nothing_token(tokenizer)
    if found is None:
        raise ModelError("the tokenizer has no token that could stand for a masked word.")
    return str(tokenizer.convert_ids_to_tokens(found))


def word_spans(loaded: Loaded, text: str) -> list[tuple[int, int]]:
    """Where every word stands in the text; nothing is run for it."""
    (encoded,) = encode([text], loaded.reader, None, False)
    item = encoded.item
    shell = Explanation(
        tokens=item.tokens,
        relevance=torch.zeros(len(item.tokens)),
        score=0.0,
        target="",
        ledger=Ledger(0.0, 0.0),
        method="",
        provenance=describe_model(loaded.model, torch.device("cpu"), torch.float32, 0),
        text=text,
        special=item.special,
        offsets=item.offsets,
        word_ids=item.word_ids,
        sequence_ids=item.sequence_ids,
    )
    return [(word.start, word.end) for word in shell.words()]


Outputs = list[tuple[Any, Batch]]


def outputs_for(loaded: Loaded, text: str, window: bool = True) -> Outputs:
    """The model's outputs for a text with their batches: window by window, or of as much as fits in one."""
    session = loaded.session
    options = Options(loaded.reader, window=window, truncate=not window, dtype=session.dtype)
    ask = Request(session.model, text, options)
    model = Session.open(ask.model, ask.options).model
    found: Outputs = []
    with torch.no_grad():
        for step in make_plan(ask, model).steps:
            batch = place_batch(model, step.batch)
            found.append((model(*batch.args, **batch.kwargs), batch))
    return found


def logits_in(outputs: Outputs) -> list[float]:
    """The logits of a text; of a long one the mean over its windows."""
    rows = torch.cat([logits_of(out).reshape(batch.samples, -1) for out, batch in outputs])
    return [float(v) for v in rows.double().mean(0).tolist()]


def class_shares(loaded: Loaded, logits: Sequence[float]) -> list[ClassShare]:
    """The likeliest classes, in the model's own order."""
    names = loaded.classes or [str(i) for i in range(len(logits))]
    several = getattr(loaded.model.config, "problem_type", None) == "multi_label_classification"
    row = torch.tensor(logits, dtype=torch.float64)
    shares = row.sigmoid() if several or len(logits) == 1 else row.softmax(-1)
    best = sorted(sorted(range(len(logits)), key=lambda i: -logits[i])[:CLASSES])
    return [
        ClassShare(name=names[i] if i < len(names) else str(i), logit=round(logits[i], 6), probability=float(shares[i]))
        for i in best
    ]


def predict_with_masks(loaded: Loaded, ask: PredictAsked) -> PredictAnswer:
    """What the model says of the text as it is and with the words masked, for the same score."""
    text = mask_words(loaded, ask.text, ask.masked)
    before, after = outputs_for(loaded, ask.text), outputs_for(loaded, text)
    logits = logits_in(before)
    target = ask.target if ask.target is not None else max(range(len(logits)), key=lambda i: logits[i])
    output = choose_output(ask.output, loaded.model)
    reader = Reader(loaded.model, loaded.reader, target, output)
    name, score_before = score_in(before, reader)
    return PredictAnswer(
        target=name,
        output=output,
        before=class_shares(loaded, logits),
        after=class_shares(loaded, logits_in(after)),
        score_before=score_before,
        score_after=score_in(after, reader)[1],
        text=text,
    )


def score_in(outputs: Outputs, reader: Reader) -> tuple[str, float]:
    """The score that is explained; of a long text the mean over its windows."""
    readings = [reader(out, batch) for out, batch in outputs]
    scores = torch.cat([reading.score.detach().double() for reading in readings])
    return readings[0].targets[0], float(scores.mean())
