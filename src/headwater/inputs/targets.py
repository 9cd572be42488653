"""Which scalar is explained. The score function runs outside the rules, on the model's outputs.

A target is None (the predicted class, the predicted next token), a class by index or label name, "a - b", `Token`,
`Span`, or any callable that gives one score per sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError, UnknownName
from .batch import Batch, Item
from .text import can_generate
from .word_positions import find_words

OUTPUTS = ("logit", "advantage", "probability", "log-probability")
UNDIVIDED = ("logit", "probability")  # scores that are no difference of two numbers
MOST_CLASSES, LIKELIEST = 1000, 10  # past so many classes (a vocabulary), so many probabilities are kept
TEMPERATURE = 2.0  # at which an advantage weighs the logits: chosen in docs/generation.md


@dataclass(frozen=True)
class Token:
    """What is predicted at one position: a token's class, a masked word, the next token of a language model.

    `position` counts real tokens from 0, negative from the end, or is a word of the text: its first token, of a
    language model its last, after which the next is predicted. `label` is a class, or a word of the vocabulary
    (default: the predicted one); `versus` makes it a contrast.
    """

    position: int | str = -1
    label: int | str | None = None
    versus: int | str | None = None


@dataclass(frozen=True)
class Span:
    """An answer span by token positions, both ends included, or by its words: `Span("Denver Broncos")`.

    Its score is start logit plus end logit. Of a question and its context, the words are those of the context.
    """

    start: int | str
    end: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.start, str) and self.end is not None:
            raise TargetError("an answer in words has no end beside it: hw.Span('…'), or hw.Span(start, end).")

    def find(self, real: Tensor, item: Item) -> Tensor:
        """[2]: where the span starts and ends, in a padded row."""
        if isinstance(self.start, str):
            first, last = find_words(item, self.start, 1 if isinstance(item.text, tuple) else None)
        else:
            first, last = self.start, self.start if self.end is None else self.end
        return torch.stack([nth(real, first), nth(real, last)])


Target = int | str | Token | Span | Callable[[Any], Tensor] | None


@dataclass
class ScoreReading:
    """One score per sample, with what it is called and what the model predicted.

    `magnitudes`: where a score is a sum or a difference of two numbers, the sum of their absolute values (a
    log-probability is a logit minus the logarithm of a sum). `classes`: the logits that the score was read from.
    """

    score: Tensor
    targets: list[str]
    predictions: list[str | None]
    magnitudes: list[float] | None = None
    classes: list[ClassLogits] = field(default_factory=list)


def join_readings(parts: Sequence[ScoreReading], score: Tensor) -> ScoreReading:
    """What was read of samples one by one, as that of a batch with these scores."""
    return ScoreReading(
        score,
        [target for part in parts for target in part.targets],
        [prediction for part in parts for prediction in part.predictions],
        [size for part in parts for size in part.magnitudes or ()] or None,
        [one for part in parts for one in part.classes],
    )


@dataclass(frozen=True)
class ClassLogits:
    """The logits of one sample and what its classes are called; `independent`: each class has a probability alone."""

    row: Tensor
    names: Names
    independent: bool = False

    @classmethod
    def of(cls, rows: Tensor, names: Names, independent: bool = False) -> list[ClassLogits]:
        """One for each sample. They keep a copy: a later run may write into the same memory."""
        return [cls(row, names, independent) for row in rows.detach().clone()]

    def probabilities(self, target: str | None = None) -> dict[str, float]:
        """Every class by name; of a vocabulary the likeliest, and `target` where it is one token of it."""
        wide = self.row.double()
        found = wide.sigmoid() if self.independent else wide.softmax(-1)
        if len(found) <= MOST_CLASSES:
            chosen = list(range(len(found)))
        else:
            chosen = found.topk(LIKELIEST).indices.tolist()
            if target is not None and self.names.knows(target) and self.names.index(target) not in chosen:
                chosen.append(self.names.index(target))
        numbers = found[chosen].tolist()
        return dict(sorted(zip(map(self.names, chosen), numbers, strict=True), key=lambda named: -named[1]))


@dataclass(frozen=True)
class Reader:
    """Reads the score off a model's output."""

    model: Any
    tokenizer: Any
    target: Target
    output: str = "logit"

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise UnknownName("output", self.output, OUTPUTS)

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        if callable(self.target):
            return self._read_function_score(self.target(out), batch)
        if hasattr(out, "start_logits") and hasattr(out, "end_logits"):
            return self._span(out.start_logits, out.end_logits, batch)
        logits = logits_of(out)
        if logits.dim() == 0 or len(logits) != batch.samples:
            raise TargetError(
                f"the model's output has shape {tuple(logits.shape)} for {batch.samples} samples, which do not stand "
                "first; pass score= to say what is explained."
            )
        if logits.dim() == 3:
            return self._at_position(logits, batch)
        if logits.dim() in (1, 2):
            return self._classes(logits.reshape(len(logits), -1))
        raise TargetError(f"the model's output has shape {tuple(logits.shape)}; pass score= to say what is explained.")

    def with_fixed_target(self, out: Any, batch: Batch) -> Reader:
        """The same reader, its target fixed to what is predicted for one sample: changed inputs are read alike."""
        if callable(self.target) or batch.samples != 1:
            return self
        if hasattr(out, "start_logits") and hasattr(out, "end_logits"):
            if isinstance(self.target, Span) and isinstance(self.target.start, int):
                return self
            if self.target is not None:
                pair = self._spans(out.start_logits, batch)[0]
                return replace(self, target=Span(int(pair[0]), int(pair[1])))
            pair = best_spans(out.start_logits.detach(), out.end_logits.detach(), batch.real)[0]
            return replace(self, target=Span(int(pair[0]), int(pair[1])))
        logits = logits_of(out)
        if logits.dim() == 3:
            at = int(self._positions(batch, logits, is_vocabulary(self.model, logits.shape[-1]))[0])
            chosen = self.target if isinstance(self.target, Token) else Token(label=self.target)  # type: ignore[arg-type]
            label = int(logits[0, at].argmax()) if chosen.label is None else chosen.label
            position = int(real_outputs(batch, logits)[0][:at].sum())
            return replace(self, target=replace(chosen, position=position, label=label))
        return self if self.target is not None else replace(self, target=int(logits.reshape(1, -1).argmax()))

    def _read_function_score(self, score: Any, batch: Batch) -> ScoreReading:
        if not isinstance(score, Tensor) or score.numel() != batch.samples:
            found = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
            raise TargetError(f"the score function must give one number a sample ({batch.samples}), not {found}.")
        return ScoreReading(score.reshape(-1), ["score"] * batch.samples, [None] * batch.samples)

    def _classes(self, logits: Tensor) -> ScoreReading:
        config = getattr(self.model, "config", None)
        names = class_names(config, logits.shape[-1])
        single = logits.shape[-1] == 1
        multi = getattr(config, "problem_type", None) == "multi_label_classification"
        best = logits.argmax(-1)
        said = [name_prediction(row, names, multi) for row in logits.detach()]
        if isinstance(self.target, (Token, Span)):
            raise TargetError("this model gives one prediction a sample, so its target is a class, not a position.")
        score, targets, sizes = self._contrast(logits, best, names, independent=multi or single)
        return ScoreReading(score, targets, said, sizes, ClassLogits.of(logits, names, multi or single))

    def _at_position(self, logits: Tensor, batch: Batch) -> ScoreReading:
        """[samples, positions, classes]: language models, masked language models, token classifiers."""
        if isinstance(self.target, Span):
            raise TargetError("a span is the target of a question-answering model.")
        vocabulary = is_vocabulary(self.model, logits.shape[-1])
        at = self._positions(batch, logits, vocabulary)
        rows = logits[torch.arange(len(logits), device=logits.device), at]
        names = self._vocabulary(logits.shape[-1]) if vocabulary else class_names(self.model.config, logits.shape[-1])
        best = rows.argmax(-1)
        score, targets, sizes = self._contrast(rows, best, names, independent=False)
        said: list[str | None] = [names(int(i)) for i in best]
        return ScoreReading(score, targets, said, sizes, ClassLogits.of(rows, names))

    def _positions(self, batch: Batch, logits: Tensor, vocabulary: bool) -> Tensor:
        real = real_outputs(batch, logits)
        if isinstance(self.target, Token):
            last = vocabulary and can_generate(self.model)
            places = [self._place(self.target.position, batch, i, last) for i in range(len(real))]
            return torch.stack([nth(row, place) for row, place in zip(real, places, strict=True)])
        mask = getattr(self.tokenizer, "mask_token_id", None)
        if vocabulary and can_generate(self.model):
            return torch.stack([nth(row, -1) for row in real])
        if vocabulary and mask is not None and batch.ids is not None and bool((batch.ids == mask).any(1).all()):
            first: Tensor = (batch.ids == mask).long().argmax(1)
            return first
        what = "has no mask token in its text" if vocabulary else "has one prediction for every token"
        raise TargetError(
            f"this model {what}: say which position is explained, target=hw.Token('word') or hw.Token(3, label)."
            f"{'' if vocabulary else ' hw.explain_entities explains all that it finds.'}"
        )

    def _place(self, position: int | str, batch: Batch, sample: int, last: bool) -> int:
        """A position by its number among the real tokens."""
        if not isinstance(position, str):
            return position
        if isinstance(batch.kwargs.get("decoder_input_ids"), Tensor):
            raise TargetError(f"a decoder's positions are no words of the text: give a number, not {position!r}.")
        return find_words(batch.items[sample], position)[1 if last else 0]

    def _vocabulary(self, size: int) -> Names:
        def name(index: int) -> str:
            return str(self.tokenizer.convert_ids_to_tokens(index)) if self.tokenizer is not None else str(index)

        def find(text: str) -> int:
            if self.tokenizer is None:
                raise TargetError(f"the token {text!r} can only be found with a tokenizer; pass it or give the index.")
            known = self.tokenizer.get_vocab()
            if text in known:
                return int(known[text])
            pieces = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            if getattr(self.tokenizer, "unk_token_id", None) in pieces:
                raise TargetError(f"{text!r} is not in the tokenizer's vocabulary.")
            if len(pieces) != 1:
                raise TargetError(f"{text!r} is {len(pieces)} tokens for this tokenizer; a target is one.")
            return int(pieces[0])

        return Names(size, name, find)

    def _contrast(
        self, rows: Tensor, best: Tensor, names: Names, independent: bool
    ) -> tuple[Tensor, list[str], list[float] | None]:
        """The chosen class, or the difference of two; and the size of what that is a difference of."""
        target = self.target
        label = target.label if isinstance(target, Token) else target
        versus = target.versus if isinstance(target, Token) else None
        if isinstance(label, str) and versus is None and not names.knows(label):
            label, versus = split_difference(label)
        score, name, size = self._class(rows, label, best, names, independent)
        if versus is None:
            return score, name, None if self.output in UNDIVIDED else size.tolist()
        other, other_name, other_size = self._class(rows, versus, best, names, independent)
        if name == other_name:
            raise TargetError(
                f"{name[0]!r} is set against itself, which is 0 for every input. Name another class to set it against."
            )
        said = [f"{a} - {b}" for a, b in zip(name, other_name, strict=True)]
        return score - other, said, (size + other_size).tolist()

    def _class(
        self, rows: Tensor, label: Any, best: Tensor, names: Names, independent: bool
    ) -> tuple[Tensor, list[str], Tensor]:
        """The score of a class, its name, and the size of the numbers that the score is made of.

        A log-probability or an advantage is a logit minus something of the size of the logits: their sizes add up.
        """
        index = (best if label is None else torch.full_like(best, names.index(label))).unsqueeze(-1)
        score = read_out(rows, self.output, independent).gather(-1, index).squeeze(-1)
        size = score.detach().abs()
        if self.output not in UNDIVIDED:
            logit = rows.detach().gather(-1, index).squeeze(-1)
            size = logit.abs() + (logit - score.detach()).abs()
        return score, [names(int(i)) for i in index.squeeze(-1)], size

    def _span(self, starts: Tensor, ends: Tensor, batch: Batch) -> ScoreReading:
        """Answer span: start logit + end logit; by default the best pair with start <= end."""
        best = best_spans(starts.detach(), ends.detach(), batch.real)
        chosen = best if self.target is None else self._spans(starts, batch)
        first, last = read_out(starts, self.output, False), read_out(ends, self.output, False)
        a, b = first.gather(1, chosen[:, :1]).squeeze(1), last.gather(1, chosen[:, 1:]).squeeze(1)
        score = a * b if self.output == "probability" else a + b
        sizes = (a.detach().abs() + b.detach().abs()).tolist()  # of one sign or not
        return ScoreReading(score, [span_name(c) for c in chosen], [span_name(c) for c in best], sizes)

    def _spans(self, starts: Tensor, batch: Batch) -> Tensor:
        """[samples, 2]: the span that was asked for, in every sample. A plain text is the answer's words."""
        target = Span(self.target) if isinstance(self.target, str) else self.target
        if not isinstance(target, Span):
            raise TargetError(
                "the target of a question-answering model is a span: hw.Span('the answer') or hw.Span(start, end)."
            )
        real = batch.real if batch.real is not None else torch.ones_like(starts, dtype=torch.bool)
        try:
            return torch.stack([target.find(row, item) for row, item in zip(real, batch.items, strict=True)])
        except TargetError as error:
            raise TargetError(
                f"{error} An answer is a span of the text: hw.Span('its words') or hw.Span(start, end)."
            ) from error


@dataclass(frozen=True)
class Names:
    """Classes by index and by name."""

    size: int
    name: Callable[[int], str]
    find: Callable[[str], int]

    def __call__(self, index: int) -> str:
        return self.name(index)

    def knows(self, label: str) -> bool:
        try:
            self.find(label)
        except (TargetError, UnknownName):
            return False
        return True

    def index(self, label: int | str) -> int:
        if isinstance(label, str):
            return self.find(label)
        if isinstance(label, bool) or not isinstance(label, int):
            raise TargetError(f"a class is an index or a name, not {type(label).__name__}.")
        if not -self.size <= label < self.size:
            raise TargetError(f"no class {label}: the model has {self.size}, 0 to {self.size - 1}.")
        return label % self.size


def class_names(config: Any, size: int) -> Names:
    table = getattr(config, "id2label", None) or {}
    names = [str(table.get(i, f"LABEL_{i}")) for i in range(size)]
    lower = {name.lower(): i for i, name in reversed(list(enumerate(names)))}

    def find(text: str) -> int:
        if text in names:
            return names.index(text)
        if text.strip().lower() in lower:
            return lower[text.strip().lower()]
        if re.fullmatch(r"\d+", text) and int(text) < size:
            return int(text)
        raise UnknownName("class", text, names)

    return Names(size, names.__getitem__, find)


def split_difference(label: str) -> tuple[str, str | None]:
    """ "positive - negative" -> its two classes."""
    parts = label.split(" - ")
    return (parts[0], parts[1]) if len(parts) == 2 else (label, None)


def name_prediction(row: Tensor, names: Names, multi: bool) -> str | None:
    if multi:
        return ", ".join(names(int(i)) for i in (row > 0).nonzero().flatten()) or "none"
    return None if len(row) == 1 else names(int(row.argmax()))


def read_out(logits: Tensor, output: str, independent: bool) -> Tensor:
    """Logits as they are, or as probabilities: over the classes, or each on its own (multi-label, one output)."""
    if output == "logit":
        return logits
    if output == "advantage":
        return logits if independent else logits - mean_logit(logits).unsqueeze(-1)
    if output == "probability":
        return logits.sigmoid() if independent else logits.softmax(-1)
    if output == "log-probability":
        return torch.nn.functional.logsigmoid(logits) if independent else logits.log_softmax(-1)
    raise UnknownName("output", output, OUTPUTS)


def mean_logit(logits: Tensor) -> Tensor:
    """The mean of all logits, weighed by their probabilities at a temperature of 2, which are held constant.

    A logit minus this mean has the gradient of the log-probability at that temperature (times it). A number that is
    added to all logits changes no probability, and does not change this difference either. As it is linear in the
    logits, the ledger needs no line for the readout.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    weights = (wide.detach() / TEMPERATURE).softmax(-1)
    return (weights * wide.masked_fill(weights == 0, 0)).sum(-1).to(logits.dtype)  # a logit may be -inf


def is_vocabulary(model: Any, size: int) -> bool:
    get = getattr(getattr(model, "config", None), "get_text_config", None)
    config = get() if get is not None else getattr(model, "config", None)
    return size == getattr(config, "vocab_size", None) or can_generate(model)


def real_outputs(batch: Batch, logits: Tensor) -> Tensor:
    """[samples, positions] of the output that are no padding; those of a decoder have a mask of their own."""
    real = batch.real
    if isinstance(batch.kwargs.get("decoder_input_ids"), Tensor):
        mask = batch.kwargs.get("decoder_attention_mask")
        real = mask.bool() if isinstance(mask, Tensor) else None
    if real is not None and real.shape == logits.shape[:2]:
        return real
    return torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)


def nth(real: Tensor, position: int) -> Tensor:
    """The n-th real position of a padded row."""
    places = real.nonzero().flatten()
    if not -len(places) <= position < len(places):
        raise TargetError(f"no position {position}: the sample has {len(places)} tokens.")
    return places[position]


def best_spans(starts: Tensor, ends: Tensor, real: Tensor | None) -> Tensor:
    """The pair start <= end with the largest sum, among real tokens."""
    if real is not None and real.shape == starts.shape:
        starts, ends = starts.masked_fill(~real, -torch.inf), ends.masked_fill(~real, -torch.inf)
    sums = (starts.unsqueeze(2) + ends.unsqueeze(1)).masked_fill(
        ~torch.ones(starts.shape[1], starts.shape[1], dtype=torch.bool, device=starts.device).triu(), -torch.inf
    )
    flat = sums.flatten(1).argmax(1)
    return torch.stack([flat // starts.shape[1], flat % starts.shape[1]], 1)


def span_name(pair: Tensor) -> str:
    return f"tokens {int(pair[0])} to {int(pair[1])}"


def logits_of(out: Any) -> Tensor:
    if isinstance(out, Tensor):
        return out
    named = out.get("logits") if isinstance(out, Mapping) else getattr(out, "logits", None)
    for value in (named, *(out if isinstance(out, (tuple, list)) else ())):
        if isinstance(value, Tensor):
            return value
    raise TargetError(f"the model gives {type(out).__name__} without logits; pass score= to say what is explained.")
