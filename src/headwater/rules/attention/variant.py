"""How relevance is shared in attention, softmax(q k^T) v: the base of all variants, which are the values of `ah=`.

A variant is one class in one file, in this package or in yours:

    from headwater.rules import Softmax, Variant, register_variant, share_product

    @register_variant
    class MostlyValues(Variant):
        name = "mostly-values"
        softmax = Softmax.GRADIENT

        def mix(self, call, weights, values):
            return share_product(call, weights, values, 0.1)  # a tenth to the weights

    hw.explain(model, text, method="lrp(ah=mostly-values+ln+act+gate)")

It acts on attention however it is computed. Attention that a model writes out is a softmax and a product: `weigh` and
`mix`. Fused attention and attention with a cap or sinks are written out in the same two steps, unless the variant knows
a faster way (`attend`, `attend_with_cap`).
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ...errors import UsageError
from ..call import Call
from ..gradients import value_of
from ..operands import Place
from ..scope import Scope
from .call import AttentionCall
from .registry import VARIANTS, Named, Softmax


class Variant:
    """One way to share relevance between queries, keys and values. `register_variant` has an example of one.

    Example:
        >>> from headwater.rules import VARIANTS
        >>> VARIANTS["half"].softmax.value
        'gradient'
    """

    name: str
    softmax: Softmax
    query_part: float = 0.5  # of the scores q k^T goes to the queries, the rest to the keys

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        """`weights` times `values`, linear in the signals that take part. `call` is the product: a matmul, an einsum.

        Only the gradient of the result is used; the value is the model's own. It is not called with `Softmax.CONSTANT`:
        there the weights are constants, and the values take all relevance.
        """
        raise NotImplementedError

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        """The softmax `value` along `axis`, linear in `scores`; the rest is booked in `scope`. For `Softmax.LINEAR`.

        `base`, if given, multiplied the exponentials before they were divided by their sum.
        """
        raise NotImplementedError

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        """Fused attention, `call`: the model's own value, with relevance as if it were written out under `scope`."""
        with torch.no_grad():
            value = call.run()
        with scope:
            mixed = write_out(call)
        return value_of(value, gradient_of=mixed) if mixed.requires_grad else value

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        """Attention with a cap or sinks, `call`, under `scope`. None: it is written out, and each operation has its own
        rule.
        """
        return None


def write_out(call: AttentionCall) -> Tensor:
    """Attention as a softmax and a product, which meet their rules one by one. What sees nothing attends to nothing."""
    key, value = call.keys_and_values_per_head()
    weights = torch.softmax(call.scores(call.query, key), -1)
    unseen = weights.isnan()
    if bool(unseen.any()):
        weights = weights.masked_fill(unseen, 0.0)
    return weights @ value


Kind = TypeVar("Kind", bound=type[Variant])


def register_variant(variant: Kind) -> Kind:
    """Makes a class of `Variant` a value of `ah=`, under its `name`.

    Args:
        variant: the class.

    Returns:
        The same class, so that it can be a decorator.

    Raises:
        UsageError: the class lacks something, or its name is taken.

    Example:
        >>> from headwater.rules import Softmax, Variant, register_variant, share_product
        >>> @register_variant
        ... class MostlyValues(Variant):
        ...     name = "mostly-values"
        ...     softmax = Softmax.GRADIENT
        ...     def mix(self, call, weights, values):
        ...         return share_product(call, weights, values, 0.1)  # a tenth to the weights
        >>> hw.explain("headwater/sentiment", "a fine film", method="lrp(ah=mostly-values+ln+act+gate)").target
        'positive'
    """
    name, softmax = getattr(variant, "name", None), getattr(variant, "softmax", None)
    if not isinstance(name, str) or not isinstance(softmax, Softmax):
        raise UsageError(f"{variant.__name__} needs a name, and a `softmax` of headwater.rules.Softmax.")
    if (variant.mix is Variant.mix) != (softmax is Softmax.CONSTANT):
        raise UsageError(f"{variant.__name__} needs `mix` if its weights take part, and none if they are constants.")
    if (variant.weigh is Variant.weigh) == (softmax is Softmax.LINEAR):
        raise UsageError(f"{variant.__name__} needs `weigh` if its softmax is linear, and none otherwise.")
    known = VARIANTS.get(name)
    if known is not None and home_of(type(known)) != home_of(variant):
        raise UsageError(f"there is an attention variant called {name!r} already, in {type(known).__module__}.")
    VARIANTS[name] = cast(Named, variant())
    return variant


def home_of(variant: type) -> tuple[str, str]:
    return variant.__module__, variant.__qualname__


def variant_of(scope: Scope) -> Variant:
    """The variant that a scope's rules ask for."""
    return cast(Variant, scope.variant)
