"""A variant of attention: `ah=mostly-values` gives a tenth to the weights, the rest to the values."""

from headwater.rules import Softmax, Variant, register_variant, share_product


@register_variant
class MostlyValues(Variant):
    """The softmax keeps its gradient, as in AttnLRP."""

    name = "mostly-values"
    softmax = Softmax.GRADIENT

    def mix(self, call, weights, values):
        return share_product(call, weights, values, 0.1)
