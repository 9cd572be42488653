"""Shares by name: how a product is divided between its factors, as a part of a method's name.

`shares(q=0.35,k=0.15,v=0.5)` for attention, `shares(gate=0.3,value=0.7)` for a gate. They add up to 1. In attention,
`offset=values` gives the part of the weights that comes from no score to the values.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import NamedTuple

from ..errors import UnknownName, UsageError, in_range

GATES = {"constant": 0.0, "half": 0.5}  # what the gate takes of its product
OFFSETS = ("constant", "values")  # who takes what comes from no score
SLACK = 1e-9  # by which shares may miss 1


@cache
def parse_shares(text: str, names: tuple[str, ...]) -> tuple[float, ...] | None:
    """The shares that `text` gives to each of `names`, 0 where it says nothing; None if it is no such text."""
    match = re.fullmatch(r"shares\((.*)\)", text.replace(" ", ""))
    if match is None:
        return None
    given: dict[str, float] = {}
    for part in match[1].split(","):
        name, _, value = part.partition("=")
        if name not in names:
            raise UnknownName(f"part in {text!r}", name, names)
        try:
            given[name] = in_range(f"the share of {name}", float(value), 0.0, 1.0)
        except ValueError as error:
            raise UsageError(f"the share of {name} is a number from 0 to 1, not {value!r}.") from error
    if not math.isclose(sum(given.values()), 1.0, abs_tol=SLACK):
        raise UsageError(f"the shares in {text!r} must add up to 1, and add up to {sum(given.values()):g}.")
    return tuple(given.get(name, 0.0) for name in names)


class AttentionShares(NamedTuple):
    """What queries, keys and values take of attention; and who takes the offset: a constant, or the values."""

    query: float
    key: float
    value: float
    offset: str = "constant"


def parse_attention(text: str) -> AttentionShares | None:
    """shares(q=0.35,k=0.15,v=0.5,offset=values); None if it is no such text."""
    plain = text.replace(" ", "")
    whose = re.search(r"\boffset=(\w*)", plain)
    found = parse_shares(re.sub(r",?offset=\w*", "", plain).replace("(,", "("), ("q", "k", "v"))
    if found is None:
        return None
    query, key, value = found
    if whose is None:
        return AttentionShares(query, key, value)
    if whose[1] not in OFFSETS:
        raise UnknownName(f"place for the offset in {text!r}", whose[1], OFFSETS)
    return AttentionShares(query, key, value, whose[1])


def parse_gate(text: str) -> float:
    """What the gate takes of a product: nothing ("constant"), "half", or its share."""
    if text in GATES:
        return GATES[text]
    found = parse_shares(text, ("gate", "value"))
    if found is None:
        raise UnknownName("share for 'gate'", text, (*GATES, "shares(gate=0.5,value=0.5)"))
    return found[0]
