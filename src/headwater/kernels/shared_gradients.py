"""Attention's way back on NVIDIA cards, if queries, keys and values take part and sums over tokens have their rule.

Queries and keys get the gradient of attention, values theirs by the rule (`token_sums`). One pass over the queries
gives their gradient and the sums of the rule, one over the keys gives the rest.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
from torch import Tensor

from ..traces.record import as_operation
from .fused import CROWD, EVEN, block, config, on_device, rows_whole
from .scoring import ScoreForm
from .shared_programs import key_kernel, query_kernel

# Queries and keys in a block
FOR_QUERIES = (config(64, 64, 4, 3), config(128, 64, 8, 3), config(64, 32, 4, 3))
FOR_KEYS = (config(32, 64, 4, 3), config(64, 64, 4, 2), config(64, 128, 8, 2), config(32, 128, 8, 3))
LEAST = {"BLOCK_M": 16, "BLOCK_N": 16}  # where there is too little to do for finding out what suits the card

Gradients = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values


def can_share(query: Tensor, key: Tensor, value: Tensor, scoring: ScoreForm) -> bool:
    """Whether the kernels are made for these tensors: no mask but a causal one, half precision, heads of up to 128."""
    if query.dim() != 4 or scoring.mask is not None or scoring.sinks is not None or scoring.cap:
        return False
    alike = query.dtype == key.dtype == value.dtype and key.shape[:3] == value.shape[:3]
    if not alike or query.shape[1] % key.shape[1] or query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return False
    far = max(part.shape[2] * part.stride(2) for part in (query, key, value))
    return max(query.shape[-1], value.shape[-1]) <= 128 and far < 1 << 31  # places inside a head have 32 bits


@functools.cache
def tune_for_card(kernel: Any, configs: tuple[Any, ...]) -> Any:
    """The kernel with the fastest block size, measured once per process for each head size and rough length."""
    return triton.autotune(list(configs), key=["SIZE", "BLOCK_D", "BLOCK_E", "CAUSAL"])(kernel)


def launch_tuned(kernel: Any, configs: tuple[Any, ...], grid: Any, *args: Any, **options: Any) -> None:
    with on_device(args[0]):
        if args[0].is_cuda and options["SIZE"] > 0:
            tune_for_card(kernel, configs)[grid](*args, **options)
        else:
            kernel[grid(LEAST)](*args, **options, **LEAST)


@as_operation
def shared_gradients(
    gradient: Tensor, parts: Gradients, result: Tensor, sums: Tensor, scoring: ScoreForm, gamma: float
) -> Gradients:
    """Of queries, keys and values, the `parts`. `sums` is the logsumexp, `gamma` that of sums over tokens."""
    query, key, value, gradient, result = (rows_whole(part) for part in (*parts, gradient, result))
    top = sums.float().contiguous()
    (batch, heads, n_queries, head), (_, kv_heads, n_keys, _), width = query.shape, key.shape, value.shape[-1]
    groups, sizes = heads // kv_heads, {"BLOCK_D": block(head), "BLOCK_E": block(width)}
    even = n_queries % EVEN == 0 and n_keys % EVEN == 0 and (head, width) == tuple(sizes.values())
    options: dict[str, Any] = {
        "SIZE": min(4, max(n_queries, n_keys) // 1024),
        "CAUSAL": scoring.causal,
        "FULL": even,
        **sizes,
    }
    delta, scales, totals = (torch.empty_like(top) for _ in range(3))
    to_query = query.new_empty(batch, n_queries, heads, head).transpose(1, 2)
    steps = [step for part in (query, key, value, gradient) for step in part.stride()[:3]]
    launch_tuned(
        *(query_kernel, FOR_QUERIES, lambda blocks: (triton.cdiv(n_queries, blocks["BLOCK_M"]), batch * heads)),
        *(query, key, value, gradient, result, top, to_query, delta, scales, totals, *steps),
        *(*result.stride()[:3], *to_query.stride()[:3], scoring.scale, gamma),
        *(n_queries, n_keys, heads, groups, head, width),
        **options,
    )
    shards = groups if batch * kv_heads * triton.cdiv(n_keys, EVEN) < CROWD else 1
    kept = query.dtype if shards == 1 else torch.float32
    to_key, to_value = (
        torch.empty((shards, batch, n_keys, kv_heads, size), dtype=kept, device=query.device).transpose(2, 3)
        for size in (head, width)
    )
    launch_tuned(
        *(key_kernel, FOR_KEYS, lambda blocks: (triton.cdiv(n_keys, blocks["BLOCK_N"]), batch * kv_heads, shards)),
        *(query, key, value, gradient, top, delta, scales, totals, to_key, to_value, *steps),
        *(*to_key.stride()[:4], *to_value.stride()[:4], scoring.scale, gamma),
        *(n_queries, n_keys, kv_heads, groups, groups // shards, head, width),
        **options,
    )
    if shards == 1:
        return to_query, to_key[0], to_value[0]
    return to_query, to_key.sum(0).to(query.dtype), to_value.sum(0).to(query.dtype)
