"""One idea per file: attention, norm, activation, gate, linear; and the scope that applies them."""

from . import (  # noqa: F401  (they register their rules)
    activation,
    distance,
    gate,
    linear,
    logarithm,
    norm,
    products,
    recurrent,
    shape_ops,
)
from .attention import capped, constant, fused, half, query, secant, softmax, weights  # noqa: F401
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
    "is_signal",
    "on",
    "register_variant",
    "share_product",
    "value_of",
]
