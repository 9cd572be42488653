"""One idea per file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import activation, distance, gate, linear, logarithm, norm, products, recurrent, shape_ops
from .attention import capped, fused, weights
from .scope import OPERATIONS, RULES, RuleSet, Scope
from .sources import Books

__all__ = [
    "OPERATIONS",
    "RULES",
    "Books",
    "RuleSet",
    "Scope",
    "activation",
    "capped",
    "distance",
    "fused",
    "gate",
    "linear",
    "logarithm",
    "norm",
    "products",
    "recurrent",
    "shape_ops",
    "weights",
]
