"""Attention between an input and its reference: y - y' of softmax(q k^T + mask) v, passed back without kept weights.

With the weights p of the input and p' of the reference, bars for the mean of both, and L the logarithmic mean of p and
p' (`secants`), three maps follow each other, each exact for the pair:

- y - y' = sum_j bar p_j (v_j - v'_j) + bar v_j (p_j - p'_j)
- p_j - p'_j = L_j (d_j - c), where d_j is the rise of score j and c the mean of d weighed by L
- s_j - s'_j = (q - q') bar k_j + bar q (k_j - k'_j)

Their transposes need the weights again. They are computed in blocks of queries, so that memory does not grow with the
square of the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..call import is_signal
from ..secants import softmax_slopes
from .call import AttentionCall, per_head, scores_with_mask

NUMBERS = 1 << 24  # of weights that a block has, of all samples and heads together
Triple = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class AttentionPair:
    """Queries, keys and values per head, of the input and of the reference, and who may look where."""

    now: Triple
    before: Triple
    call: AttentionCall

    @classmethod
    def read(cls, call: AttentionCall, reference_of: Callable[[Tensor], Tensor]) -> AttentionPair | None:
        """None where attention has more than queries, keys, values and a constant mask."""
        if call.sinks is not None or is_signal(call.mask) or call.options.get("dropout_p") or call.query.dim() < 2:
            return None
        query, key, value = map(reference_of, (call.query, call.key, call.value))
        now = (call.query, *call.keys_and_values_per_head())
        return cls(now, (query, *per_head(query, key, value)), call)

    @property
    def scale(self) -> float:
        return float(self.call.options.get("scale") or 1 / math.sqrt(self.now[0].shape[-1]))

    def blocks(self) -> Iterator[slice]:
        query, key = self.now[:2]
        rows = max(1, NUMBERS // max(1, math.prod(query.shape[:-2]) * key.shape[-2]))
        return (slice(start, start + rows) for start in range(0, query.shape[-2], rows))

    def weigh(self, part: Triple, block: slice) -> tuple[Tensor, Tensor]:
        """Scores and weights. A query that may look at nothing attends to nothing."""
        query, key = (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in part[:2])
        scores = scores_with_mask(query, key, self.call.mask, self.call.options, block)
        return scores, scores.softmax(-1).nan_to_num(0.0)

    def pass_back(self, gradient: Tensor, block: slice) -> Triple:
        """What queries, keys and values get of the gradient at a block of queries' results."""
        (scores, p), (others, q) = self.weigh(self.now, block), self.weigh(self.before, block)
        slopes = softmax_slopes((p, q), (scores, others), -1)
        query, key, value = ((x + y).to(p.dtype) / 2 for x, y in zip(self.now, self.before, strict=True))
        arriving = gradient.to(p.dtype)
        at_scores = slopes * (arriving @ value.mT)
        total = slopes.sum(-1, keepdim=True)
        shares = slopes / torch.where(total == 0, torch.ones_like(total), total)
        at_scores = (at_scores - shares * at_scores.sum(-1, keepdim=True)) * self.scale
        return at_scores @ key, at_scores.mT @ query[..., block, :], ((p + q) / 2).mT @ arriving


class PassDifference(torch.autograd.Function):
    """The result of attention, with the transposes above as its gradient."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, pair: AttentionPair, own: list[Tensor]) -> Tensor:
        ctx.pair = pair
        return own[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        pair, (gradient,) = ctx.pair, gradients
        queries: list[Tensor] = []
        keys = values = torch.zeros((), dtype=gradient.dtype, device=gradient.device)
        for block in pair.blocks():
            query, key, value = pair.pass_back(gradient[..., block, :], block)
            queries, keys, values = [*queries, query], keys + key, values + value
        made = (torch.cat(queries, -2), keys, values)
        return *(x.to(part.dtype) for x, part in zip(made, pair.now, strict=True)), None, None


def pass_attention_on(call: AttentionCall, reference_of: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The surrogate of a fused attention, whose gradient is exact between input and reference."""
    pair = AttentionPair.read(call, reference_of)
    if pair is None:
        return None
    now = tuple(part.detach() for part in pair.now)
    with torch.no_grad():
        own = call.run(*(part.detach() for part in (call.query, call.key, call.value)))
    held = AttentionPair((now[0], now[1], now[2]), pair.before, call)
    return PassDifference.apply(*pair.now, held, [own])  # type: ignore[no-any-return]
