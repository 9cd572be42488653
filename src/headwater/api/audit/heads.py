"""The paper's first proposition at every attention head, with biases of queries and keys in their place.

With p held by softmax and scores s that move with the module's input x, Gradient x Input at the head gives
R(x) = R(y) + sum_j Cov_j(s', v)^T df/dy_j, where s' = J_s x is the change of the scores along x itself: a_ij + b_ij of
the general form. Without biases s' = 2 s, the form in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...results.audit import HeadFlow
from ...rules.call import Call, is_signal
from ...rules.maps import order_of
from .watch import Reordered, Tap

_MIXES = ("matmul", "bmm", "einsum")


@dataclass
class Head:
    """One attention operation: weights [batch, heads, queries, keys], values, result, and the inputs of its module."""

    module: str
    weights: Tensor
    scores: Tensor
    values: Tensor
    result: Reordered
    inputs: list[Tensor]


class Called(Protocol):
    """One call of a module."""

    name: str
    inputs: list[Tensor]


class Noting(Protocol):
    """What heads are noted in."""

    heads: list[Head]
    last_scores: Tensor | None

    @property
    def active(self) -> Sequence[Called]: ...


def note_scores(scope: Noting, call: Call) -> None:
    """Remember which scores a softmax was made of: the weights are told by the scores they hold on to."""
    if call.name == "softmax" and is_signal(call.args[0]):
        scope.last_scores = call.args[0]


def note_head(scope: Noting, call: Call, out: list[Tap]) -> None:
    if not scope.active or not out or not scope.active[-1].inputs:
        return
    inputs, module = scope.active[-1].inputs, scope.active[-1].name
    if call.name == "scaled_dot_product_attention":
        query, key, values = (call.get(i, name) for i, name in enumerate(("query", "key", "value")))
        if is_signal(query) and is_signal(key) and is_signal(values):
            weights, scores, values = by_hand(call, query, key, values)
            plain = tuple(range(values.dim()))
            scope.heads.append(Head(module, weights, scores, values, Reordered(out[0], plain), inputs))
    elif call.name in _MIXES and scope.last_scores is not None:
        order = order_of(call)
        weights, values = call.args[-2:]
        scores = scope.last_scores
        if order is None or not is_signal(values) or weights.numel() != scores.numel():
            return
        scores = scores.reshape(weights.shape).permute(order.weights)
        tap = Reordered(out[0], order.result)
        scope.heads.append(
            Head(module, weights.detach().permute(order.weights), scores, values.permute(order.values), tap, inputs)
        )
        scope.last_scores = None


def by_hand(call: Call, query: Tensor, key: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and scores of a fused attention, written out."""
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), call.args[3:], strict=False), **call.kwargs)
    if query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key, values = key.repeat_interleave(groups, -3), values.repeat_interleave(groups, -3)
    scale = options.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores = (query * scale) @ key.transpose(-2, -1)
    masked = scores.detach()
    mask = options.get("attn_mask")
    if options.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        masked = masked.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else masked + mask
    return masked.softmax(-1), scores, values


def head_flows(head: Head, held: bool) -> Iterator[HeadFlow]:
    """Measured by a backward pass of each head alone, predicted by the covariance."""
    if head.result.gradient is None:
        return
    gradient, result = heads_first(head.result.gradient), heads_first(head.result.value)
    weights = heads_first(head.weights).to(result.dtype)
    score_change = heads_first(along(head.scores, head.inputs))
    value_change = heads_first(along(head.values, head.inputs))
    values = heads_first(head.values.detach())
    mixed = weights.transpose(-2, -1) @ gradient  # df/dv of every head
    slope = gradient @ values.transpose(-2, -1) - (gradient * result).sum(-1, keepdim=True)
    breaks = (weights * score_change * slope).nan_to_num(0.0)
    for h in range(len(result)):
        into = relevance_into(head, h)
        out = float((gradient[h] * result[h]).sum())
        sources = float((mixed[h] * (values - value_change)[h]).sum())
        predicted = 0.0 if held else float(breaks[h].sum())
        yield HeadFlow(head.module, h, out, into, sources, predicted, into + sources - out)


def heads_first(tensor: Tensor) -> Tensor:
    """[heads, rows, columns]: an audit has one sample, so every other leading axis is a head's."""
    return tensor.reshape(-1, *tensor.shape[-2:])


def relevance_into(head: Head, h: int) -> float:
    """Input times gradient at the module's own copy of its input, from one head's output alone."""
    assert head.result.gradient is not None
    only = torch.zeros_like(head.result.gradient, memory_format=torch.contiguous_format)
    heads_first(only)[h] = heads_first(head.result.gradient)[h]
    found = torch.autograd.grad(
        head.result.alias, head.inputs, head.result.back(only), retain_graph=True, allow_unused=True
    )
    return sum(float((x.detach() * g).sum()) for x, g in zip(head.inputs, found, strict=True) if g is not None)


def along(tensor: Tensor, inputs: list[Tensor]) -> Tensor:
    """J x: how `tensor` changes as the inputs grow by themselves, by differentiating J^T u (linear in u) along u."""
    seed = torch.zeros_like(tensor, requires_grad=True)
    back = torch.autograd.grad(tensor, inputs, seed, create_graph=True, allow_unused=True)
    used = [(b, x) for b, x in zip(back, inputs, strict=True) if b is not None and b.requires_grad]
    if not used:
        return torch.zeros_like(tensor)
    (change,) = torch.autograd.grad(
        [b for b, _ in used], seed, [x.detach() for _, x in used], retain_graph=True, allow_unused=True
    )
    return torch.zeros_like(tensor) if change is None else change.detach()
