"""Attention with a cap on its scores or a sink in its softmax, as one operation.

torch's kernels support neither. Models therefore write such attention out, and hold all its weights at once; here only
one block of weights exists at a time. `torch.overrides` makes it one operation for the scope of the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import handle_torch_function, has_torch_function

from .attention import forward_on_card
from .batching import map_batch
from .rows import plan_blocks


def capped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    cap: float = 0.0,
) -> Tensor:
    """softmax(cap tanh(q k^T scale / cap) + mask, sink) v, without the column of the sink.

    Queries are [batch, heads, length, size]; heads may share keys and values in groups. `sinks` is one score for each
    head. A mask is boolean, True where a query looks, or added to the scores after the cap.
    """
    every = tuple(part for part in (query, key, value, attn_mask, sinks) if part is not None)
    options: Any = {"scale": scale, "is_causal": is_causal, "cap": cap}
    if has_torch_function(every):
        given = (query, key, value, attn_mask, sinks)
        return handle_torch_function(capped_attention, every, *given, **options)
    return exact((query, key, value), attn_mask, sinks, options)


def attend_with_sums(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None, options: Any
) -> tuple[Tensor, Tensor]:
    """The result, and the logsumexp [batch, heads, queries], in which the sinks are counted."""
    found = forward_on_card(query, key, value, mask, sinks, options) if query.is_cuda else None
    if found is not None:
        return found
    with torch.autocast(query.device.type, enabled=False):  # it would round blocks that are precise on purpose
        return plan_blocks(query, key, value, mask, sinks, options).result()


Told = Callable[[Tensor], None]


def exact(
    parts: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    sinks: Tensor | None,
    options: Any,
    told: Told | None = None,
) -> Tensor:
    """Attention of queries, keys and values, `parts`, with its true gradient.

    `told` gets the gradient of the sinks, [batch, heads], in the backward pass.
    """
    return _Exact.apply(*parts, sinks, mask, options, told)  # type: ignore[no-any-return]


class _Exact(Function):
    """One block of weights at a time, forwards and backwards."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        mask: Tensor | None,
        options: Any,
        told: Told | None,
    ) -> Tensor:
        result, _ = attend_with_sums(query, key, value, mask, sinks, options)
        ctx.save_for_backward(query, key, value, sinks, mask, result)
        ctx.options, ctx.told = options, told
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        query, key, value, sinks, mask, result = ctx.saved_tensors
        blocks = plan_blocks(query, key, value, mask, sinks, ctx.options)
        found = map_batch(lambda one: blocks.gradients(one, result), gradient)
        to_query, to_key, to_value, to_sinks = found
        if to_sinks is not None and ctx.told is not None:
            ctx.told(to_sinks)
        return to_query, to_key, to_value, None if to_sinks is None else to_sinks.sum(0).to(sinks.dtype), *[None] * 3
