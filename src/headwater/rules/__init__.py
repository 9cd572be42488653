"""One idea per file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import activation, distance, gate, linear, logarithm, norm, products, recurrent, shape_ops
from .attention import capped, constant, fused, half, query, secant, softmax, weights
from .attention.call import AttentionCall
from .attention.registry import VARIANTS, Softmax
from .attention.variant import Variant, register_variant
from .operands import Place, share_product
from .scope import OPERATIONS, RULES, Call, RuleSet, Scope, is_signal, on, value_of
from .sources import Books

__all__ = [
    "OPERATIONS",
    "RULES",
    "VARIANTS",
    "AttentionCall",
    "Books",
    "Call",
    "Place",
    "RuleSet",
    "Scope",
    "Softmax",
    "Variant",
    "activation",
    "capped",
    "constant",
    "distance",
    "fused",
    "gate",
    "half",
    "is_signal",
    "linear",
    "logarithm",
    "norm",
    "on",
    "products",
    "query",
    "recurrent",
    "register_variant",
    "secant",
    "shape_ops",
    "share_product",
    "softmax",
    "value_of",
    "weights",
]
