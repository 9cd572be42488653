"""AH-rule: attention weights are constants, so attention is a linear layer that mixes values, and conserves.

Or they are shared with. Left to its gradient ("half"), a softmax does not conserve. Through its secant ("secant") it
does: attention is even attention, which belongs to the values, plus what the scores made of it, which is a product of
two signals and goes half to the values and half to queries and keys. Or the query alone takes part ("query"): asking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...kernels import attention as kernels
from ...kernels.forward import attend
from ..lineage import Kind, lineage, mark
from ..scope import Call, Scope, is_signal, on, value_of
from ..sources import Sort
from .query import Share, asked_attention, asked_softmax

_BLOCK = 1 << 24  # elements of attention weights made at a time on the way back
_ALL = slice(None)
_TINY = 1e-30
_EXPONENT = "_headwater_exponent"
EVEN = "even attention"
SLACK = 1e-9  # of a sum of weights that is one
_NEAR = 1e-6  # of a score to the centre: there the slope is that of the weights themselves


_LOG_WEIGHTS = "_headwater_log_weights"


def holds_softmax(scope: Scope) -> bool:
    """Whether a softmax, however it is written, is constant whatever it weighs."""
    return "ah" in scope.rules and "gate" in scope.rules and scope.rules.attention == "constant"


def log_weights(result: Tensor) -> Tensor:
    """The logarithm of a softmax: its exponential is a softmax."""
    setattr(result, _LOG_WEIGHTS, True)
    return result


def is_log_weights(value: Tensor) -> bool:
    return getattr(value, _LOG_WEIGHTS, False)


@on("softmax")
def softmax(scope: Scope, call: Call) -> Any:
    """With `ah` and `gate` both on, a softmax is constant whatever it weighs. With one of them, its use decides."""
    if holds_softmax(scope):
        scope.applies("ah")
        with torch.no_grad():
            return call.run()
    if takes_part(scope):
        with torch.no_grad():
            value = call.run()
        scores, axis = call.args[0], axis_of(call)
        return with_exponent(shared_weights(scope, scores, value, axis, None), Exponent(scores, None, axis))
    result = nothing_from_dead_rows(call, call.run())
    mark(result, Kind.WEIGHTS)
    return result


def axis_of(call: Call) -> int:
    """Without an axis, `F.softmax` takes the first, or of two axes and of four the second."""
    given = call.get(1, "dim")
    return int(call.args[0].dim() not in (1, 3)) if given is None else int(given)


def takes_part(scope: Scope) -> bool:
    """Whether scores take part in attention, and what they leave is accounted for."""
    return scope.follows


def shared_weights(scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
    """The softmax `value` of `scores`, through its secant or its tangent; `base` times its exponentials, if given."""
    if scope.rules.attention == "query":
        return asked_softmax(scope, scores, value, axis)
    return by_its_secant(scope, scores, value, axis, base)


def nothing_from_dead_rows(call: Call, result: Any) -> Any:
    """A query that may look at nothing has no weights (NaN, which models fill later), and its gradient is zero."""
    if not bool(result.isnan().any()):
        return result
    x, *rest = call.args
    dead = (x.to(result.dtype) == -math.inf).all(axis_of(call), keepdim=True)
    return value_of(result, gradient_of=call.func(x.masked_fill(dead, 0), *rest, **call.kwargs))


def by_its_secant(scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
    """A query that may look at nothing has no weights (NaN, which models fill later), and passes nothing on.

    Even attention, which scores have no part in, belongs to the values. Where no values are met it is a constant.
    """
    weights = value.nan_to_num(0.0)
    even = even_weights(weights, axis) if base is None else even_of(base, axis)
    line = secant(scores, weights, even, axis)
    result = value_of(value, gradient_of=line)
    module = scope.where()
    name = f"{module}: {EVEN}" if module else EVEN
    held = (weights > 0) if base is None else base
    scope.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=partial(even_part, axis), held=(held,))
    mark(result, Kind.WEIGHTS, root=Even(line, even))
    return result


def even_part(axis: int, gradient: Tensor, base: Tensor) -> Tensor:
    return gradient * even_of(base.to(gradient.dtype), axis)


@dataclass(frozen=True, eq=False)
class Even:
    """Where weights come from: `line` is linear in the scores, and `weights` is what they would be without scores."""

    line: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class Exponent:
    """Says of a tensor that it is base * exp(scores), up to a factor that is the same all along `axis` (None: 1)."""

    scores: Tensor
    base: Tensor | None = None  # 1
    axis: int | None = None


def with_exponent(tensor: Tensor, exponent: Exponent) -> Tensor:
    setattr(tensor, _EXPONENT, (exponent, tensor._version))
    return tensor


def exponent_of(tensor: Any) -> Exponent | None:
    """What is known of a tensor, unless it was written into since."""
    exponent, version = getattr(tensor, _EXPONENT, (None, 0))
    return exponent if exponent is not None and tensor._version == version else None


def softmax_by_hand(scope: Scope, value: Tensor, above: Tensor, below: Tensor) -> Tensor | None:
    """exp(s) over its sum, with a mask between the two or not; None where it is anything else.

    What a divisor has beside the sum (a small number, a sink) is no score: what it leaves is a constant.
    """
    found = exponent_of(above)
    if found is None or not takes_part(scope) or below.dim() != above.dim():
        return None
    axes = [axis for axis in range(above.dim()) if below.shape[axis] == 1 < above.shape[axis]]
    if len(axes) != 1 or found.axis not in (None, axes[0], axes[0] - above.dim()):
        return None
    total = value.sum(axes[0], keepdim=True)
    if bool((total > 1 + SLACK).any()):
        return None
    result = shared_weights(scope, found.scores, value, axes[0], found.base)
    root = lineage(result).root
    if isinstance(root, Even):
        left = value - root.line.detach()
        scope.source(root.line, torch.where(left.abs() > SLACK * value, left, 0.0), "softmax", by_rule=True)
    return with_exponent(result, Exponent(found.scores, found.base, axes[0]))


def even_weights(weights: Tensor, dim: int = -1) -> Tensor:
    """The same weight for all that is looked at; what is masked has none."""
    return even_of((weights > 0).to(weights.dtype), dim)


def even_of(base: Tensor, dim: int) -> Tensor:
    """`base` as weights: over its sum, and nothing where there is none."""
    total = base.sum(dim, keepdim=True)
    return base / torch.where(total == 0, torch.ones_like(total), total)


def secant(scores: Tensor, weights: Tensor, even: Tensor, dim: int = -1) -> Tensor:
    r"""p_j = u_j + l_j (s_j - sum_k w_k s_k): a softmax as a linear function of its scores, with l and w held constant.

    u is even attention. Since p_j = u_j exp(s_j - c) with c = log sum u exp(s), the slope l_j = (p_j - u_j) / (s_j - c)
    is the logarithmic mean of p_j and u_j: finite and positive. And c lies between the mean of the scores under u and
    that under p, so it is their mean under some w between the two. Scores that are all moved alike change nothing.
    """
    scores = scores.to(weights.dtype)
    with torch.no_grad():
        seen = even > 0
        own = torch.where(seen, scores.detach(), torch.zeros_like(scores))
        mixed = between(own, weights, even, dim)
        from_centre = own - (mixed * own).sum(dim, keepdim=True)
        near = from_centre.abs() < _NEAR
        slope = (weights - even) / torch.where(near, torch.ones_like(own), from_centre)
        least, most = torch.minimum(weights, even), torch.maximum(weights, even)
        slope = torch.where(near, 0.5 * (weights + even), slope.clamp(least, most))
    alive = torch.where(seen, scores, torch.zeros_like(scores))
    return even + slope * (alive - (mixed * alive).sum(dim, keepdim=True))


def between(own: Tensor, weights: Tensor, even: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Weights w between even ones and the softmax of the scores, such that log sum u exp(s) = sum_k w_k s_k."""
    low, high = ((part * own).sum(dim, keepdim=True) for part in (even, weights))
    gap = high - low
    centre = torch.where(even > 0, own, torch.full_like(own, -math.inf)) + even.clamp_min(_TINY).log()
    above = centre.logsumexp(dim, keepdim=True) - low
    share = (above / torch.where(gap > 0, gap, torch.ones_like(gap))).clamp(0, 1)
    return torch.lerp(even, weights, share)


def mixed_by_secant(weights: Tensor, line: Tensor, even: Tensor) -> tuple[Tensor, Tensor]:
    """Of weights times values: the weights that the values see, and what the weights themselves bring, by `line`."""
    return 0.5 * (weights.detach() + even), 0.5 * (line - even)


@on("scaled_dot_product_attention")
def attention(scope: Scope, call: Call) -> Any:
    r"""y_j = sum_i v_i p_ij with p held fixed: R(v_i) = sum_j v_i p_ij / (sum_i' v_i' p_i'j) R(y_j)."""
    query, key, value = call.args[:3]
    if "ah" not in scope.rules:
        return call.run()
    scope.applies("ah")
    if scope.rules.attention == "half":
        return shared_attention(call, query, key, value)
    if scope.rules.attention == "secant":
        return secant_attention(scope, call, query, key, value)
    if scope.rules.attention == "query":
        return asked_attention(scope, call, query, key, value)
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), call.args[3:], strict=False), **call.kwargs)
    mask = options.pop("attn_mask", None)
    if not is_signal(value):
        with torch.no_grad():
            return call.func(query, key, value, attn_mask=mask, **options)
    return weights_held(value, query, key, mask, partial(attend, call.func), options)


def shared_attention(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Any:
    """Half to the values and half to the weights, of which queries and keys get half each: a quarter."""
    parts = (Share.apply(query, 0.25), Share.apply(key, 0.25), Share.apply(value, 0.5))
    return call.func(*parts, *call.args[3:], **call.kwargs)


def secant_attention(scope: Scope, call: Call, query: Tensor, key: Tensor, value: Tensor) -> Any:
    """As the model computes it, with relevance through the secant of its softmax; queries and keys get half each."""
    with torch.no_grad():
        result = call.run()
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), call.args[3:], strict=False), **call.kwargs)
    groups = query.shape[-3] // key.shape[-3] if query.dim() > 2 else 1
    if groups > 1:
        key, value = (part.repeat_interleave(groups, -3) for part in (key, value))
    mask = options.get("attn_mask")
    scores = masked_scores(Share.apply(query, 0.5), Share.apply(key, 0.5), mask, options)
    if isinstance(mask, Tensor) and mask.dtype is not torch.bool and not is_signal(mask):
        scope.source(scores, mask, "attention mask")  # a bias of the scores, such as that of a distance
    weights = torch.softmax(scores.detach(), -1).nan_to_num(0.0)
    even = even_weights(weights)
    line = value_of(weights, gradient_of=secant(scores, weights, even))
    to_values, to_weights = mixed_by_secant(weights, line, even)
    return value_of(result, gradient_of=to_values @ value + to_weights @ value.detach())


def weights_held(value: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, forwards: Any, options: Any) -> Tensor:
    """Attention by `forwards`, which gives its result and the logsumexp, with its weights held constant."""
    made: Tensor = _WeightsHeld.apply(value, query.detach(), key.detach(), mask, forwards, options)
    return made


class _WeightsHeld(torch.autograd.Function):
    """The model's own attention forwards; backwards dV = P^T dO alone, P made again in blocks.

    Queries, keys and one number a query are kept: not the weights, not the values, not what comes out.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, forwards: Any, options: Any
    ) -> Tensor:
        result: Tensor
        result, sums = forwards(query, key, value, mask, options)
        ctx.save_for_backward(*apart(query, key), mask, sums)
        ctx.options, ctx.heads = options, value.shape[-3] if value.dim() > 2 else None
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, mask, sums = ctx.saved_tensors
        found = None
        if query.dim() == 4 and ctx.heads == key.shape[1]:
            found = kernels.values_gradient(gradients[0], query, key, sums, mask, ctx.options)
        if found is None:
            found = values_gradient(gradients[0], query, key, mask, ctx.options, ctx.heads)
        return (found, *[None] * 5)


def apart(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys that are cut out of something larger (queries, keys and values in one) are kept without it."""
    storages = [part.untyped_storage() for part in (query, key)]
    held = storages[0].nbytes() + (storages[1].nbytes() if storages[1].data_ptr() != storages[0].data_ptr() else 0)
    return (query, key) if held <= query.nbytes + key.nbytes else (query.clone(), key.clone())


def values_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], heads: int | None
) -> Tensor:
    """P^T dO. Keys and values shared by a group of heads (`enable_gqa`) gather the gradients of the group."""
    groups = query.shape[-3] // key.shape[-3] if query.dim() > 2 else 1
    if groups > 1:
        key = key.repeat_interleave(groups, -3)
    rows = max(1, _BLOCK // max(1, math.prod(query.shape[:-2]) * key.shape[-2]))
    total: Tensor | None = None
    for start in range(0, query.shape[-2], rows):
        block = slice(start, start + rows)
        weights = attention_weights(query, key, mask, options, block)
        part = weights.transpose(-2, -1).to(gradient.dtype) @ gradient[..., block, :]
        total = part if total is None else total.add_(part)
    assert total is not None
    if heads is not None and total.shape[-3] != heads:
        total = total.unflatten(-3, (heads, -1)).sum(-3)
    return total


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], block: slice) -> Tensor:
    """softmax(scores + mask, sinks) for a block of queries, without the sinks' column.

    A query that may look at nothing attends to nothing.
    """
    scores = masked_scores(query, key, mask, options, block)
    sinks = options.get("sinks")
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    weights = torch.softmax(scores, -1)
    return weights if mask is None and not options.get("is_causal") else weights.nan_to_num(0.0)


def masked_scores(
    query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], block: slice = _ALL
) -> Tensor:
    """q k^T / sqrt(d), capped where asked, + mask for a block of queries; -inf where a query may not look."""
    scale = options.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores, cap = attention_scores(query[..., block, :], key, scale), options.get("cap")
    if cap:
        scores = cap * (scores / cap).tanh()
    allowed = None
    if options.get("is_causal"):
        shape = (query.shape[-2], key.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool, device=query.device).tril()[block]
    if mask is not None:
        part = mask[..., block, :] if mask.shape[-2] > 1 else mask
        if part.dtype is torch.bool:
            allowed = part if allowed is None else allowed & part
        else:
            scores = scores + part
    return scores if allowed is None else scores.masked_fill(~allowed, -math.inf)


def attention_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    if query.dtype != key.dtype:  # autocast makes them one
        key = key.to(query.dtype)
    return (query * scale) @ key.transpose(-2, -1)
