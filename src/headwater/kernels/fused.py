"""dV = P^T dO on NVIDIA cards: the weights are computed again from queries, keys and logsumexp, block by block.

By the rule for sums over tokens (`token_sums`) it takes two passes: the sums of every query, then the gradients.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch
import triton
from torch import Tensor

from ..traces.record import as_operation
from .cards import on_device
from .programs import ADDED, LOOKS, NONE, PER_LOG_E, gradient_kernel, sums_kernel, token_sums_kernel
from .scoring import ScoreForm
from .token_sums import TokenRule

EVEN = 128  # lengths that are multiples of this fill every block
SHORT, SMALL_HEAD = 256, 128  # numbers that the matrix units may add up: over queries, and over a head's size
CROWD = 512  # programs that keep a card busy; where there are fewer, the heads of a group are taken one by one


def config(m: int, n: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)


# Of the blocks that fit, those whose numbers stay in registers when compiled for compute capability 9.0
SMALL = (config(32, 32, 4, 2), config(32, 64, 4, 2), config(64, 64, 8, 2))
LARGE = (config(64, 64, 4, 3), config(64, 128, 8, 3), config(32, 64, 4, 3))


@functools.cache
def tune(large: bool) -> Any:
    """The kernel with the fastest block size, measured once per process for each head size and rough length."""
    key = ["SIZE", "BLOCK_D", "BLOCK_E", "CAUSAL", "MASK", "TOKEN"]
    return triton.autotune(list(LARGE if large else SMALL), key=key)(gradient_kernel)


def supports(query: Tensor, key: Tensor, gradient: Tensor, rule: TokenRule | None = None) -> bool:
    """Whether the kernels are made for these tensors."""
    if rule is not None and (rule.offset or rule.value.shape[:3] != key.shape[:3]):
        return False
    if rule is not None and not supports(query, rule.value, gradient):
        return False
    if query.dtype not in (torch.float16, torch.bfloat16, torch.float32) or query.dim() != 4:
        return False
    if key.dtype != query.dtype or gradient.dtype != query.dtype or query.shape[1] % key.shape[1]:
        return False
    far = max(part.shape[2] * part.stride(2) for part in (query, key, gradient))
    return max(query.shape[-1], gradient.shape[-1]) <= 256 and far < 1 << 31  # places inside a head have 32 bits


@as_operation
def values_gradient_triton(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    sums: Tensor | None,
    scoring: ScoreForm,
    rule: TokenRule | None = None,
) -> Tensor:
    """P^T dO, [batch, heads of the values, keys, size]. `sums` is the logsumexp; it is made where it is not given."""
    query, key, gradient = (rows_whole(part) for part in (query, key, gradient))
    mask, cap = scoring.mask, scoring.cap
    batch, heads, n_queries, head = query.shape
    kv_heads, n_keys, width = key.shape[1], key.shape[2], gradient.shape[-1]
    groups = heads // kv_heads
    if sums is None or mask_kind(mask) == ADDED.value:
        top, rest = logsumexp(query, key, scoring)
    else:
        top = rest = sums.float().contiguous()
    value, scales, totals = key, top, top  # which nobody looks at without the rule
    if rule is not None:
        value = rows_whole(rule.value)
        scales, totals = token_sums(gradient, query, key, (top, rest), scoring, replace(rule, value=value))
    parts = groups if batch * kv_heads * triton.cdiv(n_keys, EVEN) < CROWD else 1
    kept = query.dtype if parts == 1 else torch.float32
    out = torch.empty((parts, batch, n_keys, kv_heads, width), dtype=kept, device=query.device).transpose(2, 3)
    seen = mask_like(mask, query, n_keys)
    sizes = {"BLOCK_D": block(head), "BLOCK_E": block(width)}
    launch(
        lambda blocks: (triton.cdiv(n_keys, blocks["BLOCK_N"]), batch * kv_heads, parts),
        *(query, key, value, top, rest, scales, totals, gradient, seen, out),
        *(*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *gradient.stride()[:3], *seen.stride()),
        *(*out.stride()[:4], scoring.scale, cap or 1.0, 0.0 if rule is None else rule.gamma),
        *(n_queries, n_keys, kv_heads, groups, groups // parts, head, width),
        SIZE=min(4, max(n_queries, n_keys) // 1024),
        CAUSAL=scoring.causal,
        MASK=mask_kind(mask),
        CAP=bool(cap),
        TOKEN=rule is not None,
        PRECISION=choose_precision(query),
        FULL=n_queries % EVEN == 0 and (head, width) == (sizes["BLOCK_D"], sizes["BLOCK_E"]),
        **sizes,
    )
    return out[0] if parts == 1 else out.sum(0).to(query.dtype)


def token_sums(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    sums: tuple[Tensor, Tensor],
    scoring: ScoreForm,
    rule: TokenRule,
) -> tuple[Tensor, Tensor]:
    """R / S and R of every query, [batch, heads, queries]: what the rule for sums over tokens needs."""
    (batch, heads, n_queries, head), n_keys, value = query.shape, key.shape[2], rule.value
    width = value.shape[-1]
    scales, totals = (query.new_empty((batch, heads, n_queries), dtype=torch.float32) for _ in range(2))
    seen, side = mask_like(scoring.mask, query, n_keys), block_side(query, max(head, width), mixes=True)
    with on_device(query):
        token_sums_kernel[(triton.cdiv(n_queries, side), batch * heads)](
            *(query, key, value, gradient, *sums, seen, scales, totals),
            *(*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *gradient.stride()[:3], *seen.stride()),
            *(scoring.scale, scoring.cap or 1.0, rule.gamma),
            *(n_queries, n_keys, heads, heads // key.shape[1], head, width),
            CAUSAL=scoring.causal,
            MASK=mask_kind(scoring.mask),
            CAP=bool(scoring.cap),
            BLOCK_D=block(head),
            BLOCK_E=block(width),
            BLOCK_M=side,
            BLOCK_N=side,
            num_warps=8 if query.dtype is torch.float32 else 4,
        )
    return scales, totals


def block_side(query: Tensor, widest: int, *, mixes: bool) -> int:
    """Queries and keys in a block."""
    precise = query.dtype is torch.float32
    return 16 if mixes and precise and widest > 64 else 32 if precise or widest > 128 else 64


def logsumexp(query: Tensor, key: Tensor, scoring: ScoreForm) -> tuple[Tensor, Tensor]:
    """log sum_k exp(q k^T scale + mask), [batch, heads, queries]; with an added mask in two parts, see the kernel."""
    _, top, rest = walk_blocks(query, key, None, scoring)
    return top, rest


def attend_by_triton(query: Tensor, key: Tensor, value: Tensor, scoring: ScoreForm) -> tuple[Tensor, Tensor]:
    """Attention, [batch, heads, queries, size], and its logsumexp."""
    out, top, rest = walk_blocks(query, key, value, scoring)
    return out, top + rest / PER_LOG_E.value if mask_kind(scoring.mask) == ADDED.value else top


@as_operation
def walk_blocks(query: Tensor, key: Tensor, value: Tensor | None, scoring: ScoreForm) -> tuple[Tensor, Tensor, Tensor]:
    """Each block of queries over the keys that it sees. Without values, only the sums are computed.

    Block sizes are those that need no memory beyond the registers at compute capability 9.0, where there are such
    sizes.
    """
    query, key = rows_whole(query), rows_whole(key)
    mask, sinks, cap = scoring.mask, scoring.sinks, scoring.cap
    mixes = value is not None
    value = key if value is None else rows_whole(value)
    batch, heads, n_queries, head = query.shape
    n_keys, kv_heads, width = key.shape[2], key.shape[1], value.shape[-1]
    out = query.new_empty(batch, n_queries if mixes else 0, heads, width).transpose(1, 2)
    seen = mask_like(mask, query, n_keys)
    top, rest = (query.new_zeros((batch, heads, n_queries), dtype=torch.float32) for _ in range(2))
    side = block_side(query, max(head, width), mixes=mixes)
    with on_device(query):
        sums_kernel[(triton.cdiv(n_queries, side), batch * heads)](
            *(query, key, value, seen, top if sinks is None else sinks.contiguous(), out, top, rest),
            *(*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *seen.stride(), *out.stride()[:3]),
            *(scoring.scale, cap or 1.0, n_queries, n_keys, heads, heads // kv_heads, head, width),
            CAUSAL=scoring.causal,
            MASK=mask_kind(mask),
            CAP=bool(cap),
            SINK=sinks is not None,
            VALUES=mixes,
            BLOCK_D=block(head),
            BLOCK_E=block(width),
            BLOCK_M=side,
            BLOCK_N=side,
            num_warps=8 if mixes and query.dtype is torch.float32 else 4,
        )
    return out, top, rest


def launch(grid: Any, *args: Any, **options: Any) -> None:
    """With the blocks that suit the card, found out where there is enough to do; else with small ones."""
    large = args[0].dtype is not torch.float32 and max(options["BLOCK_D"], options["BLOCK_E"]) <= 128
    if args[0].is_cuda and options["SIZE"] > 0:
        with on_device(args[0]):
            tune(large)[grid](*args, **options)
        return
    blocks = {"BLOCK_M": 32, "BLOCK_N": 64 if large else 32}
    with on_device(args[0]):
        gradient_kernel[grid(blocks)](*args, **options, **blocks)


def choose_precision(query: Tensor) -> str:
    """How blocks of float32 are multiplied: by three products of the matrix units, which have all digits between them.

    They cut sums off after the last digit, always towards zero, so that long sums stay with the other units.
    """
    short = query.shape[2] <= SHORT and query.shape[3] <= SMALL_HEAD
    return "tf32x3" if query.dtype is torch.float32 and short else "ieee"


def block(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def rows_whole(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def mask_kind(mask: Tensor | None) -> int:
    kind: int = (NONE if mask is None else LOOKS if mask.dtype is torch.bool else ADDED).value
    return kind


def mask_like(mask: Tensor | None, query: Tensor, n_keys: int) -> Tensor:
    """The mask with a step of zero along every axis that it does not have."""
    if mask is None:
        return query.new_empty(1).expand(1, 1, 1, 1)
    numbers = mask.view(torch.uint8) if mask.dtype is torch.bool else mask
    return numbers.expand(*query.shape[:3], n_keys)
