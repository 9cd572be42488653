"""The Triton programs that `fused` launches.

One program holds a block of keys and visits the queries that see it, in all heads that share these keys. It sums their
gradients itself, so keys and values are never repeated. Blocks that a causal mask hides are never visited. Blocks that
another mask hides cost one product instead of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

PER_LOG_E = tl.constexpr(1.4426950408889634)  # exp2 is what the hardware has
NONE, LOOKS, ADDED = (tl.constexpr(kind) for kind in range(3))  # kinds of masks


# fmt: off

@triton.jit
def block_scores(
    q, k, mask, m, n, n_queries, n_keys, step_m, step_n, scale, cap,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
):
    """Scores of keys (rows) by queries (columns), -inf where a query does not look.

    In units of log 2; with a mask that is added in those of log e, for its largest numbers have no room to grow.
    """
    s = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale
    if CAP:  # cap * tanh(s / cap)
        shrunk = tl.exp2(tl.abs(s) * PER_LOG_E * -2.0 / cap)
        s = tl.where(s < 0, -1.0, 1.0) * cap * (1 - shrunk) / (1 + shrunk)
    if MASK != ADDED:
        s *= PER_LOG_E
    if MASK != NONE:
        place = mask + m[None, :].to(tl.int64) * step_m + n[:, None].to(tl.int64) * step_n
        inside = (m[None, :] < n_queries) & (n[:, None] < n_keys)
        if MASK == LOOKS:
            s = tl.where(tl.load(place, mask=inside, other=0) != 0, s, float("-inf"))
        else:
            s += tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
    if CAUSAL:
        s = tl.where(m[None, :] >= n[:, None], s, float("-inf"))
    return s


@triton.jit
def boost(p, v, g, SCALES, TOTALS, m, n_queries, gamma, PRECISION: tl.constexpr):
    """w p for keys (rows) by queries (columns): the rule for sums over tokens, whose sums are known."""
    inside = m < n_queries
    r = p * tl.dot(v, tl.trans(g), input_precision=PRECISION)
    total = tl.load(TOTALS + m, mask=inside, other=0.0)[None, :]
    scale = tl.load(SCALES + m, mask=inside, other=0.0)[None, :]
    agrees = ((total > 0) & (r > 0)) | ((total < 0) & (r < 0))
    return p * tl.where(agrees, scale * (1 + gamma), scale)


@triton.jit
def accumulate(
    acc, k, v, Q, G, TOP, REST, SCALES, TOTALS, mask, first, last, n, n_queries, n_keys, head, width, step_q, step_g,
    step_m, step_n, scale, cap, gamma,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, TOKEN: tl.constexpr, FULL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """acc += P^T dO over the queries from `first` to `last`."""
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    for start in range(first, last, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        if FULL:
            q = tl.load(Q + m[:, None] * step_q + d[None, :])
            g = tl.load(G + m[:, None] * step_g + e[None, :])
            top = tl.load(TOP + m)
        else:
            row = m[:, None] < n_queries
            q = tl.load(Q + m[:, None] * step_q + d[None, :], mask=row & (d[None, :] < head), other=0.0)
            g = tl.load(G + m[:, None] * step_g + e[None, :], mask=row & (e[None, :] < width), other=0.0)
            top = tl.load(TOP + m, mask=m < n_queries, other=float("inf"))
        s = block_scores(
            q, k, mask, m, n, n_queries, n_keys, step_m, step_n, scale, cap, CAUSAL, MASK, CAP, PRECISION
        )
        if MASK == NONE:
            p = tl.exp2(s - (top * PER_LOG_E)[None, :])
            if TOKEN:
                p = boost(p, v, g, SCALES, TOTALS, m, n_queries, gamma, PRECISION)
            acc += tl.dot(p.to(g.dtype), g, input_precision=PRECISION)
        elif tl.max(tl.max(s, 1), 0) > float("-inf"):
            if MASK == LOOKS:
                p = tl.exp2(s - (top * PER_LOG_E)[None, :])
            else:
                rest = tl.load(REST + m, mask=m < n_queries, other=0.0)
                p = tl.exp2((s - top[None, :]) * PER_LOG_E - rest[None, :])
            p = tl.where(s > float("-inf"), p, 0.0)
            if TOKEN:
                p = boost(p, v, g, SCALES, TOTALS, m, n_queries, gamma, PRECISION)
            acc += tl.dot(p.to(g.dtype), g, input_precision=PRECISION)
    return acc


@triton.jit
def gradient_kernel(
    Q, K, V, TOP, REST, SCALES, TOTALS, G, MASK_AT, OUT, q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m,
    mask_b, mask_h, mask_m, mask_n, o_p, o_b, o_h, o_n, scale, cap, gamma, n_queries, n_keys, kv_heads, groups, each,
    head, width,
    SIZE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, TOKEN: tl.constexpr,
    FULL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """One block of keys, and `each` of the heads that share them. TOKEN: by the rule for sums over tokens."""
    start, part = tl.program_id(0) * BLOCK_N, tl.program_id(2).to(tl.int64)
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    n = start + tl.arange(0, BLOCK_N)
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    inside = (n[:, None] < n_keys) & (d[None, :] < head)
    k = tl.load(K + batch * k_b + kv_head * k_h + n[:, None] * k_n + d[None, :], mask=inside, other=0.0)
    v = k
    if TOKEN:
        of_values = (n[:, None] < n_keys) & (e[None, :] < width)
        v = tl.load(V + batch * v_b + kv_head * v_h + n[:, None] * v_n + e[None, :], mask=of_values, other=0.0)
    acc = tl.zeros([BLOCK_N, BLOCK_E], dtype=tl.float32)
    first, free = 0, 0
    if CAUSAL:  # earlier queries see nothing of this block; from `free` on they see all of it
        first = (start // BLOCK_M) * BLOCK_M
        free = tl.cdiv(start + BLOCK_N - 1, BLOCK_M) * BLOCK_M
    for group in range(part * each, part * each + each):
        h = kv_head * groups + group
        at_q, at_g = Q + batch * q_b + h * q_h, G + batch * g_b + h * g_h
        row = (batch * kv_heads * groups + h) * n_queries
        at_mask = MASK_AT + batch * mask_b + h * mask_h
        if CAUSAL:
            acc = accumulate(
                acc, k, v, at_q, at_g, TOP + row, REST + row, SCALES + row, TOTALS + row, at_mask, first,
                tl.minimum(free, n_queries), n, n_queries, n_keys, head, width, q_m, g_m, mask_m, mask_n, scale, cap,
                gamma, True, MASK, CAP, TOKEN, FULL, PRECISION, BLOCK_M, BLOCK_D, BLOCK_E
            )
        acc = accumulate(
            acc, k, v, at_q, at_g, TOP + row, REST + row, SCALES + row, TOTALS + row, at_mask, free, n_queries, n,
            n_queries, n_keys, head, width, q_m, g_m, mask_m, mask_n, scale, cap, gamma, False, MASK, CAP, TOKEN, FULL,
            PRECISION, BLOCK_M, BLOCK_D, BLOCK_E
        )
    out = OUT + part * o_p + batch * o_b + kv_head * o_h + n[:, None].to(tl.int64) * o_n + e[None, :]
    tl.store(out, acc.to(OUT.dtype.element_ty), mask=(n[:, None] < n_keys) & (e[None, :] < width))


@triton.jit
def token_sums_kernel(
    Q, K, V, G, TOP, REST, MASK_AT, SCALES, TOTALS, q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m, mask_b,
    mask_h, mask_m, mask_n, scale, cap, gamma, n_queries, n_keys, heads, groups, head, width,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """For a block of queries the sums R over tokens of p <g, v>, and R / S: see `token_sums`."""
    start = tl.program_id(0) * BLOCK_M
    batch, h = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    m, d, e = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    inside, row = m < n_queries, (batch * heads + h) * n_queries + m
    of_queries, of_results = inside[:, None] & (d[None, :] < head), inside[:, None] & (e[None, :] < width)
    q = tl.load(Q + batch * q_b + h * q_h + m[:, None] * q_m + d[None, :], mask=of_queries, other=0.0)
    g = tl.load(G + batch * g_b + h * g_h + m[:, None] * g_m + e[None, :], mask=of_results, other=0.0)
    top = tl.load(TOP + row, mask=inside, other=float("inf"))
    at_k, at_mask = K + batch * k_b + (h // groups) * k_h, MASK_AT + batch * mask_b + h * mask_h
    at_v = V + batch * v_b + (h // groups) * v_h
    total, size = tl.zeros([BLOCK_M], dtype=tl.float32), tl.zeros([BLOCK_M], dtype=tl.float32)
    last = n_keys
    if CAUSAL:
        last = tl.minimum(start + BLOCK_M, n_keys)
    for begin in range(0, last, BLOCK_N):
        n = begin + tl.arange(0, BLOCK_N)
        of_keys, of_values = (n[:, None] < n_keys) & (d[None, :] < head), (n[:, None] < n_keys) & (e[None, :] < width)
        k = tl.load(at_k + n[:, None] * k_n + d[None, :], mask=of_keys, other=0.0)
        v = tl.load(at_v + n[:, None] * v_n + e[None, :], mask=of_values, other=0.0)
        s = block_scores(
            q, k, at_mask, m, n, n_queries, n_keys, mask_m, mask_n, scale, cap, CAUSAL, MASK, CAP, "ieee"
        )
        s = tl.where(n[:, None] < n_keys, s, float("-inf"))
        if MASK == ADDED:
            rest = tl.load(REST + row, mask=inside, other=0.0)
            p = tl.exp2((s - top[None, :]) * PER_LOG_E - rest[None, :])
        else:
            p = tl.exp2(s - (top * PER_LOG_E)[None, :])
        p = tl.where(s > float("-inf"), p, 0.0)
        r = p * tl.dot(v, tl.trans(g), input_precision="ieee")
        total += tl.sum(r, 0)
        size += tl.sum(tl.abs(r), 0)
    boosted = total + 0.5 * gamma * (total + tl.where(total < 0, -size, tl.where(total > 0, size, 0.0)))
    scales = tl.where(boosted == 0, 1.0, total / tl.where(boosted == 0, 1.0, boosted))
    tl.store(TOTALS + row, total, mask=inside)
    tl.store(SCALES + row, scales, mask=inside)


@triton.jit
def sums_kernel(
    Q, K, V, MASK_AT, SINKS, OUT, TOP, REST, q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, mask_b, mask_h, mask_m,
    mask_n, o_b, o_h, o_m, scale, cap, n_queries, n_keys, heads, groups, head, width,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, SINK: tl.constexpr, VALUES: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """The logsumexp of a block of queries, where the forward kernel did not tell it; with VALUES that kernel itself.

    With a mask that is added, two numbers: the highest score, and the log2 of the sum over it. A row whose every score
    is the lowest number there is has a sum whose digits the highest score would swallow.
    """
    start = tl.program_id(0) * BLOCK_M
    batch, h = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    m, d, e = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    of_queries = (m[:, None] < n_queries) & (d[None, :] < head)
    q = tl.load(Q + batch * q_b + h * q_h + m[:, None] * q_m + d[None, :], mask=of_queries, other=0.0)
    at_k, at_mask = K + batch * k_b + (h // groups) * k_h, MASK_AT + batch * mask_b + h * mask_h
    at_v = V + batch * v_b + (h // groups) * v_h
    most = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_E], dtype=tl.float32)
    if SINK:  # a score that all queries of the head see, and that has no value
        sink = tl.load(SINKS + h).to(tl.float32)
        if MASK != ADDED:
            sink *= PER_LOG_E
        most, total = tl.zeros([BLOCK_M], dtype=tl.float32) + sink, total + 1.0
    last = n_keys
    if CAUSAL:
        last = tl.minimum(start + BLOCK_M, n_keys)
    for begin in range(0, last, BLOCK_N):
        n = begin + tl.arange(0, BLOCK_N)
        of_keys = (n[:, None] < n_keys) & (d[None, :] < head)
        k = tl.load(at_k + n[:, None] * k_n + d[None, :], mask=of_keys, other=0.0)
        s = block_scores(
            q, k, at_mask, m, n, n_queries, n_keys, mask_m, mask_n, scale, cap, CAUSAL, MASK, CAP, "ieee"
        )
        s = tl.where(n[:, None] < n_keys, s, float("-inf"))
        higher = tl.maximum(most, tl.max(s, 0))
        base = tl.where(higher > float("-inf"), higher, 0.0)
        old, new = most - base, s - base[None, :]
        if MASK == ADDED:
            old, new = old * PER_LOG_E, new * PER_LOG_E
        p, shrunk = tl.exp2(new), tl.exp2(old)
        total = total * shrunk + tl.sum(p, 0)
        most = higher
        if VALUES:
            of_values = (n[:, None] < n_keys) & (e[None, :] < width)
            v = tl.load(at_v + n[:, None] * v_n + e[None, :], mask=of_values, other=0.0)
            acc = acc * shrunk[:, None] + tl.dot(tl.trans(p).to(v.dtype), v, input_precision="ieee")
    row = (batch * heads + h) * n_queries + m
    if VALUES:
        acc = acc / tl.where(total > 0, total, 1.0)[:, None]
        out = OUT + batch * o_b + h * o_h + m[:, None].to(tl.int64) * o_m + e[None, :]
        tl.store(out, acc.to(OUT.dtype.element_ty), mask=(m[:, None] < n_queries) & (e[None, :] < width))
    if MASK == ADDED:
        tl.store(TOP + row, most, mask=m < n_queries)
        tl.store(REST + row, tl.log2(total), mask=m < n_queries)
    else:
        tl.store(TOP + row, (most + tl.log2(total)) / PER_LOG_E, mask=m < n_queries)
