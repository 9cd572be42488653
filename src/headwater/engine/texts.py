"""Many texts, or one that is too long: batches of like length, and overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, TargetError, UsageError, check_least
from ..inputs.batch import Batch, group_by_length
from ..inputs.places import InputPlace
from ..inputs.readouts import logits_of
from ..inputs.targets import Reader, Span, Token
from ..inputs.text import (
    Encoded,
    Text,
    can_generate,
    check_takes_texts,
    encode,
    fit_arguments,
    keeps_places,
    length_limit,
    padding_id,
    padding_side,
    takes,
    takes_mask,
    to_batch,
)
from ..results.explanation import Explanation
from ..results.ledger import Ledger, Lines
from .steps import Plan, Step


@dataclass
class TextJob:
    """Texts to be explained with one model, in batches."""

    model: nn.Module
    tokenizer: Any
    batch_size: int
    truncate: bool
    place: InputPlace

    def __post_init__(self) -> None:
        if self.tokenizer is None:
            raise InputError("a text needs a tokenizer: explain(model, text, tokenizer=tokenizer).")
        if not callable(self.tokenizer):
            raise InputError(f"tokenizer= is a tokenizer, not {self.tokenizer!r}: AutoTokenizer.from_pretrained(…).")
        check_takes_texts(self.model)
        check_least("batch_size", self.batch_size)
        self.limit: int | None = length_limit(self.model, self.tokenizer)
        self.pad: int | None = padding_id(self.model, self.tokenizer)
        self.side: str = padding_side(self.model, self.tokenizer)
        self.pads: bool = keeps_places(self.side)

    def plan(self, texts: Sequence[Text], reader: Reader) -> Plan:
        """One explanation per text, in their order; every text is checked before any work is done."""
        return self.make_plan(encode(texts, self.tokenizer, self.limit, self.truncate), reader)

    def make_plan(self, encoded: Sequence[Encoded], reader: Reader) -> Plan:
        groups = self.batches(encoded)

        def gather(found: Sequence[list[Explanation]]) -> list[Explanation]:
            order = (i for group, _ in groups for i in group)
            results = dict(zip(order, chain.from_iterable(found), strict=True))
            return [results[i] for i in range(len(encoded))]

        return Plan([Step(read_last(self.model, batch, reader), reader) for _, batch in groups], gather)

    @property
    def mixes(self) -> bool:
        """Without a padding token or a mask, or for a classifier whose config names none, each text goes alone."""
        config = getattr(self.model, "config", None)
        unnamed = config is not None and getattr(config, "pad_token_id", 0) is None
        masked = "attention_mask" in getattr(self.tokenizer, "model_input_names", ["attention_mask"])
        told = can_generate(self.model) or (masked and not unnamed)
        return self.pad is not None and takes_mask(self.model) and told

    def batches(self, encoded: Sequence[Encoded]) -> list[tuple[list[int], Batch]]:
        groups = group_by_length(
            [e.length for e in encoded], most=self.batch_size if self.mixes else 1, mixes=self.pads
        )
        if self.place.lookups:
            groups = [part for group in groups for part in split_square(group, encoded[group[0]].length)]
        return [(group, self.batch([encoded[i] for i in group])) for group in groups]

    def batch(self, encoded: Sequence[Encoded]) -> Batch:
        """Texts that are run together."""
        batch = to_batch(encoded, self.pad, self.side, self.place.modules)
        return replace(fit_arguments(self.model, batch), at=self.place.name, lookups=self.place.lookups)


TOLD = {"input_ids", "attention_mask", "position_ids", "token_type_ids"}


def read_last(model: nn.Module, batch: Batch, reader: Reader) -> Batch:
    """Where only the last token's prediction is read, the model is told to make no other.

    The others are as many numbers as tokens times words of the vocabulary, computed, kept and added up for nothing.
    """
    target = reader.target
    other = callable(target) or isinstance(target, Span) or (isinstance(target, Token) and target.position != -1)
    if other or not set(batch.kwargs) <= TOLD or not can_generate(model) or not takes(model, "logits_to_keep"):
        return batch
    if batch.real is None or not bool(batch.real[:, -1].all()):
        return batch
    return replace(batch, kwargs={**batch.kwargs, "logits_to_keep": 1})


def split_square(group: list[int], longest: int) -> list[list[int]]:
    """As many texts as tokens: inside a layer it could not be told which axis is which. One text then goes alone."""
    return [group[:-1], group[-1:]] if len(group) == longest > 1 else [group]


def in_windows(job: TextJob, text: Text, stride: int | None, reader: Reader) -> Plan:
    """A text of any length. The score is the mean of the windows' scores for one class, so the ledger still adds up.

    Windows are as long as the model allows and overlap by `stride` tokens (default: a quarter). Unless a target is
    given it is the class with the largest mean logit.
    """
    (whole,) = encode([text], job.tokenizer, None, False)
    if job.limit is None or whole.length <= job.limit:
        return job.make_plan([whole], reader)
    parts = cut_windows(whole, job.limit, stride if stride is not None else job.limit // 4)
    encoded = [part for part, _ in parts]
    if reader.target is None:
        logits = mean_logits(job, encoded)
        if logits is None:
            raise TargetError("windows are for models that give one prediction a text.")
        reader = replace(reader, target=int(logits.argmax()))
    plan = job.make_plan(encoded, reader)

    def gather(found: Sequence[list[Explanation]]) -> list[Explanation]:
        made = plan.gather(found)
        said = {e.prediction for e in made}
        prediction = said.pop() if len(said) == 1 else predict_mean(job, encoded)
        return [replace(average_windows(whole, made, [places for _, places in parts]), prediction=prediction)]

    return Plan(plan.steps, gather)


def cut_windows(whole: Encoded, limit: int, stride: int) -> list[tuple[Encoded, list[int]]]:
    """Each window with the special tokens around it, and where its tokens stand in the whole text."""
    special = whole.item.special
    body = [i for i, s in enumerate(special) if not s]
    before, after = list(range(body[0])), list(range(body[-1] + 1, len(special)))
    room = limit - len(before) - len(after)
    if not 0 <= stride < room:
        raise UsageError(f"windows of {room} tokens cannot overlap by {stride}; stride must be from 0 to {room - 1}.")
    if isinstance(whole.item.text, tuple):
        raise InputError("a pair of texts cannot be split into windows; pass truncate=True instead.")
    found, inner = [], range(body[0], body[-1] + 1)
    for start in range(0, max(1, len(inner) - stride), room - stride):
        places = before + list(inner[start : start + room]) + after
        fields = {name: [values[p] for p in places] for name, values in whole.fields.items()}
        item = replace(whole.item, tokens=tuple(whole.item.tokens[p] for p in places))
        found.append((Encoded(fields, item), places))
    return found


def mean_logits(job: TextJob, encoded: Sequence[Encoded]) -> Tensor | None:
    """[1, classes]: the mean over windows. None of a model that gives more than one prediction a text."""
    device = next(job.model.parameters()).device
    total: list[Tensor] = []
    for _, batch in job.batches(encoded):
        with torch.no_grad():
            logits = logits_of(job.model(**batch.to(device, None).kwargs))
        if logits.dim() != 2:
            return None
        total.append(logits)
    return torch.cat(total).mean(0, keepdim=True)


def predict_mean(job: TextJob, encoded: Sequence[Encoded]) -> str | None:
    """What windows that predict different things say together: the class of their mean logits."""
    logits = mean_logits(job, encoded)
    if logits is None:
        return None
    return Reader(job.model, job.tokenizer, None)(logits, Batch(1, [encoded[0].item])).predictions[0]


def average_windows(whole: Encoded, found: Sequence[Explanation], places: Sequence[list[int]]) -> Explanation:
    """The mean over windows, token by token and line by line."""
    count = len(found)
    relevance = torch.zeros(whole.length, dtype=found[0].relevance.dtype)
    for e, at in zip(found, places, strict=True):
        relevance.index_add_(0, torch.tensor(at), e.relevance / count)
    ledgers = [e.ledger for e in found]
    ledger = Ledger(
        score=sum(one.score for one in ledgers) / count,
        inputs=float(relevance.double().sum()),
        biases=mean_lines([one.biases for one in ledgers]),
        constants=mean_lines([one.constants for one in ledgers]),
        readout=sum(one.readout for one in ledgers) / count,
        dtype=ledgers[0].dtype,
        cut_off=mean_lines([one.cut_off for one in ledgers]),
        held=mean_lines([one.held for one in ledgers]),
        cut_size=sum(one.cut_size for one in ledgers) / count,
        magnitude=sum(one.magnitude for one in ledgers) / count,
        spread=float(relevance.double().abs().sum()),
    )
    return replace(
        found[0],
        tokens=whole.item.tokens,
        relevance=relevance,
        score=ledger.score,
        ledger=ledger,
        special=whole.item.special,
        windows=count,
        probabilities=dict(mean_lines([Lines(e.probabilities) for e in found])),
    )


def mean_lines(lines: Sequence[Lines]) -> Lines:
    names = {name: None for line in lines for name in line}
    return Lines({name: sum(line.get(name, 0.0) for line in lines) / len(lines) for name in names})
