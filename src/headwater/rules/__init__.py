"""One idea per file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import activation, distance, gate, linear, logarithm, norm, products, recurrent, shape_ops
from .attention import capped, constant, fused, half, query, secant, softmax, weights
from .attention.call import AttentionCall
from .attention.registry import VARIANTS, Softmax
from .attention.variant import Variant, register_variant
from .call import Call, is_signal
from .gradients import value_of
from .handlers import OPERATIONS, on
from .operands import Place, share_product
from .rule_set import RULES, RuleSet
from .scope import Scope
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
