"""The rule for attention with a cap on its scores or a sink in its softmax (`kernels.capped`).

A sink takes a part of the weights and has no value, so conservation holds with it as without it. A variant may compute
such attention in one step (`attend_with_cap`). Otherwise it is written out as models do it, and each operation in it
meets its own rule.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.capped import exact
from ..call import Call
from ..handlers import SPELLED, on
from ..scope import Scope
from .call import AttentionCall
from .sinks import WITHIN, enter_sinks
from .variant import variant_of


@on("capped_attention", rules=("ah", "act", "gate", "token"))
def share_capped_attention(scope: Scope, call: Call) -> Any:
    """y_j = sum_i v_i p_ij with p held fixed (`ah=constant`), by a kernel; or as the variant of attention shares it."""
    given = AttentionCall.read(call)
    if "ah" in scope.rules:
        result = variant_of(scope).attend_with_cap(scope, given)
        if result is not None:
            scope.applies("ah")
            return result
    if any(rule in scope.rules for rule in WITHIN):
        with scope:
            return spell_capped_attention(call)
    told = enter_sinks(scope, given.query, given.sinks)
    return exact((given.query, given.key, given.value), given.mask, given.sinks, dict(given.options), told)


def spell_capped_attention(call: Call) -> Tensor:
    """As models write it, operation by operation; with all weights."""
    given = AttentionCall.read(call)
    query, key, value, mask, sinks = given.query, given.key, given.value, given.mask, given.sinks
    scale, cap = given.options.get("scale"), given.options.get("cap")
    groups = query.shape[1] // key.shape[1]
    scores = torch.matmul(query, repeat_heads(key, groups).transpose(2, 3)) * (scale or query.shape[-1] ** -0.5)
    if cap:
        scores = torch.tanh(scores / cap) * cap
    if given.options.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores + make_model_mask(mask, scores.dtype)
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], -1)
        scores = torch.cat([scores, column.to(scores.dtype)], dim=-1)
    precise = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
    weights = torch.softmax(scores, dim=-1, dtype=precise)
    if sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights.to(value.dtype), repeat_heads(value, groups))


SPELLED["capped_attention"] = spell_capped_attention


def make_model_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as models add it to scores: the lowest number there is where nobody looks."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def repeat_heads(shared: Tensor, groups: int) -> Tensor:
    """Keys or values of a group of heads, once for each of them."""
    if groups == 1:
        return shared
    batch, heads, length, size = shared.shape
    return shared[:, :, None].expand(batch, heads, groups, length, size).reshape(batch, heads * groups, length, size)
