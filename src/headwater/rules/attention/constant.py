"""`ah=constant`, the AH-rule: attention weights are constants, so attention is a linear layer that mixes values.

It conserves: R(v_i) = sum_j v_i p_ij / (sum_i' v_i' p_i'j) R(y_j).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...kernels import attention as kernels
from ...kernels import capped, forward
from ..call import is_signal
from ..scope import Scope
from .call import AttentionCall, attention_weights
from .registry import Softmax
from .variant import Variant, register_variant

_BLOCK = 1 << 24  # elements of attention weights made at a time on the way back


@register_variant
class ConstantVariant(Variant):
    """The weights are constants, and the values take all: y_j = sum_i v_i p_ij with p held fixed."""

    name = "constant"
    softmax = Softmax.CONSTANT

    def attend(self, scope: Scope, call: AttentionCall) -> Any:
        if not is_signal(call.value):
            with torch.no_grad():
                return call.run()
        options = dict(call.options)
        return hold_weights(
            call.value, call.query, call.key, call.mask, partial(forward.attend_by_torch, call.func), options
        )

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        options = {**call.options, "sinks": call.sinks}
        if not is_signal(call.value):
            return capped.attend_with_sums(
                call.query.detach(), call.key.detach(), call.value, call.mask, call.sinks, options
            )[0]
        return hold_weights(
            call.value, call.query, call.key, call.mask, partial(attend_with_sinks, call.sinks), options
        )


def attend_with_sinks(
    sinks: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any
) -> Any:
    return capped.attend_with_sums(query, key, value, mask, sinks, options)


def hold_weights(value: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, forwards: Any, options: Any) -> Tensor:
    """Attention by `forwards`, which gives its result and the logsumexp, with its weights held constant."""
    made: Tensor = _WeightsHeld.apply(value, query.detach(), key.detach(), mask, forwards, options)
    return made


class _WeightsHeld(torch.autograd.Function):
    """The model's own attention forwards. Backwards it is dV = P^T dO alone, with P computed again in blocks.

    Queries, keys and one number per query are kept; weights, values and result are not.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, forwards: Any, options: Any
    ) -> Tensor:
        result: Tensor
        result, sums = forwards(query, key, value, mask, options)
        ctx.save_for_backward(*own_memory(query, key), mask, sums)
        ctx.options, ctx.heads = options, value.shape[-3] if value.dim() > 2 else None
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, mask, sums = ctx.saved_tensors
        found = None
        if query.dim() == 4 and ctx.heads == key.shape[1]:
            found = kernels.values_gradient(gradients[0], query, key, sums, mask, ctx.options)
        if found is None:
            found = values_gradient_torch(gradients[0], query, key, mask, ctx.options, ctx.heads)
        return (found, *[None] * 5)


def own_memory(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys to keep: copies if they are slices of a larger tensor, so that the rest can be freed."""
    storages = [part.untyped_storage() for part in (query, key)]
    held = storages[0].nbytes() + (storages[1].nbytes() if storages[1].data_ptr() != storages[0].data_ptr() else 0)
    return (query, key) if held <= query.nbytes + key.nbytes else (query.clone(), key.clone())


def values_gradient_torch(
    gradient: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any], heads: int | None
) -> Tensor:
    """P^T dO. Keys and values shared by a group of heads (`enable_gqa`) gather the gradients of the group."""
    groups = query.shape[-3] // key.shape[-3] if query.dim() > 2 else 1
    if groups > 1:
        key = key.repeat_interleave(groups, -3)
    rows = max(1, _BLOCK // max(1, math.prod(query.shape[:-2]) * key.shape[-2]))
    total: Tensor | None = None
    for start in range(0, query.shape[-2], rows):
        block = slice(start, start + rows)
        weights = attention_weights(query, key, mask, options, block)
        part = weights.transpose(-2, -1).to(gradient.dtype) @ gradient[..., block, :]
        total = part if total is None else total.add_(part)
    assert total is not None
    if heads is not None and total.shape[-3] != heads:
        total = total.unflatten(-3, (heads, -1)).sum(-3)
    return total
