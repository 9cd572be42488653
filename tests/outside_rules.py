"""What a package outside of Headwater adds to its rules: variants of attention, and rules for operations."""

from __future__ import annotations

from torch import Tensor

from headwater.rules import Call, Place, Scope, Softmax, Variant, register_variant, share_product
from headwater.rules.attention.facts import Even
from headwater.rules.attention.secant import by_its_secant
from headwater.rules.lineage import lineage
from headwater.rules.operands import operand_places, run_with


@register_variant
class Mirror(Variant):
    """`ah=half` once more, in the fewest lines: nothing is said of fused attention, or of a cap."""

    name = "mirror"
    softmax = Softmax.GRADIENT

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        mixed: Tensor = share_product(call, weights, values)
        return mixed


@register_variant
class Thirds(Variant):
    """Of what scores make of even attention, queries, keys and values take a third each."""

    name = "thirds"
    softmax = Softmax.LINEAR

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return by_its_secant(scope, scores, value, axis, base)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        operands = operand_places(call)
        own, root = operands[weights], lineage(operands[weights]).root
        assert isinstance(root, Even)
        to_values = (own.detach() + 2 * root.weights) / 3
        brought: Tensor = run_with(
            call, {weights: 2 / 3 * (root.line - root.weights), values: operands[values].detach()}
        )
        seen: Tensor = run_with(call, {weights: to_values})
        return seen + brought
