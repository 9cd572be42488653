"""Operations written out in others that are exact between an input and its reference (`difference`).

Each function is called inside the scope, which sees every operation in it. None: the operation stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention.call import AttentionCall
from .call import Call, is_signal


def write_layer_norm(call: Call) -> Any:
    x, shape = call.args[0], call.get(1, "normalized_shape")
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    return scale_shift(centred * inverse_root(centred, axes, call.get(4, "eps", 1e-5)), call, 2)


def write_rms_norm(call: Call) -> Any:
    x, shape, eps = call.args[0], call.get(1, "normalized_shape"), call.get(3, "eps")
    axes = tuple(range(-len(shape), 0))
    found = x * inverse_root(x, axes, torch.finfo(x.dtype).eps if eps is None else eps)
    weight = call.get(2, "weight")
    return found if weight is None else found * weight


def inverse_root(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    return (x.square().mean(axes, keepdim=True) + eps).rsqrt()


def scale_shift(x: Tensor, call: Call, place: int) -> Tensor:
    weight, bias = call.get(place, "weight"), call.get(place + 1, "bias")
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def write_group_norm(call: Call) -> Any:
    x, groups = call.args[0], call.get(1, "num_groups")
    parts = x.reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(-1, keepdim=True)
    found = (centred * inverse_root(centred, (-1,), call.get(4, "eps", 1e-5))).reshape(x.shape)
    return scale_channels(found, call.get(2, "weight"), call.get(3, "bias"))


def scale_channels(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (1, -1, *[1] * (x.dim() - 2))
    x = x if weight is None else x * weight.view(shape)
    return x if bias is None else x + bias.view(shape)


def write_instance_norm(call: Call) -> Any:
    x = call.args[0]
    if not call.get(5, "use_input_stats"):
        return None
    axes = tuple(range(2, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    found = centred * inverse_root(centred, axes, call.get(7, "eps", 1e-5))
    return scale_channels(found, call.get(3, "weight"), call.get(4, "bias"))


def write_attention(call: Call) -> Any:
    given = AttentionCall.read(call)
    key, value = given.keys_and_values_per_head()
    weights = torch.softmax(given.scores(given.query, key), -1)
    seen = weights if given.mask is None and not given.options.get("is_causal") else weights.nan_to_num(0.0)
    return seen @ value


def write_division(call: Call) -> Any:
    above, below = call.args[:2] if call.name == "div" else call.args[1::-1]
    if not is_signal(below) or call.kwargs:
        return None
    return above * below.reciprocal()


def write_larger(call: Call) -> Any:
    """max(a, b) = (a + b + |a - b|) / 2."""
    first, second = call.args[:2]
    gap = (first - second).abs()
    return (first + second + (gap if call.name in ("maximum", "fmax", "max") else -gap)) / 2


def write_glu(call: Call) -> Any:
    first, gate = call.args[0].chunk(2, call.get(1, "dim", -1))
    return first * gate.sigmoid()


def write_deviation(call: Call) -> Any:
    return torch.var(*call.args, **call.kwargs).sqrt()


def write_length(call: Call) -> Any:
    """The Euclidean length."""
    x, kind = call.args[0], call.get(1, "p" if call.name == "norm" else "ord", 2)
    axis, keep = call.get(2, "dim"), call.get(3, "keepdim", False)
    if kind not in (2, 2.0, "fro", None):
        return None
    squares = x.square()
    return (squares.sum() if axis is None else squares.sum(axis, keepdim=keep)).sqrt()


def write_addcdiv(call: Call) -> Any:
    total, above, below = call.args[:3]
    return total + call.get(3, "value", 1) * above / below


WRITTEN_OUT: dict[str, Callable[[Call], Any]] = {
    "layer_norm": write_layer_norm,
    "rms_norm": write_rms_norm,
    "group_norm": write_group_norm,
    "instance_norm": write_instance_norm,
    "scaled_dot_product_attention": write_attention,
    "div": write_division,
    "rdiv": write_division,
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "max", "min"), write_larger),
    "glu": write_glu,
    "std": write_deviation,
    **dict.fromkeys(("norm", "linalg_vector_norm", "linalg_norm"), write_length),
    "addcdiv": write_addcdiv,
}
