"""How explanations are judged, as one value with a name and a version: two results are comparable when it is equal.

`ali2022` is the protocol of Ali et al. (2022) as their code ran it, with one difference: the number of items at a
fraction f is ceil(f · N) in exact arithmetic. Theirs was computed in floating point, whose noise makes some counts one
too large (N = 10 gave 0 1 2 4 4 5 7 8 8 9 10).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnknownName, UsageError, in_range

TENTHS = tuple(Fraction(i, 10) for i in range(11))
ERASER_BINS = tuple(Fraction(percent, 100) for percent in (1, 5, 10, 20, 50))

CHOICES = {
    "special_tokens": ("ranked", "kept"),
    "target": ("true", "predicted"),
    "error": ("sum", "mean"),
}
REMOVALS = ("induced", "masked")
MOST_TOKENS = 2**31 - 1
REPLACEMENTS = ("unk", "mask", "pad", "mean")


@dataclass(frozen=True)
class Protocol:
    """The choices behind a number. `replace` makes a variant, whose name says what was changed.

    `fractions`: the steps of a curve. `bins`: the shares that comprehensiveness and sufficiency are averaged over.
    `special_tokens`: "ranked" and replaced like any other token, so that N counts them, or "kept" in every input.
    `replacement`: "unk" (where a tokenizer has none: its mask, then its padding token), "mask", "pad", or a token id;
    for images "mean", the colour that a processor makes zero.
    `target`: the class whose logit is explained and whose probability the activation curve follows.
    `error`: whether the pruning error is the sum or the mean over the logits.
    `max_length`: texts are cut at this many tokens, or where the model ends if that is earlier.
    `removal`: for graphs, what a graph is without a node: "induced" (degrees and paths found anew) or "masked" (the
    node's embedding is zero). None for texts.
    """

    name: str
    version: int
    fractions: tuple[Fraction, ...] = TENTHS
    bins: tuple[Fraction, ...] = ERASER_BINS
    special_tokens: str = "ranked"
    replacement: str | int = "unk"
    target: str = "true"
    error: str = "sum"
    max_length: int | None = 256
    removal: str | None = None

    def __post_init__(self) -> None:
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise UnknownName(f"choice of {field}", getattr(self, field), known)
        if self.removal is not None and self.removal not in REMOVALS:
            raise UnknownName("choice of removal", self.removal, REMOVALS)
        if not is_id(self.replacement) and self.replacement not in REPLACEMENTS:
            raise UnknownName("replacement", self.replacement, (*REPLACEMENTS, "a token id"))
        if self.max_length is not None and not is_id(self.max_length):
            raise UsageError(f"max_length must be a number of tokens, not {self.max_length!r}.")
        if self.max_length is not None:
            in_range("max_length", self.max_length, 1, MOST_TOKENS)
        object.__setattr__(self, "fractions", read_shares(self.fractions, "fractions", least=2))
        object.__setattr__(self, "bins", read_shares(self.bins, "bins", least=1))

    def replace(self, **changes: Any) -> Protocol:
        """The same protocol with other choices, which then stand in its name: `ali2022(special_tokens=kept)`."""
        known = [f.name for f in dataclasses.fields(self) if f.name not in ("name", "version")]
        for choice in changes:
            if choice not in known:
                raise UnknownName("choice of a protocol", choice, known)
        changed = dataclasses.replace(self, **changes)
        base = PROTOCOLS.get(self.name.partition("(")[0], self)
        differing = [name for name in known if getattr(changed, name) != getattr(base, name)]
        said = ",".join(f"{name}={write_choice(getattr(changed, name))}" for name in differing)
        return dataclasses.replace(changed, name=f"{base.name}({said})" if said else base.name)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON. Fractions are written exactly, as "1/10"; removal where it is said."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.removal is None:
            del found["removal"]
        return {**found, "fractions": [str(f) for f in self.fractions], "bins": [str(b) for b in self.bins]}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Protocol:
        return cls(**found)


def is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_shares(values: Iterable[Any], what: str, least: int) -> tuple[Fraction, ...]:
    """Exact fractions from 0 to 1, ascending. A float is read as it is written: 0.1 is a tenth."""
    try:
        found = tuple(value if isinstance(value, Fraction) else Fraction(str(value)) for value in values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} must be numbers from 0 to 1: {error}.") from error
    ascending = all(a < b for a, b in pairwise(found))
    if len(found) < least or not ascending or not all(0 <= f <= 1 for f in found):
        raise UsageError(f"{what} must be at least {least} ascending numbers from 0 to 1, not {write_choice(found)}.")
    return found


def counts(fractions: Iterable[Fraction], items: int) -> NDArray[np.intp]:
    """ceil(f · N) for each fraction, in integers: N = 10 gives 0 1 2 3 4 5 6 7 8 9 10."""
    return np.array([-(-f.numerator * items // f.denominator) for f in fractions], dtype=np.intp)


def write_choice(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


ali2022: Protocol = Protocol("ali2022", version=1)

PROTOCOLS: dict[str, Protocol] = {ali2022.name: ali2022}

VARIANT = re.compile(r"(?P<base>[^()]+?)\s*(\((?P<choices>[^()]*)\))?\s*")


def resolve_protocol(protocol: str | Protocol) -> Protocol:
    """The protocol called so: `ali2022`, or with other choices `ali2022(special_tokens=kept,target=predicted)`."""
    if isinstance(protocol, Protocol):
        return protocol
    parts = VARIANT.fullmatch(protocol) if isinstance(protocol, str) else None
    if parts is None or parts["base"].strip().lower() not in PROTOCOLS:
        raise UnknownName("protocol", protocol, PROTOCOLS)
    base = PROTOCOLS[parts["base"].strip().lower()]
    return base.replace(**dict(parse_choice(part) for part in (parts["choices"] or "").split(",") if part.strip()))


def parse_choice(part: str) -> tuple[str, Any]:
    """ "max_length=128" -> its name and its value."""
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise UsageError(f"a choice of a protocol is written name=value, not {part.strip()!r}.")
    if name in ("fractions", "bins"):
        return name, value.split("+")
    if value.isascii() and value.isdigit() and len(value) < 20:
        return name, int(value)
    return name, None if value == "none" else value
