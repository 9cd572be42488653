"""dV = P^T dO on the processor, in blocks of attention weights that fit its cache.

Keys that several heads share are not copied: the gradients of these heads are summed. Blocks in which the mask hides
everything are skipped, and so are queries whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..traces.record import as_operation
from .scoring import ScoreForm
from .sparse_rows import find_nonzero_queries
from .token_sums import TokenRule

CACHED = 1 << 20  # weights in a block: 4 MiB of float32
KEYS = 256  # in a block, where there are more
DEEP = -1024.0  # a logsumexp below this has lost the digits of its sum to the mask: softmax itself is better then

Part = tuple[int, int]


@dataclass(frozen=True)
class Held:
    """An attention whose weights are constants: all that is needed to compute the weights again.

    Tensors are [batch, heads, length, size]. `first` is the position of the first query, which a causal mask needs.
    """

    query: Tensor
    key: Tensor
    sums: Tensor
    mask: Tensor | None
    scale: float
    causal: bool
    cap: float
    first: int = 0

    def between(self, start: int, stop: int) -> Held:
        """The same for some of the queries."""
        mask = self.mask if self.mask is None or self.mask.shape[-2] == 1 else self.mask[..., start:stop, :]
        query, sums = self.query[:, :, start:stop], self.sums[:, :, start:stop]
        return replace(self, query=query, sums=sums, mask=mask, first=self.first + start)

    def of_sample(self, i: int) -> Held:
        """One sample's, with heads that share keys in a group, [heads of the values, group, queries, size]."""
        (batch, heads, n_queries, _), (_, kv_heads, n_keys, _) = self.query.shape, self.key.shape
        shape = (kv_heads, heads // kv_heads)
        mask = None if self.mask is None else self.mask.expand(batch, heads, n_queries, n_keys)[i].unflatten(0, shape)
        query, sums = (part[i].unflatten(0, shape) for part in (self.query, self.sums))
        return replace(self, query=query, sums=sums, mask=mask, key=self.key[i])


def keeps_digits(sums: Tensor | None, mask: Tensor | None) -> bool:
    """Whether the weights can be had from the logsumexp without losing digits."""
    if sums is None:
        return False
    return mask is None or mask.dtype is torch.bool or bool((sums > DEEP).all())


@as_operation
def values_gradient_in_blocks(gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor, scoring: ScoreForm) -> Tensor:
    """P^T dO, [batch, heads of the values, keys, size]. `sums` are the logsumexps, in which sinks are counted."""
    gradient, held = leave_out_zeros(gradient, query, key, sums, scoring)
    if not held.sums.numel():
        return gradient.new_zeros(*key.shape[:3], gradient.shape[-1])
    return at_once(gradient, held) if held.sums.numel() * key.shape[2] <= CACHED else by_blocks(gradient, held)


@as_operation
def token_gradient_in_blocks(
    gradients: Tensor, query: Tensor, key: Tensor, sums: Tensor, scoring: ScoreForm, rule: TokenRule
) -> Tensor:
    """The same by the rule for sums over tokens, for several gradients: [scores, batch, heads, queries, size]."""
    gradients, held = leave_out_zeros(gradients, query, key, sums, scoring)
    if not held.sums.numel():
        return gradients.new_zeros(len(gradients), *key.shape[:3], gradients.shape[-1])
    whole = held.sums.numel() * key.shape[2] <= CACHED
    return (tokens_at_once if whole else tokens_by_blocks)(gradients, held, rule).to(gradients.dtype)


def leave_out_zeros(
    gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor, scoring: ScoreForm
) -> tuple[Tensor, Held]:
    """The attention of the queries between the first and the last whose gradient is not zero, and their gradient."""
    dtype = torch.float32 if query.dtype in (torch.float16, torch.bfloat16) else query.dtype
    held = Held(query, key, sums.to(dtype), scoring.mask, scoring.scale, scoring.causal, scoring.cap)
    start, stop = find_nonzero_queries(gradient)
    if (start, stop) != (0, query.shape[2]):
        held, gradient = held.between(start, stop), gradient[..., start:stop, :]
    held = replace(held, sums=held.sums.masked_fill(held.sums == -torch.inf, 0.0))  # a query that sees nothing
    return gradient, held


def at_once(gradient: Tensor, held: Held) -> Tensor:
    """The whole batch is one block. Heads that share keys are rows of one product."""
    weights = weights_at_once(held)
    g = gradient.to(weights.dtype).reshape(*weights.shape[:2], -1)
    return torch.bmm(weights.transpose(1, 2), g).view(*held.key.shape[:3], -1).to(gradient.dtype)


def weights_at_once(held: Held) -> Tensor:
    """exp(scores + mask - logsumexp), [batch and heads of the values, heads that share them and queries, keys]."""
    batch, kv_heads, n_keys, _ = held.key.shape
    rows, dtype = held.sums[0].numel() // kv_heads, held.sums.dtype
    q, s = (part.reshape(batch * kv_heads, rows, -1) for part in (held.query.to(dtype), held.sums))
    k = held.key.to(dtype).reshape(batch * kv_heads, n_keys, -1)
    weights = score_into(s.neg(), q, k, held.scale, held.cap)
    of_heads, mask = weights.view(*held.query.shape[:3], n_keys), held.mask
    if mask is not None and mask.dtype is not torch.bool:
        of_heads.add_(mask)
    weights.exp_()
    if mask is not None and mask.dtype is torch.bool:
        of_heads.masked_fill_(~mask, 0.0)
    if held.causal:
        of_heads.tril_(held.first)
    return weights


def tokens_at_once(gradients: Tensor, held: Held, rule: TokenRule) -> Tensor:
    weights = rule.with_offset(weights_at_once(held))
    value = rule.value.to(weights.dtype).reshape(len(weights), weights.shape[2], -1)
    found = []
    for gradient in gradients:
        g = gradient.to(weights.dtype).reshape(*weights.shape[:2], -1)
        found.append(torch.bmm(rule.boost(weights, g, value).transpose(1, 2), g))
    return torch.stack(found).view(len(gradients), *held.key.shape[:3], -1)


def tokens_by_blocks(gradients: Tensor, held: Held, rule: TokenRule) -> Tensor:
    """A block has all keys of its queries, so that the sums over them are at hand."""
    (batch, kv_heads, n_keys, _), dtype = held.key.shape, held.sums.dtype
    out = torch.zeros(len(gradients), batch, kv_heads, n_keys, gradients.shape[-1], dtype=dtype)
    rows = max(1, min(held.query.shape[2], CACHED // (n_keys * kv_heads)))
    buffer = torch.empty(kv_heads * rows * n_keys, dtype=dtype)
    for i in range(batch):
        parts = gradients[:, i].unflatten(1, (kv_heads, -1))
        blocks = Blocks(held.of_sample(i), parts[0], buffer)
        blocks.boosted_sums_to(out[:, i], parts, rows, replace(rule, value=rule.value[i].to(dtype)))
    return out


def by_blocks(gradient: Tensor, held: Held) -> Tensor:
    n_queries, (batch, kv_heads, n_keys, _) = held.query.shape[2], held.key.shape
    out = gradient.new_empty(batch, n_keys, kv_heads, gradient.shape[-1]).transpose(1, 2)
    columns = min(KEYS, n_keys)
    rows = max(1, min(n_queries, CACHED // (columns * kv_heads)))
    buffer = torch.empty(kv_heads * rows * columns, dtype=held.sums.dtype)
    for i in range(batch):
        part = gradient[i].unflatten(0, (kv_heads, -1))
        Blocks(held.of_sample(i), part, buffer).sums_to(out[i], rows, columns)
    return out


@dataclass(frozen=True)
class Blocks:
    """One sample, block by block, the weights of each made in `buffer`."""

    held: Held
    gradient: Tensor
    buffer: Tensor

    def sums_to(self, out: Tensor, rows: int, columns: int) -> None:
        """Writes P^T dO into `out`, [heads of the values, keys, size]."""
        groups, n_queries = self.gradient.shape[1:3]
        for k in split_range(0, out.shape[1], columns):
            total: Tensor | None = None
            for q in split_range(max(0, k[0] - self.held.first) if self.held.causal else 0, n_queries, rows):
                for group in range(groups):
                    weights = self.weights(group, q, k)
                    if weights is None:
                        continue
                    turned, part = weights.transpose(1, 2), self.gradient[:, group, q[0] : q[1]].to(self.buffer.dtype)
                    total = torch.bmm(turned, part) if total is None else total.baddbmm_(turned, part)
            out[:, k[0] : k[1]] = 0.0 if total is None else total

    def boosted_sums_to(self, out: Tensor, gradients: Tensor, rows: int, rule: TokenRule) -> None:
        """Adds P^T dO by the rule for sums over tokens to `out`, [scores, heads of the values, keys, size]."""
        groups, n_queries = self.gradient.shape[1:3]
        for q in split_range(0, n_queries, rows):
            last = min(out.shape[2], self.held.first + q[1]) if self.held.causal else out.shape[2]
            for group in range(groups):
                weights = self.weights(group, q, (0, last))
                if weights is None:
                    continue
                weights, value = rule.with_offset(weights), rule.value[:, :last]
                for total, gradient in zip(out, gradients, strict=True):
                    g = gradient[:, group, q[0] : q[1]].to(weights.dtype)
                    total[:, :last].baddbmm_(rule.boost(weights, g, value).transpose(1, 2), g)

    def weights(self, group: int, q: Part, k: Part) -> Tensor | None:
        """exp(scores + mask - logsumexp) of one block; None where nobody sees anything."""
        held, buffer = self.held, self.buffer
        mask = None if held.mask is None else held.mask[:, group, q[0] : q[1], k[0] : k[1]]
        if mask is not None and not bool((mask if mask.dtype is torch.bool else mask > -torch.inf).any()):
            return None
        query, key = (part.to(buffer.dtype) for part in (held.query[:, group, q[0] : q[1]], held.key[:, k[0] : k[1]]))
        made = buffer[: len(query) * query.shape[1] * key.shape[1]].view(len(query), query.shape[1], key.shape[1])
        below = held.sums[:, group, q[0] : q[1], None].neg()
        score_into(below, query, key, held.scale, held.cap, out=made)
        if mask is not None and mask.dtype is not torch.bool:
            made.add_(mask)
        made.exp_()
        if mask is not None and mask.dtype is torch.bool:
            made.masked_fill_(~mask, 0.0)
        ahead = held.first + q[0] - k[0]
        if held.causal and ahead < k[1] - k[0] - 1:  # some of these queries come before some of these keys
            made.tril_(ahead)
        return made


def score_into(
    below: Tensor, query: Tensor, key: Tensor, scale: float, cap: float, out: Tensor | None = None
) -> Tensor:
    """below + scale q k^T, or below + cap tanh(scale q k^T / cap)."""
    if not cap:
        return torch.baddbmm(below, query, key.transpose(1, 2), alpha=scale, out=out)
    made = torch.bmm(query, key.transpose(1, 2), out=out)
    return made.mul_(scale / cap).tanh_().mul_(cap).add_(below)


def split_range(first: int, last: int, step: int) -> Iterator[Part]:
    for start in range(first, last, step):
        yield start, min(start + step, last)
