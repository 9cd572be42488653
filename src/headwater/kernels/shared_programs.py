"""The Triton programs that `shared_gradients` launches: attention's way back if queries, keys and values take part.

The first holds a block of queries and visits the keys that they see, the second a block of keys and visits the queries.
Weights and their gradients are made in both: seven products in all, where the gradient alone takes five.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .programs import PER_LOG_E

# fmt: off


@triton.jit
def visit_keys(
    acc, total, size, q, g, top, delta, K, V, first, last, m, n_keys, head, width, step_k, step_v, scale,
    CAUSAL: tl.constexpr, FULL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """acc += dS K, total += sum of r, size += sum of |r| over the keys from `first` to `last`, with r = p <g, v>."""
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    for begin in range(first, last, BLOCK_N):
        n = begin + tl.arange(0, BLOCK_N)
        if FULL:
            k = tl.load(K + n[:, None] * step_k + d[None, :])
            v = tl.load(V + n[:, None] * step_v + e[None, :])
        else:
            row = n[:, None] < n_keys
            k = tl.load(K + n[:, None] * step_k + d[None, :], mask=row & (d[None, :] < head), other=0.0)
            v = tl.load(V + n[:, None] * step_v + e[None, :], mask=row & (e[None, :] < width), other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * PER_LOG_E)
        p = tl.exp2(s - (top * PER_LOG_E)[:, None])
        if CAUSAL:
            p = tl.where(m[:, None] >= n[None, :], p, 0.0)
        if not FULL:
            p = tl.where(n[None, :] < n_keys, p, 0.0)
        dp = tl.dot(g, tl.trans(v), input_precision="ieee")
        r = p * dp
        total += tl.sum(r, 1)
        size += tl.sum(tl.abs(r), 1)
        ds = p * (dp - delta[:, None])
        acc += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    return acc, total, size


@triton.jit
def query_kernel(
    Q, K, V, G, RESULT, TOP, DQ, DELTA, SCALES, TOTALS, q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m,
    o_b, o_h, o_m, d_b, d_h, d_m, scale, gamma, n_queries, n_keys, heads, groups, head, width,
    SIZE: tl.constexpr, CAUSAL: tl.constexpr, FULL: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """For a block of queries their gradient, <g, o>, and what the rule for sums over tokens needs: R and R / S."""
    start = (tl.cdiv(n_queries, BLOCK_M) - 1 - tl.program_id(0)) * BLOCK_M  # those that see most come first
    batch, h = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    m, d, e = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    inside, row = m < n_queries, (batch * heads + h) * n_queries + m
    of_queries, of_results = inside[:, None] & (d[None, :] < head), inside[:, None] & (e[None, :] < width)
    q = tl.load(Q + batch * q_b + h * q_h + m[:, None] * q_m + d[None, :], mask=of_queries, other=0.0)
    g = tl.load(G + batch * g_b + h * g_h + m[:, None] * g_m + e[None, :], mask=of_results, other=0.0)
    o = tl.load(RESULT + batch * o_b + h * o_h + m[:, None] * o_m + e[None, :], mask=of_results, other=0.0)
    top = tl.load(TOP + row, mask=inside, other=float("inf"))
    delta = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
    at_k, at_v = K + batch * k_b + (h // groups) * k_h, V + batch * v_b + (h // groups) * v_h
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    total, size = tl.zeros([BLOCK_M], dtype=tl.float32), tl.zeros([BLOCK_M], dtype=tl.float32)
    free, last = n_keys, n_keys
    if CAUSAL:  # the keys before `free` are seen by all queries of the block, those from `last` on by none
        free = tl.minimum((start // BLOCK_N) * BLOCK_N, n_keys)
        last = tl.minimum(start + BLOCK_M, n_keys)
    acc, total, size = visit_keys(
        acc, total, size, q, g, top, delta, at_k, at_v, 0, free, m, n_keys, head, width, k_n, v_n, scale,
        False, FULL, BLOCK_N, BLOCK_D, BLOCK_E
    )
    if CAUSAL:
        acc, total, size = visit_keys(
            acc, total, size, q, g, top, delta, at_k, at_v, free, last, m, n_keys, head, width, k_n, v_n, scale,
            True, FULL, BLOCK_N, BLOCK_D, BLOCK_E
        )
    boosted = total + 0.5 * gamma * (total + tl.where(total < 0, -size, tl.where(total > 0, size, 0.0)))
    scales = tl.where(boosted == 0, 1.0, total / tl.where(boosted == 0, 1.0, boosted))
    tl.store(TOTALS + row, total, mask=inside)
    tl.store(SCALES + row, scales, mask=inside)
    tl.store(DELTA + row, delta, mask=inside)
    at = DQ + batch * d_b + h * d_h + m[:, None].to(tl.int64) * d_m + d[None, :]
    tl.store(at, (acc * scale).to(DQ.dtype.element_ty), mask=of_queries)


@triton.jit
def visit_queries(
    to_k, to_v, k, v, Q, G, TOP, DELTA, SCALES, TOTALS, first, last, n, n_queries, head, width, step_q, step_g, scale,
    gamma,
    CAUSAL: tl.constexpr, FULL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """to_k += dS^T Q, to_v += (w p)^T dO over the queries from `first` to `last`."""
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    for start in range(first, last, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        inside = m < n_queries
        if FULL:
            q = tl.load(Q + m[:, None] * step_q + d[None, :])
            g = tl.load(G + m[:, None] * step_g + e[None, :])
        else:
            q = tl.load(Q + m[:, None] * step_q + d[None, :], mask=inside[:, None] & (d[None, :] < head), other=0.0)
            g = tl.load(G + m[:, None] * step_g + e[None, :], mask=inside[:, None] & (e[None, :] < width), other=0.0)
        top = tl.load(TOP + m, mask=inside, other=float("inf"))
        delta, total = tl.load(DELTA + m, mask=inside, other=0.0), tl.load(TOTALS + m, mask=inside, other=0.0)
        kept = tl.load(SCALES + m, mask=inside, other=0.0)
        s = tl.dot(k, tl.trans(q), input_precision="ieee") * (scale * PER_LOG_E)
        p = tl.exp2(s - (top * PER_LOG_E)[None, :])
        if CAUSAL:
            p = tl.where(m[None, :] >= n[:, None], p, 0.0)
        dp = tl.dot(v, tl.trans(g), input_precision="ieee")
        agrees = (p * dp) * total[None, :] > 0
        boosted = p * tl.where(agrees, (kept * (1 + gamma))[None, :], kept[None, :])
        to_v += tl.dot(boosted.to(g.dtype), g, input_precision="ieee")
        ds = p * (dp - delta[None, :])
        to_k += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    return to_k, to_v


@triton.jit
def key_kernel(
    Q, K, V, G, TOP, DELTA, SCALES, TOTALS, DK, DV, q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m,
    dk_p, dk_b, dk_h, dk_n, dv_p, dv_b, dv_h, dv_n, scale, gamma, n_queries, n_keys, kv_heads, groups, each, head,
    width,
    SIZE: tl.constexpr, CAUSAL: tl.constexpr, FULL: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """For a block of keys the gradients of keys and values, from `each` of the heads that share them."""
    start, part = tl.program_id(0) * BLOCK_N, tl.program_id(2)
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    n, d, e = start + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    of_keys, of_values = (n[:, None] < n_keys) & (d[None, :] < head), (n[:, None] < n_keys) & (e[None, :] < width)
    k = tl.load(K + batch * k_b + kv_head * k_h + n[:, None] * k_n + d[None, :], mask=of_keys, other=0.0)
    v = tl.load(V + batch * v_b + kv_head * v_h + n[:, None] * v_n + e[None, :], mask=of_values, other=0.0)
    to_k, to_v = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32), tl.zeros([BLOCK_N, BLOCK_E], dtype=tl.float32)
    first, free = 0, 0
    if CAUSAL:  # earlier queries see nothing of this block; from `free` on they see all of it
        first = (start // BLOCK_M) * BLOCK_M
        free = tl.cdiv(start + BLOCK_N - 1, BLOCK_M) * BLOCK_M
    for group in range(part * each, part * each + each):
        h = kv_head * groups + group
        at_q, at_g = Q + batch * q_b + h * q_h, G + batch * g_b + h * g_h
        row = (batch * kv_heads * groups + h) * n_queries
        if CAUSAL:
            to_k, to_v = visit_queries(
                to_k, to_v, k, v, at_q, at_g, TOP + row, DELTA + row, SCALES + row, TOTALS + row, first,
                tl.minimum(free, n_queries), n, n_queries, head, width, q_m, g_m, scale, gamma, True, FULL, BLOCK_M,
                BLOCK_D, BLOCK_E
            )
        to_k, to_v = visit_queries(
            to_k, to_v, k, v, at_q, at_g, TOP + row, DELTA + row, SCALES + row, TOTALS + row, free, n_queries, n,
            n_queries, head, width, q_m, g_m, scale, gamma, False, FULL, BLOCK_M, BLOCK_D, BLOCK_E
        )
    at_k = DK + part * dk_p + batch * dk_b + kv_head * dk_h + n[:, None].to(tl.int64) * dk_n + d[None, :]
    at_v = DV + part * dv_p + batch * dv_b + kv_head * dv_h + n[:, None].to(tl.int64) * dv_n + e[None, :]
    tl.store(at_k, (to_k * scale).to(DK.dtype.element_ty), mask=of_keys)
    tl.store(at_v, to_v.to(DV.dtype.element_ty), mask=of_values)
