"""The variants of attention by name: the values of `ah=`."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ...errors import UnknownName


class Softmax(Enum):
    """What a variant makes of the softmax in attention."""

    CONSTANT = "constant"  # no relevance goes to the scores
    GRADIENT = "gradient"  # it keeps its gradient, which does not conserve
    LINEAR = "linear"  # it is a linear function of its scores plus constants, and the constants are booked


class Named(Protocol):
    """What a scope knows of a variant. `variant.Variant` has the rest."""

    name: str
    softmax: Softmax


VARIANTS: dict[str, Named] = {}


def find_variant(name: str) -> Named:
    """The variant called `name`. An unknown name is an error that offers the nearest one."""
    if name not in VARIANTS:
        raise UnknownName("share for 'ah'", name, VARIANTS)
    return VARIANTS[name]
