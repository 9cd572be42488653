"""LN-rule: what a normalisation divides by is a constant, the mean it subtracts is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..kernels.elementwise import pass_back_norm
from .activation import apply_act_rule
from .attention.registry import Softmax
from .attention.softmax import hold_softmax, holds_softmax, softmax_by_hand
from .call import Call, is_signal
from .gradients import value_of
from .handlers import on
from .lineage import Kind, carry, lineage, lineage_kind, mark, mark_normalised
from .residual import reduce_by_rule
from .scope import Scope
from .sources import Sort, wide

_INVERSE = "_headwater_inverse"


@on("layer_norm", rules=("ln",))
def layer_norm(scope: Scope, call: Call) -> Any:
    r"""y = (x - E[x]) / sqrt(eps + Var[x]) with the root held fixed is linear in x, so it conserves.

    Left to its gradient, the relevance that leaves is eps / (eps + Var[x]) of what came in: almost nothing.
    """
    x, shape = call.args[0], call.get(1, "normalized_shape")
    weight, bias, eps = call.get(2, "weight"), call.get(3, "bias"), call.get(4, "eps", 1e-5)
    if not is_signal(x) or not scope.applies("ln"):
        result = call.run()
        if bias is not None:
            scope.source(result, bias, "layer_norm")
        return result
    result = _LayerNormHeld.apply(x, tuple(shape), weight, bias, eps)
    if bias is not None and bias.dim() == 1:
        name, sort = scope.label(bias, "layer_norm")
        result.grad_fn.record = scope.books.record_vector(result, name, bias, sort=sort)
    elif bias is not None:
        scope.source(result, bias, "layer_norm")
    return mark_normalised(result)


class _LayerNormHeld(torch.autograd.Function):
    """torch's own kernel in the forward pass. The backward pass needs one number per token."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Any, bias: Any, eps: float) -> Tensor:
        result, _, scale = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(weight, scale)
        ctx.axes = tuple(range(-len(shape), 0))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weight, scale = ctx.saved_tensors
        if (record := getattr(ctx, "record", None)) is not None:
            record(gradients[0])
        flow = pass_back_norm(gradients[0], weight, scale) if len(ctx.axes) == 1 else None
        if flow is not None:
            return flow, None, None, None, None
        flow = wide(gradients[0])
        flow = flow * (scale.to(flow.dtype) if weight is None else weight)
        flow -= flow.mean(ctx.axes, keepdim=True)
        if weight is not None:
            flow *= scale.to(flow.dtype)
        return flow.to(gradients[0].dtype), None, None, None, None


@on("rms_norm", rules=("ln",))
def rms_norm(scope: Scope, call: Call) -> Any:
    """y = x / sqrt(eps + E[x^2]) with the root held fixed."""
    x, shape, weight = call.args[0], tuple(call.get(1, "normalized_shape")), call.get(2, "weight")
    eps = call.get(3, "eps")
    if not is_signal(x) or not scope.applies("ln"):
        return call.run()
    axes = tuple(range(-len(shape), 0))
    with torch.no_grad():
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        scale = (wide.square().mean(axes, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
        scale = scale.to(x.dtype)
        factor = scale if weight is None else scale * weight
        value = call.run()
    return mark_normalised(value_of(value, gradient_of=x * factor))


@on("group_norm", rules=("ln",))
def group_norm(scope: Scope, call: Call) -> Any:
    """LayerNorm over groups of channels."""
    x, groups = call.args[0], call.get(1, "num_groups")
    weight, bias, eps = call.get(2, "weight"), call.get(3, "bias"), call.get(4, "eps", 1e-5)
    result = call.run()
    if scope.applies("ln"):
        grouped = x.reshape(x.shape[0], groups, -1)
        linear = (grouped - grouped.mean(-1, keepdim=True)) * deviation_inverse(grouped, (-1,), eps)
        result = value_of(result, gradient_of=per_channel(linear.reshape(x.shape), weight))
    return mark_normalised(bias_of_channels(scope, result, bias, "group_norm"))


@on("instance_norm", rules=("ln",))
def instance_norm(scope: Scope, call: Call) -> Any:
    """LayerNorm over the positions of one channel; with running statistics it is affine like BatchNorm."""
    x, given = call.args[0], ChannelNorm.read(call)
    if not call.get(5, "use_input_stats"):
        return running_norm(scope, call, given)
    result = call.run()
    if scope.applies("ln"):
        axes = tuple(range(2, x.dim()))
        linear = (x - x.mean(axes, keepdim=True)) * deviation_inverse(x, axes, given.eps)
        result = value_of(result, gradient_of=per_channel(linear, given.weight))
    return bias_of_channels(scope, result, given.bias, "instance_norm")


@on("batch_norm")
def batch_norm(scope: Scope, call: Call) -> Any:
    """With running statistics BatchNorm is affine: no rule, but its running mean is a constant in the ledger."""
    return call.run() if call.get(5, "training") else running_norm(scope, call, ChannelNorm.read(call))


class ChannelNorm(NamedTuple):
    """The arguments of a normalisation per channel."""

    mean: Any
    variance: Any
    weight: Any
    bias: Any
    eps: Any

    @classmethod
    def read(cls, call: Call) -> ChannelNorm:
        """`torch.batch_norm` takes them in another order than `F.batch_norm`."""
        names = ["running_mean", "running_var", "weight", "bias"]
        if call.func in (torch.batch_norm, torch.instance_norm):
            names = names[2:] + names[:2]
        found = {name: call.get(place, name) for place, name in enumerate(names, 1)}
        return cls(found["running_mean"], found["running_var"], found["weight"], found["bias"], call.get(7, "eps"))


def running_norm(scope: Scope, call: Call, given: ChannelNorm) -> Any:
    """The backward pass is ours: torch's own is wrong for one sample whose gradient comes in another memory order."""
    with torch.no_grad():
        value = call.run()
    inverse = (given.variance + given.eps).rsqrt()
    scale = inverse if given.weight is None else given.weight * inverse
    result = value_of(value, gradient_of=call.args[0] * channels(scale, value))
    shift = -given.mean * scale
    name, sort = scope.label(given.mean, "running mean")
    spread = channels(shift, result)
    sort = sort if sort > Sort.BIAS else Sort.CONSTANT  # running statistics are no parameters
    scope.books.enter(result, name, sort=sort, varies=(1,), amount=lambda g: g * spread)
    return bias_of_channels(scope, result, given.bias, call.name)


def bias_of_channels(scope: Scope, result: Any, bias: Tensor | None, operation: str) -> Any:
    if bias is not None:
        name, sort = scope.label(bias, operation)
        spread = channels(bias, result)
        scope.books.enter(result, name, sort=sort, varies=(1,), amount=lambda g: g * spread)
    return result


def channels(vector: Tensor, like: Tensor) -> Tensor:
    """A vector along the channels, axis 1."""
    return vector.reshape(1, -1, *[1] * (like.dim() - 2))


def per_channel(x: Tensor, weight: Tensor | None) -> Tensor:
    return x if weight is None else x * channels(weight, x)


def deviation_inverse(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    with torch.no_grad():
        return (x.var(tuple(axes), correction=0, keepdim=True) + eps).rsqrt()


@on("rsqrt", "reciprocal", rules=("ln",))
def inverse(scope: Scope, call: Call) -> Any:
    """1/sqrt(v), 1/v of a signal: what a hand-written normalisation multiplies by. Of an activation it is one more."""
    x = call.args[0]
    normalises = call.name == "rsqrt" or lineage_kind(x) in (Kind.LINEAR, Kind.NORM)
    if normalises and scope.applies("ln"):
        with torch.no_grad():
            held = call.run()
        mark(held, Kind.NORM)
        return held
    result = call.run()
    mark(result, Kind.NORM if normalises else Kind.SHIFTED, None if normalises else lineage(x).root)
    return result if normalises or call.inplace else inverse_of(result, x)


@on(
    "std",
    "std_mean",
    "norm",
    "frobenius_norm",
    "linalg_norm",
    "linalg_vector_norm",
    "linalg_matrix_norm",
)
def deviation(scope: Scope, call: Call) -> Any:
    """A size of the signal, twice as large for one twice as large: its gradient passes on all of it.

    Where something is divided by it, it is held constant.
    """
    return mark_size(call.run())


@on("var", "var_mean", rules=("act",))
def variance(scope: Scope, call: Call) -> Any:
    """A mean of squares, each its root times a constant: half of the gradient, which passes on twice what there is."""
    result = call.run()
    if not scope.applies("act"):
        return mark_size(result)
    if isinstance(result, Tensor):
        return mark_size(value_of(result, gradient_of=0.5 * result))
    return mark_size((value_of(result[0], gradient_of=0.5 * result[0]), *result[1:]))


def mark_size(result: Any) -> Any:
    mark(result if isinstance(result, Tensor) else result[0], Kind.NORM)
    return result


@on("sqrt", rules=("act",))
def root(scope: Scope, call: Call) -> Any:
    """sqrt(u) = u * [sqrt(u) / u]: a size if u is a sum of squares, an activation if u is one (softplus, say).

    Left to its gradient, it passes on half of what it is.
    """
    x = call.args[0]
    before, origin = lineage(x)
    result = apply_act_rule(scope, call, x, 0.0, 0.0) if scope.applies("act") else call.run()
    mark(result, *((before, origin) if before in (Kind.ACTIVATED, Kind.SHIFTED) else (Kind.NORM,)))
    return result


@on("div", "rdiv", rules=("ah", "ln", "act", "gate"))
def division(scope: Scope, call: Call) -> Any:
    """A signal in the denominator is a normaliser, unless it is made of an activation or of a softmax.

    x / (1 + exp(-x)) is an activation by hand, a / (1 + exp(-b)) a gate. e / e.sum() is a softmax by hand, and
    weights divided by their sum are weights still.
    """
    above, below = call.args[0], call.args[1]
    if call.name == "rdiv":
        above, below = below, above
    if not is_signal(below):
        result = carry(call.run(), above, same_elements=True)
        held = isinstance(below, Tensor) and lineage_kind(below) is Kind.NORM
        return mark_normalised(result) if held else result
    if lineage_kind(below) in (Kind.LINEAR, Kind.NORM):
        return mark_normalised(normalise(scope, call, above, below))
    if not is_signal(above):
        result = call.run()
        mark(result, Kind.SHIFTED, lineage(below).root)
        return inverse_of(result, below) if is_one(above) else result
    by_hand, root = lineage(above).root is lineage(below).root, lineage(below).root
    if (
        lineage_kind(above) is lineage_kind(below)
        and lineage_kind(above) in (Kind.SHIFTED, Kind.WEIGHTS)
        and not by_hand
    ):
        return over_sum(scope, call, above, below, below)
    before = lineage_kind(above)
    result = divide(call, above, below.detach()) if scope.applies("act" if by_hand else "gate") else call.run()
    mark(result, max(before, Kind.ACTIVATED) if by_hand else Kind.LINEAR, root if by_hand else None)
    return result


def over_sum(scope: Scope, call: Call, above: Tensor, below: Tensor, factor: Tensor) -> Any:
    """Over their sum, exponentials are a softmax by hand, and weights are weights still. The sum is a constant.

    `factor` is what the call has beside `above`: the sum itself, or one over it.
    """
    if scope.follows:
        with torch.no_grad():
            value = run_with_pair(call, above, above.clone() if call.inplace else above, factor)
        found = softmax_by_hand(scope, value, above, below)
        if found is not None:
            return carry(above.copy_(found), found, same_elements=True) if call.inplace else found
    if holds_softmax(scope) and not call.inplace:
        return hold_softmax(scope, call)
    keeps = scope.variant.softmax is Softmax.GRADIENT or not scope.applies("gate")
    result = call.run() if keeps else run_with_pair(call, above, above, factor.detach())
    mark(result, Kind.WEIGHTS)
    return result


def run_with_pair(call: Call, above: Tensor, first: Tensor, second: Tensor) -> Any:
    """The call with other tensors for `above` and what stands beside it."""
    pair = (first, second) if call.args[0] is above else (second, first)
    return call.func(*pair, **call.kwargs)


def is_one(value: Any) -> bool:
    return not isinstance(value, Tensor) and value == 1


def inverse_of(result: Tensor, below: Tensor) -> Tensor:
    """`result` is 1 / `below`."""
    setattr(result, _INVERSE, below)
    return result


def denominator_of(tensor: Tensor) -> Tensor | None:
    """What a tensor is one over."""
    return getattr(tensor, _INVERSE, None)


def normalise(scope: Scope, call: Call, above: Any, below: Tensor) -> Any:
    result = divide(call, above, below.detach()) if scope.applies("ln") else call.run()
    mark(result, *(lineage(above) if is_signal(above) else (Kind.NORM,)))
    return result


def divide(call: Call, above: Any, below: Tensor) -> Any:
    first, second = (below, above) if call.name == "rdiv" else (above, below)
    return call.func(first, second, **call.kwargs)


@on("mean", "sum", rules=("token", "residual"))
@on("nanmean", "cumsum", "logcumsumexp")
def total(scope: Scope, call: Call) -> Any:
    """A sum over a softmax or a normaliser stays one; over anything else it starts anew."""
    result, before = reduce_by_rule(scope, call), lineage_kind(call.args[0])
    if before in (Kind.WEIGHTS, Kind.NORM, Kind.SHIFTED):
        mark(result, before)
    return result
