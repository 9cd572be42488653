"""What a method's name may set in its brackets: `integrated-gradients(steps=64, baseline=zero)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnknownName, UsageError, in_range
from ..names import split_names

__all__ = ["Parameter", "baseline", "number", "one_of", "samples", "whole_number"]

BASELINES = ("unk", "mask", "pad", "zero")
MOST_SAMPLES = 100_000


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method. `read` makes its value of what was written, or refuses it.

    `default` is for readers: what is taken where nothing is said. A `leading` one is written without its name.

    Example:
        >>> from headwater.methods.parameters import Parameter
        >>> Parameter("side", "left", "where it begins", str.lower).read("Right")
        'right'
    """

    name: str  # as it is written in brackets
    default: str  # what is taken where nothing is said, in words
    summary: str  # one line for lists
    read: Callable[[str], Any]  # makes its value of what was written, or refuses it
    leading: bool = False  # whether it is written without its name

    def describe(self) -> dict[str, str]:
        """Name, default and summary, for lists."""
        return {"name": self.name, "default": self.default, "summary": self.summary}


def whole_number(
    name: str, default: str | int, summary: str, least: int, most: int, leading: bool = False
) -> Parameter:
    """A parameter that is a whole number.

    Args:
        name: of the parameter.
        default: what is taken where nothing is said.
        summary: a line for lists.
        least: the least that it may be.
        most: the most that it may be.
        leading: it is written without its name.

    Returns:
        A `Parameter`; its `read` refuses what is no such number.

    Raises:
        UsageError: `read` is given what is no whole number.

    Example:
        >>> from headwater.methods.parameters import whole_number
        >>> whole_number("steps", 50, "on the way", 1, 1000).read("20")
        20
    """

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text):
            raise UsageError(f"{name} is a whole number from {least} to {most:,}, not {text!r}.")
        return in_range(name, int(text), least, most)

    return Parameter(name, str(default), summary, read, leading)


def number(name: str, default: float, summary: str, least: float, most: float) -> Parameter:
    """A parameter that is a number.

    Args:
        name: of the parameter.
        default: what is taken where nothing is said.
        summary: a line for lists.
        least: the least that it may be.
        most: the most that it may be.

    Returns:
        A `Parameter`; its `read` refuses what is no such number.

    Raises:
        UsageError: `read` is given what is no number.

    Example:
        >>> from headwater.methods.parameters import number
        >>> number("power", 1.0, "of the size", 0.0, 10.0).read("2.5")
        2.5
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError as error:
            raise UsageError(f"{name} is a number from {least:g} to {most:g}, not {text!r}.") from error
        return in_range(name, value, least, most)

    return Parameter(name, str(default), summary, read)


def one_of(name: str, default: str, summary: str, known: Sequence[str], leading: bool = False) -> Parameter:
    """A parameter that is one of some words.

    Args:
        name: of the parameter.
        default: what is taken where nothing is said.
        summary: a line for lists.
        known: the words.
        leading: it is written without its name.

    Returns:
        A `Parameter`; its `read` refuses other words.

    Raises:
        UnknownName: `read` is given another word; the nearest is offered.

    Example:
        >>> from headwater.methods.parameters import one_of
        >>> one_of("side", "left", "where it begins", ("left", "right")).read("right")
        'right'
    """

    def read(text: str) -> str:
        if text not in known:
            raise UnknownName(name, text, known)
        return text

    return Parameter(name, default, summary, read, leading)


def baseline(leading: bool = False) -> Parameter:
    """A parameter called `baseline`: the input that stands for "nothing there".

    Args:
        leading: it is written without its name.

    Returns:
        A `Parameter`.

    Example:
        >>> from headwater.methods.parameters import baseline
        >>> baseline().read("mask")
        'mask'
    """
    default = "unk, else mask, pad, zero"
    return one_of("baseline", default, f"what stands for no token: {', '.join(BASELINES)}", BASELINES, leading)


def samples(default: int, what: str, least: int = 1) -> Parameter:
    """A parameter called `samples`: how often something is drawn.

    Args:
        default: what is taken where nothing is said.
        what: a line for lists.
        least: the least that it may be.

    Returns:
        A `Parameter`.

    Example:
        >>> from headwater.methods.parameters import samples
        >>> samples(20, "noisy copies").read("50")
        50
    """
    return whole_number("samples", default, what, least, MOST_SAMPLES)


def read_arguments(method: str, known: Sequence[Parameter], written: str) -> dict[str, str]:
    """What stands in the brackets, by name. An unknown name is answered with those there are."""
    by_name = {parameter.name: parameter for parameter in known}
    leading = [parameter.name for parameter in known if parameter.leading] or [p.name for p in known[:1]]
    found: dict[str, str] = {}
    for place, part in enumerate(split_names(written)):
        name, sign, value = part.partition("=")
        if not sign or "(" in name:  # a method in brackets has signs of its own: smoothgrad(lrp(gate=half))
            if place >= len(leading):
                raise UsageError(f"{part!r} has no name. {say_parameters(method, known)}")
            name, value = leading[place], part
        if name not in by_name:
            raise UsageError(f"{method} has no parameter {name!r}. {say_parameters(method, known)}")
        if name in found:
            raise UsageError(f"{method} is given {name} twice.")
        found[name] = value
    return found


def say_parameters(method: str, known: Sequence[Parameter]) -> str:
    """Those that a method has, for a message."""
    said = "; ".join(f"{p.name}= ({p.summary}; default {p.default})" for p in known)
    return f"It takes {said}." if known else f"{method} takes no parameters."


def spell_name(method: str, known: Sequence[Parameter], given: Mapping[str, str]) -> str:
    """The name that gives the same method again: what was said, in the order of the parameters."""
    parts = [
        given[parameter.name] if parameter.leading else f"{parameter.name}={given[parameter.name]}"
        for parameter in known
        if parameter.name in given
    ]
    return f"{method}({','.join(parts)})" if parts else method
