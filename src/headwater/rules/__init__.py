"""One idea a file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import (
    activation,
    attention,
    capped,
    carriers,
    distance,
    following,
    gate,
    linear,
    logarithm,
    norm,
    products,
    recurrent,
)
from .scope import OPERATIONS, RULES, RuleSet, Scope
from .sources import Books

__all__ = [
    "OPERATIONS",
    "RULES",
    "Books",
    "RuleSet",
    "Scope",
    "activation",
    "attention",
    "capped",
    "carriers",
    "distance",
    "following",
    "gate",
    "linear",
    "logarithm",
    "norm",
    "products",
    "recurrent",
]
