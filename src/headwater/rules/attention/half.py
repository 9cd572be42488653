"""`ah=half`: weights and values take half each, and the softmax keeps its gradient, as in AttnLRP (Achtibat 2024).

A softmax that is left to its gradient does not conserve.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.capped import exact
from ..call import Call
from ..operands import Place, share_product
from ..scope import Scope
from .call import AttentionCall
from .registry import Softmax
from .sinks import can_stay_whole, enter_sinks
from .variant import Variant, register_variant


@register_variant
class HalfVariant(Variant):
    """Half to the values and half to the weights, of which queries and keys get half each: a quarter."""

    name = "half"
    softmax = Softmax.GRADIENT

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        mixed: Tensor = share_product(call, weights, values)
        return mixed

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        return call.run(*quarters(call))

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        if not can_stay_whole(scope, call):
            return None
        told = enter_sinks(scope, call.query, call.sinks, 0.5)
        return exact(quarters(call), call.mask, call.sinks, {**call.options, "ratio": True}, told)


def quarters(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    return Share.apply(call.query, 0.25), Share.apply(call.key, 0.25), Share.apply(call.value, 0.5)


class Share(torch.autograd.Function):
    """The same tensor, through which only a part of the gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: float) -> Tensor:
        ctx.part = part
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.part, None
