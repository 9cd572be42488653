"""The AH-rule at `kernels.capped`: attention whose scores are capped or whose softmax has a sink, as one operation.

A sink takes weight and has no value: its share is absent from what comes out, and conservation is not touched. Where
queries take part, too, blocks have the gradients; the cap is then an activation, its input times a constant. However
else relevance is shared, the attention is written out as models do it, and each of its operations has its own rule.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...kernels.capped import attend, exact
from ..scope import SPELLED, Call, Scope, is_signal, on
from ..sources import Sort
from .fused import weights_held
from .query import ASKED, Share, offset_name

_WITHIN = ("ah", "act", "gate")  # rules that act on something inside attention


@on("capped_attention")
def capped_attention(scope: Scope, call: Call) -> Any:
    """y_j = sum_i v_i p_ij with p held fixed, by a kernel; or shared with p, by the gradients of blocks."""
    query, key, value, mask, sinks = call.args
    options, alike = dict(call.kwargs), all(is_signal(part) for part in (query, key, value))
    if "ah" in scope.rules and scope.rules.attention == "constant":
        scope.applies("ah")
        options["sinks"] = sinks
        if not is_signal(value):
            return attend(query.detach(), key.detach(), value, mask, sinks, options)[0]
        return weights_held(value, query, key, mask, partial(forwards, sinks), options)
    if all(rule in scope.rules for rule in _WITHIN) and scope.rules.gate == "half" and alike:
        if scope.rules.attention == "half":
            scope.applies("ah")
            return shared(scope, call)
        if scope.rules.attention == "query":
            scope.applies("ah")
            return asked(scope, call)
    if any(rule in scope.rules for rule in _WITHIN):
        with scope:
            return written_out(*call.args, **call.kwargs)
    return exact(query, key, value, mask, sinks, options, sinks_entered(scope, query, sinks))


def forwards(sinks: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> Any:
    return attend(query, key, value, mask, sinks, options)


def shared(scope: Scope, call: Call) -> Tensor:
    """Half to the values and half to the weights, of which queries and keys get half each."""
    query, key, value, mask, sinks = call.args
    parts = (Share.apply(query, 0.25), Share.apply(key, 0.25), Share.apply(value, 0.5))
    told = sinks_entered(scope, query, sinks, 0.5)
    return exact(*parts, mask, sinks, {**call.kwargs, "ratio": True}, told)


def asked(scope: Scope, call: Call) -> Tensor:
    """The query takes part, and keys are held. What comes neither from it nor from the sinks is the offset."""
    query, key, value, mask, sinks = call.args
    own, name = Share.apply(query, ASKED), offset_name(scope)
    told = [sinks_entered(scope, query, sinks, ASKED), sinks_entered(scope, query, sinks, -ASKED, name)]
    parts = (own, key.detach(), Share.apply(value, 1 - ASKED))
    result = exact(*parts, mask, sinks, {**call.kwargs, "ratio": True}, told=None if sinks is None else every(told))
    scope.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, y: ASKED * g * y, held=(result,))
    scope.books.enter(own, name, sort=Sort.CONSTANT, varies=(), amount=lambda g, q: -ASKED * g * q, held=(query,))
    return result


def every(told: list[Any]) -> Any:
    """One that tells all of them."""

    def tell(gradient: Tensor) -> None:
        for one in told:
            one(gradient)

    return tell


def sinks_entered(
    scope: Scope, query: Tensor, sinks: Tensor | None, share: float = 1.0, line: str | None = None
) -> Any:
    """What the backward pass tells the gradient of the sinks, of each sample: they are a bias of the scores."""
    if sinks is None:
        return None
    name, sort = scope.label(sinks, "sinks") if line is None else (line, Sort.CONSTANT)
    return scope.books.vector_entered(query[:, :, 0, 0], name, share * sinks, sort=sort)


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    sinks: Tensor | None,
    *,
    scale: float | None,
    is_causal: bool,
    cap: float,
) -> Tensor:
    """As models write it, operation by operation; with all weights."""
    groups = query.shape[1] // key.shape[1]
    scores = torch.matmul(query, repeated(key, groups).transpose(2, 3)) * (scale or query.shape[-1] ** -0.5)
    if cap:
        scores = torch.tanh(scores / cap) * cap
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores + added(mask, scores.dtype)
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], -1)
        scores = torch.cat([scores, column.to(scores.dtype)], dim=-1)
    precise = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
    weights = torch.softmax(scores, dim=-1, dtype=precise)
    if sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights.to(value.dtype), repeated(value, groups))


SPELLED["capped_attention"] = written_out


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as models add it to scores: the lowest number there is where nobody looks."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def repeated(shared: Tensor, groups: int) -> Tensor:
    """Keys or values of a group of heads, once for each of them."""
    if groups == 1:
        return shared
    batch, heads, length, size = shared.shape
    return shared[:, :, None].expand(batch, heads, groups, length, size).reshape(batch, heads * groups, length, size)
