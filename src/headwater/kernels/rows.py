"""Attention with capped scores and sinks, in blocks of queries: the result, and its exact gradients.

A block has all keys of its queries, so its softmax needs no second pass. Only one block of weights exists at a time.
Heads that share keys are computed in one product. Keys that no query of the block sees are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .token_sums import agreeing

CACHED = 1 << 20  # weights in a block: 4 MiB of float32
LENT = 1 << 26  # the same on a card

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class QueryBlock:
    """Some queries of the heads that share one head of keys, and the keys that they may see."""

    sample: int
    kv_head: int
    queries: slice
    keys: slice


@dataclass(frozen=True)
class BlockedAttention:
    """One attention, [batch, heads, length, size]. `sinks`, a score for each head, takes weight and gives nothing.

    With `ratio` the cap passes back as its input times a constant, which is no gradient, but conserves.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    sinks: Tensor | None
    scale: float
    causal: bool
    cap: float
    ratio: bool = False
    token: float = 0.0  # gamma in the sums over keys

    @property
    def groups(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.query.dtype in (torch.float16, torch.bfloat16) else self.query.dtype

    def blocks(self) -> Iterator[QueryBlock]:
        batch, _, n_queries, _ = self.query.shape
        most = CACHED if self.query.device.type == "cpu" else LENT
        step = max(1, min(n_queries, most // (self.groups * self.key.shape[2])))
        for sample in range(batch):
            for start in range(0, n_queries, step):
                queries = slice(start, min(start + step, n_queries))
                keys = self.key_range(sample, queries)
                for kv_head in range(self.key.shape[1]):
                    yield QueryBlock(sample, kv_head, queries, keys)

    def key_range(self, sample: int, queries: slice) -> slice:
        """The keys between the first and the last that any of these queries sees, in any head."""
        n_keys = self.key.shape[2]
        if self.causal:
            return slice(0, min(queries.stop, n_keys))
        if self.mask is None or self.mask.device.type != "cpu":  # a card would have to be waited for
            return slice(0, n_keys)
        part = self.mask[(None,) * (4 - self.mask.dim())]
        part = part[sample if len(part) > 1 else 0][:, queries if part.shape[2] > 1 else slice(None)]
        part = part if part.dtype is torch.bool else part > -torch.inf
        seen = part.any(0).any(0).expand(n_keys).nonzero()
        return slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 1)

    def heads(self, block: QueryBlock) -> slice:
        return slice(block.kv_head * self.groups, (block.kv_head + 1) * self.groups)

    def queries(self, tensor: Tensor, block: QueryBlock) -> Tensor:
        """Of something that every query has: this block's, heads and queries in one axis."""
        return tensor[block.sample, self.heads(block), block.queries].to(self.dtype).flatten(0, 1)

    def keys(self, tensor: Tensor, block: QueryBlock) -> Tensor:
        return tensor[block.sample, block.kv_head, block.keys].to(self.dtype)

    def scores(self, block: QueryBlock) -> Tensor:
        """cap tanh(scale q k^T / cap), [heads and queries, keys]."""
        made = self.queries(self.query, block) @ self.keys(self.key, block).T
        return made.mul_(self.scale / self.cap).tanh_().mul_(self.cap) if self.cap else made.mul_(self.scale)

    def slope(self, scores: Tensor, block: QueryBlock) -> Tensor:
        """The derivative of the cap where it gave these scores, or their ratio to what it was given."""
        if not self.ratio:
            return 1 - (scores / self.cap).square_()
        given = (self.queries(self.query, block) @ self.keys(self.key, block).T).mul_(self.scale)
        return (scores / given).masked_fill_(given == 0, 1.0)

    def exponentiate(self, scores: Tensor, block: QueryBlock) -> tuple[Tensor, Tensor, Tensor]:
        """exp(scores - top), in the memory of `scores`; its sums with the sinks', and top, [heads and queries, 1]."""
        by_head = scores.view(self.groups, -1, scores.shape[-1])
        self.hide(by_head, block)
        top = by_head.amax(-1, keepdim=True)
        sinks = None if self.sinks is None else self.sinks[self.heads(block)].to(self.dtype)[:, None, None]
        if sinks is not None:
            top = torch.maximum(top, sinks)
        top = top.masked_fill(top == -torch.inf, 0.0)  # a query that sees nothing
        total = by_head.sub_(top).exp_().sum(-1, keepdim=True)
        if sinks is not None:
            total += (sinks - top).exp_()
        return scores, total.view(-1, 1), top.view(-1, 1)

    def hide(self, scores: Tensor, block: QueryBlock) -> None:
        """-inf where a query does not look, [heads, queries, keys]."""
        if self.mask is not None:
            whole = self.mask.expand(*self.query.shape[:3], self.key.shape[2])
            part = whole[block.sample, self.heads(block), block.queries, block.keys]
            if part.dtype is torch.bool:
                scores.masked_fill_(~part, -torch.inf)
            else:
                scores.add_(part)
        if self.causal:
            late = scores[..., block.queries.start :]  # keys after the first of these queries
            if late.shape[-1]:
                ahead = torch.ones(late.shape[-2:], dtype=torch.bool, device=late.device).triu_(1)
                late.masked_fill_(ahead, -torch.inf)

    def result(self) -> tuple[Tensor, Tensor]:
        """What is attended to, and the logsumexp of every query's scores, its sink's among them."""
        batch, heads, n_queries, _ = self.query.shape
        out = self.query.new_empty(batch, n_queries, heads, self.value.shape[-1]).transpose(1, 2)
        sums = torch.empty(batch, heads, n_queries, dtype=self.dtype, device=self.query.device)
        for block in self.blocks():
            weights, total, top = self.exponentiate(self.scores(block), block)
            mixed = (weights @ self.keys(self.value, block)).div_(fill_zeros(total))
            place = block.sample, self.heads(block), block.queries
            out[place] = mixed.view(self.groups, -1, mixed.shape[-1]).to(out.dtype)
            sums[place] = top.add_(total.log_()).view(self.groups, -1)
        return out, sums

    def gradients(self, gradient: Tensor, result: Tensor) -> Gradients:
        """Of queries, keys and values, and of every sample's sinks, where `gradient` is that of the result."""
        found = [torch.zeros_like(part, dtype=self.dtype) for part in (self.query, self.key, self.value)]
        to_query, to_key, to_value = found
        to_sinks = None if self.sinks is None else self.query.new_zeros(self.query.shape[:2], dtype=self.dtype)
        for block in self.blocks():
            scores = self.scores(block)
            slope = self.slope(scores, block) if self.cap else None
            weights, total, top = self.exponentiate(scores, block)
            weights = weights.div_(fill_zeros(total))
            from_query = self.queries(gradient, block)
            mean = (from_query * self.queries(result, block)).sum(-1, keepdim=True)
            shared = block.sample, block.kv_head, block.keys
            slopes = from_query @ self.keys(self.value, block).T
            boosted = agreeing(slopes * weights, self.token).mul_(weights) if self.token else weights
            to_value[shared] += boosted.T @ from_query
            if to_sinks is not None:
                assert self.sinks is not None
                of_head = self.sinks[self.heads(block)].to(self.dtype)[:, None]
                taken = (of_head - top.view(self.groups, -1)).exp_() / total.view(self.groups, -1)
                to_sinks[block.sample, self.heads(block)] -= (taken * mean.view(self.groups, -1)).sum(-1)
            back = slopes.sub_(mean).mul_(weights)
            back = back.mul_(self.scale if slope is None else slope.mul_(self.scale))
            part = back @ self.keys(self.key, block)
            to_query[block.sample, self.heads(block), block.queries] = part.view(self.groups, -1, part.shape[-1])
            to_key[shared] += back.T @ self.queries(self.query, block)
        return to_query.to(self.query.dtype), to_key.to(self.key.dtype), to_value.to(self.value.dtype), to_sinks


def fill_zeros(total: Tensor) -> Tensor:
    """Sums to divide by; where a query sees nothing, not even a sink, its weights are zeros and stay so."""
    return total.masked_fill(total == 0, 1.0)


def plan_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None, options: Any
) -> BlockedAttention:
    """By the options of torch's attention, `cap`, `ratio` and `token`."""
    scale = options.get("scale") or query.shape[-1] ** -0.5
    causal, cap = bool(options.get("is_causal")), float(options.get("cap") or 0.0)
    ratio, token = bool(options.get("ratio")), float(options.get("token") or 0.0)
    return BlockedAttention(query, key, value, mask, sinks, scale, causal, cap, ratio, token)
