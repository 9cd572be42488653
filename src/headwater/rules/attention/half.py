"""`ah=half`: weights and values take half each, and the softmax keeps its gradient, as in AttnLRP (Achtibat 2024).

A softmax that is left to its gradient does not conserve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...kernels.capped import exact
from ..call import Call, is_signal
from ..operands import Place, share_product
from ..scope import Scope
from .call import AttentionCall
from .registry import Softmax
from .remade import attend_by_rule
from .sinks import can_stay_whole, enter_sinks
from .token import token_gamma
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
        gamma, shared = token_gamma(scope), quarters(call)
        return attend_by_rule(scope, shared, gamma) if gamma and is_signal(shared.value) else shared.run()

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        if not can_stay_whole(scope, call):
            return None
        told = enter_sinks(scope, call.query, call.sinks, 0.5)
        shared = quarters(call)
        options = {**call.options, "ratio": True, "token": token_gamma(scope)}
        return exact((shared.query, shared.key, shared.value), call.mask, call.sinks, options, told)


def quarters(call: AttentionCall) -> AttentionCall:
    query, key, value = Share.apply(call.query, 0.25), Share.apply(call.key, 0.25), Share.apply(call.value, 0.5)
    return replace(call, query=query, key=key, value=value)


class Share(torch.autograd.Function):
    """The same tensor, through which only a part of the gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: float) -> Tensor:
        ctx.part = part
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.part, None
