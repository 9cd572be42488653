"""dV = P^T dO for the processor: blocks of weights that stay in its cache, each two products and one exponential.

Keys that a group of heads shares are not repeated: the group's gradients are summed where they arise. Blocks that
nobody sees, by a causal mask or any other, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

CACHED = 1 << 20  # weights in a block: 4 MiB of float32
KEYS = 256  # in a block, where there are more
DEEP = -1024.0  # a logsumexp below this has lost the digits of its sum to the mask: softmax itself is better then

Part = tuple[int, int]


@dataclass(frozen=True)
class Blocks:
    """One sample's queries and gradients by group, [heads of the values, group, queries, size], and its keys."""

    query: Tensor
    gradient: Tensor
    key: Tensor
    sums: Tensor
    mask: Tensor | None
    scale: float
    causal: bool
    cap: float

    def sums_to(self, out: Tensor, buffer: Tensor, rows: int, columns: int) -> None:
        """Writes P^T dO into `out`, [heads of the values, keys, size]."""
        groups, n_queries = self.query.shape[1:3]
        n_keys = self.key.shape[1]
        for k in spans(0, n_keys, columns):
            total: Tensor | None = None
            for q in spans(k[0] if self.causal else 0, n_queries, rows):
                for group in range(groups):
                    weights = self.weights(group, q, k, buffer)
                    if weights is None:
                        continue
                    turned, part = weights.transpose(1, 2), self.gradient[:, group, q[0] : q[1]].to(buffer.dtype)
                    total = torch.bmm(turned, part) if total is None else total.baddbmm_(turned, part)
            out[:, k[0] : k[1]] = 0.0 if total is None else total

    def weights(self, group: int, q: Part, k: Part, buffer: Tensor) -> Tensor | None:
        """exp(scores + mask - logsumexp) of one block, made in `buffer`; None where nobody sees anything."""
        mask = None if self.mask is None else self.mask[:, group, q[0] : q[1], k[0] : k[1]]
        if mask is not None and not bool((mask if mask.dtype is torch.bool else mask > -torch.inf).any()):
            return None
        query, key = (part.to(buffer.dtype) for part in (self.query[:, group, q[0] : q[1]], self.key[:, k[0] : k[1]]))
        made = buffer[: len(query) * query.shape[1] * key.shape[1]].view(len(query), query.shape[1], key.shape[1])
        below = self.sums[:, group, q[0] : q[1], None].neg()
        scored(below, query, key, self.scale, self.cap, out=made)
        if mask is not None and mask.dtype is not torch.bool:
            made.add_(mask)
        made.exp_()
        if mask is not None and mask.dtype is torch.bool:
            made.masked_fill_(~mask, 0.0)
        if self.causal and q[0] < k[1] - 1:  # some of these queries come before some of these keys
            made.tril_(q[0] - k[0])
        return made


def scored(below: Tensor, query: Tensor, key: Tensor, scale: float, cap: float, out: Tensor | None = None) -> Tensor:
    """below + scale q k^T, or below + cap tanh(scale q k^T / cap)."""
    if not cap:
        return torch.baddbmm(below, query, key.transpose(1, 2), alpha=scale, out=out)
    made = torch.bmm(query, key.transpose(1, 2), out=out)
    return made.mul_(scale / cap).tanh_().mul_(cap).add_(below)


def spans(first: int, last: int, step: int) -> Iterator[Part]:
    for start in range(first, last, step):
        yield start, min(start + step, last)


def knows(sums: Tensor | None, mask: Tensor | None) -> bool:
    """Whether the weights can be had from the logsumexp without losing digits."""
    if sums is None:
        return False
    return mask is None or mask.dtype is torch.bool or bool((sums > DEEP).all())


def values_gradient(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    sums: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    causal: bool,
    cap: float = 0.0,
) -> Tensor:
    """P^T dO, [batch, heads of the values, keys, size]."""
    dtype = torch.float32 if query.dtype in (torch.float16, torch.bfloat16) else query.dtype
    sums = sums.to(dtype).masked_fill(sums == -torch.inf, 0.0)  # a query that sees nothing
    if sums.numel() * key.shape[2] <= CACHED:
        return at_once(gradient, query.to(dtype), key.to(dtype), sums, mask, scale, causal, cap)
    return by_blocks(gradient, query, key, sums, mask, scale, causal, cap)


def at_once(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    sums: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    cap: float,
) -> Tensor:
    """The whole batch is one block. Heads that share keys are rows of one product."""
    batch, kv_heads, n_keys, _ = key.shape
    rows = sums[0].numel() // kv_heads
    q, g, s = (part.reshape(batch * kv_heads, rows, -1) for part in (query, gradient.to(query.dtype), sums))
    k = key.reshape(batch * kv_heads, n_keys, -1)
    weights = scored(s.neg(), q, k, scale, cap)
    of_heads = weights.view(*query.shape[:3], n_keys)
    if mask is not None and mask.dtype is not torch.bool:
        of_heads.add_(mask)
    weights.exp_()
    if mask is not None and mask.dtype is torch.bool:
        of_heads.masked_fill_(~mask, 0.0)
    if causal:
        of_heads.tril_()
    return torch.bmm(weights.transpose(1, 2), g).view(batch, kv_heads, n_keys, -1).to(gradient.dtype)


def by_blocks(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    sums: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    cap: float,
) -> Tensor:
    batch, heads, n_queries, _ = query.shape
    kv_heads, n_keys = key.shape[1], key.shape[2]
    out = gradient.new_empty(batch, n_keys, kv_heads, gradient.shape[-1]).transpose(1, 2)
    columns = min(KEYS, n_keys)
    rows = max(1, min(n_queries, CACHED // (columns * kv_heads)))
    buffer = torch.empty(kv_heads * rows * columns, dtype=sums.dtype)
    shape = (kv_heads, heads // kv_heads)
    seen = None if mask is None else mask.expand(batch, heads, n_queries, n_keys)
    for i in range(batch):
        q, g, s = (part[i].unflatten(0, shape) for part in (query, gradient, sums))
        own = None if seen is None else seen[i].unflatten(0, shape)
        Blocks(q, g, key[i], s, own, scale, causal, cap).sums_to(out[i], buffer, rows, columns)
    return out
