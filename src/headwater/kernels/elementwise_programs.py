"""The Triton programs that `elementwise` launches: one pass over memory each. Numbers are float32 in between."""

from __future__ import annotations

import triton
import triton.language as tl

# fmt: off


@triton.jit
def silu_product_program(G, U, OUT, count, BLOCK: tl.constexpr):
    """silu(g) u, with silu(g) rounded as torch rounds it."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(G + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(U + at, mask=at < count, other=0.0).to(tl.float32)
    value = (g / (1 + tl.exp(-g))).to(OUT.dtype.element_ty).to(tl.float32)
    tl.store(OUT + at, (value * u).to(OUT.dtype.element_ty), mask=at < count)


@triton.jit
def silu_share_program(D, G, U, TO_G, TO_U, count, share, BLOCK: tl.constexpr):
    """The gradients at g, d share u silu(g) / g, and at u, d (1 - share) silu(g)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(D + at, mask=at < count, other=0.0).to(tl.float32)
    g = tl.load(G + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(U + at, mask=at < count, other=0.0).to(tl.float32)
    ratio = 1 / (1 + tl.exp(-g))
    tl.store(TO_G + at, (d * share * u * ratio).to(TO_G.dtype.element_ty), mask=at < count)
    tl.store(TO_U + at, (d * (1 - share) * g * ratio).to(TO_U.dtype.element_ty), mask=at < count)


@triton.jit
def flow_program(SIZE, Z, D, FLOW, SIGNED, count, half, BLOCK: tl.constexpr):
    """d z / D with D = z + half (z + sign(z) size), and the same times sign(z)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    size = tl.load(SIZE + at, mask=at < count, other=0.0).to(tl.float32)
    z = tl.load(Z + at, mask=at < count, other=0.0).to(tl.float32)
    d = tl.load(D + at, mask=at < count, other=0.0).to(tl.float32)
    signed = tl.where(z < 0, -size, size)
    boosted = z + half * (z + signed)
    flow = tl.where(boosted == 0, 0.0, d * (z / tl.where(boosted == 0, 1.0, boosted)))
    sign = tl.where(z < 0, -1.0, tl.where(z > 0, 1.0, 0.0))
    tl.store(FLOW + at, flow.to(FLOW.dtype.element_ty), mask=at < count)
    tl.store(SIGNED + at, (flow * sign).to(SIGNED.dtype.element_ty), mask=at < count)


@triton.jit
def join_program(WHOLE, X, OTHER, OUT, count, half, BLOCK: tl.constexpr):
    """(1 + half) whole + half sign(x) other."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(WHOLE + at, mask=at < count, other=0.0).to(tl.float32)
    x = tl.load(X + at, mask=at < count, other=0.0).to(tl.float32)
    other = tl.load(OTHER + at, mask=at < count, other=0.0).to(tl.float32)
    sign = tl.where(x < 0, -1.0, tl.where(x > 0, 1.0, 0.0))
    tl.store(OUT + at, ((1 + half) * whole + half * sign * other).to(OUT.dtype.element_ty), mask=at < count)


@triton.jit
def ratio_program(X, VALUE, OUT, count, slope, BLOCK: tl.constexpr):
    """f(x) / x, and the slope f'(0) where x is 0."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=1.0).to(tl.float32)
    value = tl.load(VALUE + at, mask=at < count, other=0.0).to(tl.float32)
    ratio = tl.where(x == 0, slope, tl.fdiv(value, tl.where(x == 0, 1.0, x)))
    tl.store(OUT + at, ratio.to(OUT.dtype.element_ty), mask=at < count)


@triton.jit
def centring_program(D, W, SCALE, OUT, width, WEIGHED: tl.constexpr, BLOCK: tl.constexpr):
    """s (d w - E[d w]) of one row."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    flow = tl.load(D + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    if WEIGHED:
        flow *= tl.load(W + at, mask=at < width, other=0.0).to(tl.float32)
    flow = (flow - tl.sum(flow, 0) / width) * tl.load(SCALE + row)
    tl.store(OUT + row * width + at, flow.to(OUT.dtype.element_ty), mask=at < width)


@triton.jit
def dot_program(D, V, SUMS, count, BLOCK: tl.constexpr):
    """The sum of d v over one block; nothing where d is 0, also if v is no number there."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(D + at, mask=at < count, other=0.0).to(tl.float32)
    v = tl.load(V + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(SUMS + tl.program_id(0), tl.sum(tl.where(d == 0, 0.0, d * v), 0))


@triton.jit
def split_program(
    X, OUT, count, width, BY_ROWS: tl.constexpr, PARTS: tl.constexpr, PRODUCTS: tl.constexpr, BLOCK: tl.constexpr
):
    """The parts of x in bfloat16, once for every product: side by side in its row, or all of X above the next."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=0.0)
    first = x.to(tl.bfloat16)
    rest = x - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    third = (rest - second.to(tl.float32)).to(tl.bfloat16)
    beside = at // width * (width * PRODUCTS) + at % width
    size = tl.zeros([BLOCK], dtype=tl.int64) + count  # that of a large matrix, many times over, has 64 bits
    for number in tl.static_range(PRODUCTS):
        part = first if PARTS[number] == 0 else second if PARTS[number] == 1 else third
        place = beside + number * width if BY_ROWS else at + number * size
        tl.store(OUT + place, part, mask=at < count)
