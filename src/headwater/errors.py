"""One tree of exceptions. Every message says what was asked, what was found and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = [
    "AnotherPrediction",
    "BadRow",
    "DamagedRun",
    "DataError",
    "EmptyInput",
    "HeadwaterError",
    "HiddenOperation",
    "InputError",
    "JobStopped",
    "LoadError",
    "MissingExtra",
    "ModelError",
    "NoSignal",
    "NotApplicable",
    "NotFinite",
    "OutOfRange",
    "RandomPrediction",
    "RuleNotMet",
    "TargetError",
    "TooLong",
    "TrainingMode",
    "UnknownName",
    "UnsafeWeights",
    "UsageError",
]

Number = TypeVar("Number", int, float)


class HeadwaterError(Exception):
    """Base of everything Headwater raises on purpose. Pickled or copied, it keeps its message and its attributes.

    Python would call the class again with the message alone, which fails where a class composes its message from other
    arguments: a worker process could not say what was wrong.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        usual: tuple[Any, ...] = tuple(super().__reduce__())
        return (restore, usual[:2], *usual[2:])


class UsageError(HeadwaterError, ValueError):
    """The call cannot be carried out as it was written."""


class UnknownName(UsageError):
    """A method, rule, class or place that does not exist; the nearest existing name is offered."""

    def __init__(self, kind: str, name: object, known: Iterable[str], hint: str = "") -> None:
        self.name = name
        self.known: tuple[str, ...] = tuple(known)
        super().__init__(f"no {kind} called {name!r}. {nearest(str(name), self.known)}{hint}")


class OutOfRange(UsageError):
    """A number outside the range that it may have. NaN is in none."""

    def __init__(self, what: str, value: float, least: float, most: float) -> None:
        self.value = value
        self.least = least
        self.most = most
        super().__init__(f"{what} must be from {least:,.15g} to {most:,.15g}, not {value}.")


def in_range(what: str, value: Number, least: float, most: float) -> Number:
    """The number itself, if it is in its range."""
    if not least <= value <= most:
        raise OutOfRange(what, value, least, most)
    return value


def check_least(what: str, value: float | None, least: int = 1) -> None:
    """Refuses a number that is too small; where there is none, there is nothing to refuse."""
    if value is not None and value < least:
        raise UsageError(f"{what} must be at least {least}, not {value}.")


def check_whole(what: str, value: object) -> None:
    """Refuses what is no whole number."""
    if not hasattr(value, "__index__"):
        raise UsageError(f"{what} must be a whole number, not {value!r}.")


class InputError(UsageError):
    """The text, tensor or file to be explained is not usable."""


class EmptyInput(InputError):
    """There is nothing to explain."""


class TooLong(InputError):
    """The text has more tokens than the model has positions."""

    def __init__(self, length: int, limit: int, which: str = "the text") -> None:
        self.length = length
        self.limit = limit
        super().__init__(
            f"{which} has {length} tokens, the model takes at most {limit}. Pass truncate=True to cut it "
            "there, or window=True to explain it in overlapping windows."
        )


class TargetError(UsageError):
    """The score to be explained cannot be read from the model's output."""


class ModelError(HeadwaterError):
    """The model cannot be explained as it is."""


class TrainingMode(ModelError):
    """Dropout and batch statistics would make the prediction random."""

    def __init__(self, module: str) -> None:
        super().__init__(f"{module} is in training mode, so its prediction is not fixed. Call model.eval() first.")


class RandomPrediction(ModelError):
    """The model's prediction is not fixed in evaluation mode."""


class AnotherPrediction(ModelError):
    """Under the rules the model predicts something else than it does plainly."""


class NotFinite(ModelError):
    """A NaN or an infinity in the weights, the prediction or the relevance."""


class HiddenOperation(ModelError):
    """An operation that the rules cannot see into, so relevance would be silently wrong."""


class NoSignal(ModelError):
    """The score does not depend on the input that is to be explained."""


class RuleNotMet(ModelError):
    """A rule was asked for and met no operation of the model."""


class NotApplicable(ModelError):
    """A method that does not apply to this model: it needs something that the model does not have."""


class UnsafeWeights(ModelError):
    """Weights that can only be read by unpickling were refused."""


class LoadError(ModelError):
    """A model directory or hub name that cannot be loaded."""


class DataError(HeadwaterError):
    """A dataset that is missing or not what it should be."""


class DamagedRun(DataError):
    """A file of a run that is missing, or is not as it was written; the command that wrote the run makes it again."""


class BadRow(DataError):
    """A row that cannot be explained, where none was to be passed over."""


class JobStopped(HeadwaterError):
    """A run over a dataset that had to stop in the middle; what is done is kept, and the same call goes on."""


class MissingExtra(HeadwaterError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str, distribution: str = "headwater") -> None:
        super().__init__(f"{what} needs: pip install '{distribution}[{extra}]'")


@contextmanager
def require_extra(what: str, extra: str, distribution: str = "headwater") -> Iterator[None]:
    """Around imports of what is optional: where it is missing, the error names the extra that has it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(what, extra, distribution) from error


def restore(kind: type[HeadwaterError], arguments: tuple[Any, ...]) -> HeadwaterError:
    """An error as it was pickled: made without its own `__init__`, by that of Python's exception that it is."""
    error = kind.__new__(kind, *arguments)
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    builtin.__init__(error, *arguments)
    return error


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint after an unknown name: the nearest known one, or the whole list where none is near."""
    known = [str(k) for k in known]
    by_case = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {by_case[close[0]]!r}?"
    shown = ", ".join(repr(k) for k in known[:20])
    return f"Known: {shown}{', …' if len(known) > 20 else ''}." if known else "None is known here."
