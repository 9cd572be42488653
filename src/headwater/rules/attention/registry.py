"""The variants of attention by name: the values of `ah=`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fnmatch import fnmatchcase
from typing import Protocol

from ...errors import UnknownName, UsageError

USUAL = "constant"  # where a table has no pattern that matches
EVERYWHERE = "*"


class Softmax(Enum):
    """What a variant makes of the softmax in attention.

    Example:
        >>> from headwater.rules import Softmax
        >>> [one.value for one in Softmax]
        ['constant', 'gradient', 'linear']
    """

    CONSTANT = "constant"  # no relevance goes to the scores
    GRADIENT = "gradient"  # it keeps its gradient, which does not conserve
    LINEAR = "linear"  # it is a linear function of its scores plus constants, and the constants are booked


class Named(Protocol):
    """What a scope knows of a variant. `variant.Variant` has the rest."""

    name: str
    softmax: Softmax


Choice = str | tuple[tuple[str, str], ...]  # one variant for all, or variants by patterns of modules' names


class AsksAttention(Protocol):
    """What says which variant is asked for: a `RuleSet`."""

    @property
    def attention(self) -> Choice: ...


VARIANTS: dict[str, Named] = {}
FAMILIES: dict[str, tuple[str, Callable[[str], Named]]] = {}  # word before "(" -> an example, and what makes a variant


def find_variant(name: str) -> Named:
    """The variant called `name`. An unknown name is an error that offers the nearest one."""
    if name in VARIANTS:
        return VARIANTS[name]
    family = FAMILIES.get(name.partition("(")[0].strip())
    if family is None:
        raise UnknownName("share for 'ah'", name, (*VARIANTS, *(example for example, _ in FAMILIES.values())))
    return family[1](name)


def variant_for(rules: AsksAttention, where: str) -> Named:
    """The variant in the module called `where`. Of a table the last pattern that matches counts."""
    if isinstance(rules.attention, str):
        return find_variant(rules.attention)
    found = [name for pattern, name in rules.attention if fnmatchcase(where, pattern)]
    return find_variant(found[-1] if found else USUAL)


def check_variants(attention: Choice) -> Named:
    """One of the variants asked for. All of a table must treat the softmax alike, for one way leads through it."""
    if isinstance(attention, str):
        return find_variant(attention)
    names = [name for _, name in attention]
    if all(pattern != EVERYWHERE for pattern, _ in attention):
        names.append(USUAL)
    variants = [find_variant(name) for name in names]
    for other in variants[1:]:
        if other.softmax is not variants[0].softmax:
            raise UsageError(
                f"'ah' by names of modules takes variants that treat the softmax alike: {variants[0].name!r} has it "
                f"{variants[0].softmax.value}, {other.name!r} {other.softmax.value}. Where no pattern matches, it is "
                f"{USUAL!r}; the pattern '{EVERYWHERE}' matches everywhere."
            )
    return variants[0]
