"""Which scalar is explained. The score function runs outside the rules, on the model's outputs.

A target is None (the predicted class, the predicted next token), a class by index or label name, "a - b", `Token`,
`Span`, or any callable that gives one score per sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError, UnknownName
from ..plurals import say_count
from .batch import Batch, Item
from .classes import (
    ClassLogits,
    Names,
    class_names,
    is_vocabulary,
    name_predictions,
    split_difference,
    token_names,
)
from .readouts import OUTPUTS, UNDIVIDED, ReadNames, ScoreReading, logits_of, read_out
from .text import can_generate
from .word_positions import find_words


@dataclass(frozen=True)
class Token:
    """What is predicted at one position: a token's class, a masked word, the next token of a language model.

    `position` counts real tokens from 0, negative from the end, or is a word of the text: its first token, of a
    language model its last, after which the next is predicted. `label` is a class, or a word of the vocabulary
    (default: the predicted one); `versus` makes it a contrast.
    """

    position: int | str = -1  # of a token, from 0 or from the end; or a word of the text
    label: int | str | None = None  # a class, or a word of the vocabulary; None is the predicted one
    versus: int | str | None = None  # the label that is subtracted, for a contrast


@dataclass(frozen=True)
class Span:
    """An answer span by token positions, both ends included, or by its words: `Span("Denver Broncos")`.

    Its score is start logit plus end logit. Of a question and its context, the words are those of the context.
    """

    start: int | str  # the first token, by position; or the words of the span
    end: int | None = None  # the last token, by position; None with words

    def __post_init__(self) -> None:
        if isinstance(self.start, str) and self.end is not None:
            raise TargetError("an answer in words has no end beside it: hw.Span('…'), or hw.Span(start, end).")

    def find(self, real: Tensor, item: Item) -> Tensor:
        """[2]: where the span of `item` starts and ends, in a padded row; `real` is true where there is no padding."""
        if isinstance(self.start, str):
            first, last = find_words(item, self.start, 1 if isinstance(item.text, tuple) else None)
        else:
            first, last = self.start, self.start if self.end is None else self.end
        span = torch.stack([nth(real, first), nth(real, last)])
        if span[0] > span[1]:
            raise TargetError(f"a span ends at its start or behind it, and {last} stands before {first}.")
        return span


@dataclass(frozen=True)
class Contrast:
    """The score of a class or of two, and what it is called where these are the likeliest classes."""

    score: Tensor
    name: Callable[[list[int]], list[str]]
    size: tuple[Tensor, ...] = ()  # of the numbers that it is made of, where that is told


Target = int | str | Token | Span | Callable[[Any], Tensor] | None


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
                f"the model's output has shape {tuple(logits.shape)} for {say_count(batch.samples, 'sample')}, "
                "which do not stand first; pass score= to say what is explained."
            )
        if not logits.is_floating_point():
            raise TargetError(
                f"the model's output holds {str(logits.dtype).removeprefix('torch.')}, which are no logits (classes "
                "that it chose, perhaps): let it give the numbers that it chose by, or pass score=."
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
            real, (chosen, _) = self._choose_spans(out.start_logits, out.end_logits, batch)
            first, last = number_tokens(real, chosen)[0]
            return replace(self, target=Span(first, last))
        logits = logits_of(out)
        if logits.dim() == 3:
            at = int(self._positions(batch, logits, is_vocabulary(self.model, logits.shape[-1]))[0])
            label, versus = self._fix_labels(logits[:1, at])
            position = int(real_outputs(batch, logits)[0][:at].sum())
            return replace(self, target=Token(position, label, versus))
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
        kind = getattr(config, "problem_type", None)
        multi, numbers = kind == "multi_label_classification", kind == "regression"
        if numbers and self.output != "logit":
            raise TargetError(
                f"the outputs of this model are numbers and no classes (a regression), so they have no {self.output}: "
                "take output='logit'."
            )
        if isinstance(self.target, (Token, Span)):
            raise TargetError("this model gives one prediction a sample, so its target is a class, not a position.")
        shown = logits.detach().clone()  # a later run may write into the same memory
        best = shown.argmax(-1)
        contrast = self._contrast(logits, best, names, independent=multi or single)
        name_targets = contrast.name

        def name(shown: Tensor, best: Tensor, *size: Tensor) -> ReadNames:
            found, shown = best.tolist(), shown.cpu()
            sizes = size[0].tolist() if size else None
            if numbers:
                return ReadNames(name_targets(found), [None] * len(found), sizes)
            said = name_predictions(shown, found, names, multi)
            return ReadNames(name_targets(found), said, sizes, ClassLogits.of(shown, names, multi or single))

        return ScoreReading.later(contrast.score, [shown, best, *contrast.size], name)

    def _at_position(self, logits: Tensor, batch: Batch) -> ScoreReading:
        """[samples, positions, classes]: language models, masked language models, token classifiers."""
        if isinstance(self.target, Span):
            raise TargetError("a span is the target of a question-answering model.")
        at = self._positions(batch, logits, is_vocabulary(self.model, logits.shape[-1]))
        rows = logits[torch.arange(len(logits), device=logits.device), at]
        names = self._names_of(logits.shape[-1])
        shown = rows.detach()
        best = shown.argmax(-1)
        contrast = self._contrast(rows, best, names, independent=False)
        name_targets = contrast.name  # it holds no tensors of the run

        def name(shown: Tensor, best: Tensor, *size: Tensor) -> ReadNames:
            found = best.tolist()
            sizes = size[0].tolist() if size else None
            said: list[str | None] = [names(i) for i in found]
            return ReadNames(name_targets(found), said, sizes, ClassLogits.of(shown.cpu(), names))

        return ScoreReading.later(contrast.score, [shown, best, *contrast.size], name)

    def _positions(self, batch: Batch, logits: Tensor, vocabulary: bool) -> Tensor:
        real = real_outputs(batch, logits)
        if isinstance(self.target, Token):
            places = [self._place(self.target, batch, i, vocabulary) for i in range(len(real))]
            return torch.stack([nth(row, place) for row, place in zip(real, places, strict=True)])
        mask = getattr(self.tokenizer, "mask_token_id", None)
        if vocabulary and can_generate(self.model):
            return last_of_each(real)
        if vocabulary and mask is not None and batch.ids is not None and bool((batch.ids == mask).any(1).all()):
            first: Tensor = (batch.ids == mask).long().argmax(1)
            return first
        what = "has no mask token in its text" if vocabulary else "has one prediction for every token"
        raise TargetError(
            f"this model {what}: say which position is explained, target=hw.Token('word') or hw.Token(3, label)."
            f"{'' if vocabulary else ' hw.explain_entities explains all that it finds.'}"
        )

    def _place(self, target: Token, batch: Batch, sample: int, vocabulary: bool) -> int:
        """A position by its number among the real tokens."""
        if not isinstance(target.position, str):
            return target.position
        if isinstance(batch.kwargs.get("decoder_input_ids"), Tensor):
            raise TargetError(
                f"a decoder's positions are no words of the text: give a number, not {target.position!r}."
            )
        try:
            first, last = find_words(batch.items[sample], target.position)
        except TargetError as error:
            if not vocabulary or target.label is not None:
                raise
            word = target.position
            raise TargetError(
                f"{error} To explain {word!r} as what is predicted: target={word!r}, or hw.Token(label={word!r})."
            ) from error
        return last if vocabulary and can_generate(self.model) else first

    def _names_of(self, size: int) -> Names:
        """What is predicted at a position: tokens of the vocabulary, or classes."""
        vocabulary = is_vocabulary(self.model, size)
        return token_names(self.tokenizer, size) if vocabulary else class_names(self.model.config, size)

    def _labels(self, names: Names) -> tuple[int | str | None, int | str | None]:
        """The class that is explained, None for the predicted one, and the one that is subtracted."""
        if isinstance(self.target, Token):
            label, versus = self.target.label, self.target.versus
        else:
            label, versus = self.target, None  # type: ignore[assignment]
        if isinstance(label, str) and versus is None and not names.knows(label):
            return split_difference(label)
        return label, versus

    def _fix_labels(self, row: Tensor) -> tuple[int, int | None]:
        """Both by index, for one sample's logits [1, classes]."""
        names = self._names_of(row.shape[-1])
        label, versus = self._labels(names)
        first = int(row.argmax(-1)) if label is None else names.choose(label, row)[0]
        return first, None if versus is None else names.choose(versus, row)[0]

    def _contrast(self, rows: Tensor, best: Tensor, names: Names, independent: bool) -> Contrast:
        """The chosen class, or the difference of two; and the size of what that is a difference of.

        `best` is the likeliest class of each sample.
        """
        label, versus = self._labels(names)
        one = self._class(rows, label, best, names, independent)
        if versus is None:
            return replace(one, size=() if self.output in UNDIVIDED else one.size)
        other = self._class(rows, versus, best, names, independent)
        likeliest = best.tolist() if label is None else [0] * len(best)
        if one.name(likeliest) == other.name(likeliest):
            raise TargetError(
                f"{one.name(likeliest)[0]!r} is set against itself, which is 0 for every input. Name another class to "
                "set it against."
            )

        names_of_both = one.name, other.name

        def name(best: list[int]) -> list[str]:
            first, second = (found(best) for found in names_of_both)
            return [f"{a} - {b}" for a, b in zip(first, second, strict=True)]

        return Contrast(one.score - other.score, name, (one.size[0] + other.size[0],))

    def _class(self, rows: Tensor, label: Any, best: Tensor, names: Names, independent: bool) -> Contrast:
        """The score of a class, its name, and the size of the numbers that the score is made of.

        A log-probability or an advantage is a logit minus something of the size of the logits: their sizes add up.
        """
        chosen = None if label is None else names.choose(label, rows)
        index = (best if chosen is None else index_tensor(chosen, best)).unsqueeze(-1)
        score = read_out(rows, self.output, independent).gather(-1, index).squeeze(-1)
        size = score.detach().abs()
        if self.output not in UNDIVIDED:
            logit = rows.detach().gather(-1, index).squeeze(-1)
            size = logit.abs() + (logit - score.detach()).abs()
        return Contrast(score, lambda best: [names(i) for i in chosen or best], (size,))

    def _span(self, starts: Tensor, ends: Tensor, batch: Batch) -> ScoreReading:
        """Answer span: start logit + end logit; by default the best pair with start <= end.

        Padding can be no answer: probabilities are those among real tokens, as of a text alone.
        """
        real, (chosen, best) = self._choose_spans(starts, ends, batch)
        first, last = (read_out(logits.masked_fill(~real, -torch.inf), self.output, False) for logits in (starts, ends))
        a, b = first.gather(1, chosen[:, :1]).squeeze(1), last.gather(1, chosen[:, 1:]).squeeze(1)
        score = a * b if self.output == "probability" else a + b
        sizes = (a.detach().abs() + b.detach().abs()).tolist()  # of one sign or not
        named, predicted = ([f"tokens {i} to {j}" for i, j in number_tokens(real, one)] for one in (chosen, best))
        return ScoreReading(score, named, list(predicted), sizes)

    def _choose_spans(self, starts: Tensor, ends: Tensor, batch: Batch) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Which tokens are real, and the spans that are explained and predicted, [samples, 2] columns each."""
        real = real_outputs(batch, starts)
        best = best_spans(starts.detach(), ends.detach(), real)
        return real, (best if self.target is None else self._spans(real, batch), best)

    def _spans(self, real: Tensor, batch: Batch) -> Tensor:
        """[samples, 2]: the span that was asked for, in every sample. A plain text is the answer's words."""
        target = Span(self.target) if isinstance(self.target, str) else self.target
        if not isinstance(target, Span):
            raise TargetError(
                "the target of a question-answering model is a span: hw.Span('the answer') or hw.Span(start, end)."
            )
        try:
            return torch.stack([target.find(row, item) for row, item in zip(real, batch.items, strict=True)])
        except TargetError as error:
            raise TargetError(
                f"{error} An answer is a span of the text: hw.Span('its words') or hw.Span(start, end)."
            ) from error


def index_tensor(chosen: list[int], like: Tensor) -> Tensor:
    """A class for each sample, on the device of `like`. Where all are one, nothing is copied to a card."""
    return torch.full_like(like, chosen[0]) if len(set(chosen)) == 1 else like.new_tensor(chosen)


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
    if not hasattr(position, "__index__"):
        raise TargetError(f"a position is the number of a token, or a word of the text, not {position!r}.")
    places = real.nonzero().flatten()
    if not -len(places) <= position < len(places):
        raise TargetError(f"no position {position}: the sample has {say_count(len(places), 'token')}.")
    return places[position]


def last_of_each(real: Tensor) -> Tensor:
    """The last real position of every padded row. A card need not be waited for."""
    return (real * torch.arange(1, real.shape[1] + 1, device=real.device)).argmax(1)


def best_spans(starts: Tensor, ends: Tensor, real: Tensor) -> Tensor:
    """The pair start <= end with the largest sum, among real tokens."""
    sums = starts.unsqueeze(2) + ends.unsqueeze(1)
    possible = (real.unsqueeze(2) & real.unsqueeze(1)).triu()
    flat = sums.masked_fill(~possible, -torch.inf).flatten(1).argmax(1)
    return torch.stack([flat // starts.shape[1], flat % starts.shape[1]], 1)


def number_tokens(real: Tensor, columns: Tensor) -> list[list[int]]:
    """Columns of padded rows as numbers of real tokens, from 0."""
    found: list[list[int]] = (real.cumsum(1).gather(1, columns) - 1).tolist()
    return found
