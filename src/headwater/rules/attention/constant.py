"""`ah=constant`, the AH-rule: attention weights are constants, so attention is a linear layer that mixes values.

It conserves: R(v_i) = sum_j v_i p_ij / (sum_i' v_i' p_i'j) R(y_j).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...kernels import attention as kernels
from ...kernels import capped, forward
from ...kernels.batching import is_batched, map_batch
from ...kernels.token_sums import TokenRule
from ..call import is_signal
from ..scope import Scope
from ..sources import wide
from .call import AttentionCall, attention_weights
from .registry import Softmax
from .token import token_gamma
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
        return attend_by_values(hold_scores(call), token_gamma(scope))

    def attend_with_cap(self, scope: Scope, call: AttentionCall) -> Any:
        options = {**call.options, "sinks": call.sinks}
        attended, sums = capped.attend_with_sums(
            call.query.detach(), call.key.detach(), call.value.detach(), call.mask, call.sinks, options
        )
        if not is_signal(call.value):
            return attended
        held = replace(hold_scores(call), options=options)
        return mix_values(held, attended, sums, token_gamma(scope))


def hold_scores(call: AttentionCall) -> AttentionCall:
    """The same attention, whose weights are constants."""
    mask = None if call.mask is None else call.mask.detach()
    return replace(call, query=call.query.detach(), key=call.key.detach(), mask=mask)


def attend_by_values(call: AttentionCall, gamma: float = 0.0, offset: float = 0.0) -> Tensor:
    """Fused attention. Queries and keys, where they are signals, get its gradient; values get P^T dO in blocks.

    `gamma` and `offset` are those of the rule for sums over tokens (`kernels.token_sums`).
    """
    attended, sums = forward.attend_by_torch(
        call.func, call.query, call.key, call.value.detach(), call.mask, dict(call.options)
    )
    return mix_values(call, attended, None if sums is None else sums.detach(), gamma, offset)


def mix_values(call: AttentionCall, attended: Tensor, sums: Tensor | None, gamma: float, offset: float = 0.0) -> Tensor:
    """What was attended to, with relevance that goes on to the values. `sums` are the logsumexps, where known."""
    held = replace(hold_scores(call), options={**call.options, "token": gamma, "offset": offset})
    mixed: Tensor = _WeightsHeld.apply(call.value, attended, [attended.detach()], held, sums)
    return mixed


class _WeightsHeld(torch.autograd.Function):
    """The model's own attention forwards. Backwards it is dV = P^T dO, with P computed again in blocks.

    Queries, keys and one number per query are kept; weights and result are not, and values only if the rule for sums
    over tokens needs them. What was attended to may have a gradient of its own: that of queries and keys.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, attended: Tensor, result: list[Tensor], call: AttentionCall, sums: Tensor | None
    ) -> Tensor:
        by_rule = call.options["token"] or call.options["offset"]
        kept: tuple[Tensor, ...] = (call.query, call.key, value) if by_rule else (call.query, call.key)
        if not ctx.needs_input_grad[1]:  # else others keep them, too
            kept = own_memory(*kept)
        ctx.save_for_backward(*kept[:2], call.mask, sums, *kept[2:])
        ctx.options, ctx.heads = call.options, value.shape[-3] if value.dim() > 2 else None
        return result[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, mask, sums, *kept = ctx.saved_tensors
        found = values_gradient(gradients[0], (query, key, *kept), mask, sums, ctx.options, ctx.heads)
        return (found, gradients[0] if ctx.needs_input_grad[1] else None, *[None] * 3)


def values_gradient(
    gradient: Tensor,
    parts: Sequence[Tensor],
    mask: Tensor | None,
    sums: Tensor | None,
    options: Mapping[str, Any],
    heads: int | None,
) -> Tensor:
    """P^T dO. `parts` are queries and keys, and the values if there is a rule for sums over tokens."""
    query, key, *value = parts
    if value:
        options = {**options, "rule": TokenRule(value[0], options["token"], options["offset"])}
    found = None
    if query.dim() == 4 and heads == key.shape[1]:
        found = kernels.values_gradient(gradient, query, key, sums, mask, options)
    return values_gradient_torch(gradient, query, key, mask, options, heads) if found is None else found


def own_memory(*parts: Tensor) -> tuple[Tensor, ...]:
    """Tensors to keep: copies if they are slices of something larger, so that the rest can be freed."""
    storages = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in parts}
    fits = sum(storages.values()) <= sum(part.nbytes for part in parts)
    return parts if fits else tuple(part.clone() for part in parts)


def values_gradient_torch(
    gradient: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any], heads: int | None
) -> Tensor:
    """P^T dO. Keys and values shared by a group of heads (`enable_gqa`) gather the gradients of the group."""
    rule: TokenRule | None = options.get("rule")
    if rule is not None and is_batched(gradient):
        each: Tensor = map_batch(lambda one: values_gradient_torch(one, query, key, mask, options, heads), gradient)
        return each
    value = None if rule is None else repeat_like(rule.value, query)
    key = repeat_like(key, query)
    rows = max(1, _BLOCK // max(1, math.prod(query.shape[:-2]) * key.shape[-2]))
    total: Tensor | None = None
    for start in range(0, query.shape[-2], rows):
        block = slice(start, start + rows)
        weights, part = attention_weights(query, key, mask, options, block), gradient[..., block, :]
        if rule is not None and value is not None:
            weights = boost_precisely(rule, weights, part, value)
        part = weights.transpose(-2, -1).to(gradient.dtype) @ part
        total = part if total is None else total.add_(part)
    assert total is not None
    if heads is not None and total.shape[-3] != heads:
        total = total.unflatten(-3, (heads, -1)).sum(-3)
    return total


def repeat_like(shared: Tensor, query: Tensor) -> Tensor:
    """Keys or values, repeated where a group of heads shares them."""
    groups = query.shape[-3] // shared.shape[-3] if query.dim() > 2 else 1
    return shared if groups == 1 else shared.repeat_interleave(groups, -3)


def boost_precisely(rule: TokenRule, weights: Tensor, gradient: Tensor, value: Tensor) -> Tensor:
    """The weights by the rule for sums over tokens; half precision is too coarse for such sums."""
    weights, gradient, value = (wide(part) for part in (weights, gradient, value))
    return rule.boost(rule.with_offset(weights), gradient, value)
