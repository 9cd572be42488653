"""What a protocol for language models is: a value with a name, a version and choices. Equal values are comparable."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import UnknownName
from ..protocols import write_choice
from ..ranking import Floats
from ..statistics import rank_correlation
from .asking import OWN_DTYPE, AnsweringModel, PosedPrompt
from .prompts import PromptCase, digest_of


@dataclass(frozen=True)
class ProtocolColumn:
    """One number per prompt and method. `better`: whether a higher or a lower one is."""

    name: str
    better: Literal["higher", "lower"] = "higher"
    decimals: int = 2

    @property
    def sign(self) -> int:
        return 1 if self.better == "higher" else -1


class PosedCase(ABC):
    """A prompt that a protocol keeps, put to the model: `measure` judges one relevance of its tokens."""

    prompt: PosedPrompt
    reads_in: str = OWN_DTYPE

    @abstractmethod
    def measure(self, relevance: Floats) -> dict[str, float]:
        """Numbers by the names of the protocol's columns."""


@dataclass(frozen=True)
class CaseSet:
    """The prompts of one set: what was read, and, where a protocol swaps tokens, what it draws them from."""

    name: str
    cases: Sequence[PromptCase]
    pool: Any = dataclasses.field(default=None, repr=False)

    @property
    def digest(self) -> str:
        return digest_of(self.cases)


@dataclass(frozen=True)
class LanguageProtocol(ABC):
    """How explanations of a language model are judged. `least_probability`: of the answer, for a prompt to be kept.

    `most_tokens`: of a prompt. `seed`: of what is drawn (tokens that stand in, places, sentences left out).
    """

    name: ClassVar[str]
    version: ClassVar[int]
    sets: ClassVar[tuple[str, ...]]
    takes_own: ClassVar[bool] = False  # prompts of the user's own

    least_probability: float = 0.1
    most_tokens: int = 260
    seed: int = 0

    @property
    @abstractmethod
    def columns(self) -> tuple[ProtocolColumn, ...]:
        """What is measured of each prompt."""

    @abstractmethod
    def read(self, data: str, half: str, tokenizer: Any, own: Path | None = None) -> CaseSet:
        """The prompts of one set and half."""

    @abstractmethod
    def pose(self, model: AnsweringModel, case: PromptCase, cases: CaseSet) -> PosedCase | None:
        """The prompt put to the model; None where the protocol leaves it out."""

    @property
    def choices(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __str__(self) -> str:
        """Name and version, and the choices that are not the usual ones: `single-token 2(most_tokens=100)`."""
        usual = type(self)().choices
        said = [f"{name}={write_choice(value)}" for name, value in self.choices.items() if value != usual[name]]
        return f"{self.name} {self.version}" + (f"({','.join(said)})" if said else "")

    def to_dict(self) -> dict[str, Any]:
        choices = {k: [str(x) for x in v] if isinstance(v, tuple) else v for k, v in self.choices.items()}
        return {"name": self.name, "version": self.version, **choices}

    def check_set(self, data: str) -> str:
        if data not in self.sets:
            raise UnknownName(f"set of prompts of {self.name}", data, self.sets)
        return data


ANSWERS = ("token", "whole")


@dataclass(frozen=True)
class AnswerProtocol(LanguageProtocol):
    """A protocol of answers that may be longer than a token.

    `answer`: "token", the first one is explained, and its log-probability is what changes; or "whole", the sum over all
    tokens of the answer. `least_probability` is that of a token, of a whole answer the geometric mean. `reads_in`: the
    dtype in which prompts with something taken out are read, also by methods that do so; all others explain the model
    in its own.
    """

    answer: str = "token"
    reads_in: str = OWN_DTYPE

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise UnknownName(f"answer of {self.name}", self.answer, ANSWERS)

    @property
    def whole(self) -> bool:
        return self.answer == "whole"

    def likely(self, score: float, prompt: PosedPrompt) -> bool:
        """Whether the model would say the answer, whose log-probability is `score`."""
        return bool(np.exp(score / len(prompt.answer)) > self.least_probability)


def correlate_ranks(a: Floats, b: Floats) -> float:
    """Spearman's; 0 where one of them has no order."""
    found = rank_correlation(a, b)
    return 0.0 if np.isnan(found) else found
