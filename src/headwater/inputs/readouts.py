"""The score as a number of the model's outputs: the logit, or what is made of it, and what was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError, UnknownName
from .classes import ClassLogits
from .host_copies import HostCopies

OUTPUTS = ("logit", "advantage", "probability", "log-probability")
UNDIVIDED = ("logit", "probability")  # scores that are no difference of two numbers
TEMPERATURE = 2.0  # at which an advantage weighs the logits: chosen in docs/studies/language-default.md


@dataclass(frozen=True)
class ReadNames:
    """What the score of each sample is called, and what the model predicted."""

    targets: list[str]
    predictions: list[str | None]
    magnitudes: list[float] | None = None
    classes: list[ClassLogits] = field(default_factory=list)

    @cached_property
    def probabilities(self) -> list[dict[str, float]]:
        """The model's probabilities of classes, of each sample; none where the score was read from no classes."""
        if not self.classes:
            return [{} for _ in self.targets]
        return [one.probabilities(target) for one, target in zip(self.classes, self.targets, strict=True)]


class ScoreReading:
    """One score per sample, with what it is called and what the model predicted.

    `magnitudes`: where a score is a sum or a difference of two numbers, the sum of their absolute values (a
    log-probability is a logit minus the logarithm of a sum). `classes`: the logits that the score was read from.
    """

    def __init__(
        self,
        score: Tensor,
        targets: list[str],
        predictions: list[str | None],
        magnitudes: list[float] | None = None,
        classes: Sequence[ClassLogits] = (),
    ) -> None:
        self.score = score
        self.unread: list[Tensor] = []  # numbers that the names are made of, where they are not made yet
        self._sent: HostCopies | None = None
        self._name: Callable[..., ReadNames] = partial(ReadNames, targets, predictions, magnitudes, list(classes))

    @classmethod
    def later(cls, score: Tensor, unread: Sequence[Tensor], name: Callable[..., ReadNames]) -> ScoreReading:
        """A reading whose names are made of the numbers `unread` when they are first asked for.

        A card need not be waited for before the way back begins. Nobody may write into the numbers until then, or
        until they were sent.
        """
        found = cls(score, [], [])
        found.unread, found._name = list(unread), name
        return found

    def send(self) -> None:
        """Let a card copy the numbers to main memory when it comes to it."""
        if self._sent is None:
            self._sent = HostCopies(self.unread)

    @cached_property
    def names(self) -> ReadNames:
        return self._name(*(self.unread if self._sent is None else self._sent.wait()))

    @property
    def targets(self) -> list[str]:
        return self.names.targets

    @property
    def predictions(self) -> list[str | None]:
        return self.names.predictions

    @property
    def magnitudes(self) -> list[float] | None:
        return self.names.magnitudes

    @property
    def classes(self) -> list[ClassLogits]:
        return self.names.classes

    def prepare(self) -> None:
        """Make the names and the probabilities, once the numbers have come: the way back may still be computed."""
        _ = self.names.probabilities


def join_readings(parts: Sequence[ScoreReading], score: Tensor) -> ScoreReading:
    """What was read of samples one by one, as that of a batch with these scores."""
    return ScoreReading(
        score,
        [target for part in parts for target in part.targets],
        [prediction for part in parts for prediction in part.predictions],
        [size for part in parts for size in part.magnitudes or ()] or None,
        [one for part in parts for one in part.classes],
    )


def logits_of(out: Any) -> Tensor:
    if isinstance(out, Tensor):
        return out
    named = out.get("logits") if isinstance(out, Mapping) else getattr(out, "logits", None)
    for value in (named, *(out if isinstance(out, (tuple, list)) else ())):
        if isinstance(value, Tensor):
            return value
    raise TargetError(f"the model gives {type(out).__name__} without logits; pass score= to say what is explained.")


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
