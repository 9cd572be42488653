"""AH-rule: attention weights are constants, so attention is a linear layer that mixes values, and conserves."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .lineage import Kind, mark
from .scope import Call, Scope, is_signal, on

_BLOCK = 1 << 24  # elements of attention weights made at a time on the way back


@on("softmax")
def softmax(scope: Scope, call: Call) -> Any:
    """With `ah` and `gate` both on, a softmax is constant whatever it weighs. With one of them, its use decides."""
    if "ah" in scope.rules and "gate" in scope.rules and scope.rules.attention == "constant":
        scope.applies("ah")
        with torch.no_grad():
            return call.run()
    result = call.run()
    mark(result, Kind.WEIGHTS)
    return result


@on("scaled_dot_product_attention")
def attention(scope: Scope, call: Call) -> Any:
    r"""y_j = sum_i v_i p_ij with p held fixed: R(v_i) = sum_j v_i p_ij / (sum_i' v_i' p_i'j) R(y_j)."""
    query, key, value = (call.get(i, name) for i, name in enumerate(("query", "key", "value")))
    if "ah" not in scope.rules:
        return call.run()
    scope.applies("ah")
    if scope.rules.attention == "half":
        return shared_attention(call, query, key, value)
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), call.args[3:], strict=False), **call.kwargs)
    options = {k: v for k, v in options.items() if k not in ("query", "key", "value")}
    mask = options.pop("attn_mask", None)
    mask = mask.detach() if isinstance(mask, Tensor) else None
    if not is_signal(value):
        with torch.no_grad():
            return call.func(query, key, value, attn_mask=mask, **options)
    return _WeightsHeld.apply(value, query.detach(), key.detach(), mask, call.func, options)


def shared_attention(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Any:
    """Half to the values and half to the weights, of which queries and keys get half each: a quarter."""
    parts = (_Share.apply(query, 0.25), _Share.apply(key, 0.25), _Share.apply(value, 0.5))
    kwargs = {k: v for k, v in call.kwargs.items() if k not in ("query", "key", "value")}
    return call.func(*parts, *call.args[3:], **kwargs)


class _Share(torch.autograd.Function):
    """The same tensor, through which only a part of the gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: float) -> Tensor:
        ctx.part = part
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.part, None


class _WeightsHeld(torch.autograd.Function):
    """The model's own attention forwards; backwards dV = P^T dO alone, P made again in blocks of queries."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, func: Any, options: Any
    ) -> Tensor:
        ctx.save_for_backward(query, key, mask)
        ctx.options, ctx.heads = options, value.shape[-3] if value.dim() > 2 else None
        result: Tensor = func(query, key, value, attn_mask=mask, **options)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, mask = ctx.saved_tensors
        return (values_gradient(gradients[0], query, key, mask, ctx.options, ctx.heads), *[None] * 5)


def values_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], heads: int | None
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
        part = weights.transpose(-2, -1) @ gradient[..., block, :]
        total = part if total is None else total.add_(part)
    assert total is not None
    if heads is not None and total.shape[-3] != heads:
        total = total.unflatten(-3, (heads, -1)).sum(-3)
    return total


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], block: slice) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) for a block of queries; a query that may look at nothing attends to nothing."""
    scale = options.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores = attention_scores(query[..., block, :], key, scale)
    allowed = None
    if options.get("is_causal"):
        shape = (query.shape[-2], key.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool, device=query.device).tril()[block]
    if mask is not None:
        part = mask[..., block, :] if mask.shape[-2] > 1 else mask
        if part.dtype is torch.bool:
            allowed = part if allowed is None else allowed & part
        else:
            scores = scores + part
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = torch.softmax(scores, -1)
    return weights if mask is None and allowed is None else weights.nan_to_num(0.0)


def attention_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    return (query * scale) @ key.transpose(-2, -1)
