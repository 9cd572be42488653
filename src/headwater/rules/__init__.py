"""One idea a file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import activation, attention, capped, carriers, gate, linear, norm
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
    "gate",
    "linear",
    "norm",
]
