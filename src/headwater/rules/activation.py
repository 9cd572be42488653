"""ACT-rule: an activation is f(0) plus its input times a constant, [(f(x) - f(0)) / x]."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..kernels.elementwise import Activation
from ..traces.record import untraced
from .attention.facts import Exponent, is_log_weights, with_exponent
from .attention.softmax import hold_softmax, holds_softmax
from .call import Call, is_signal
from .gradients import times, value_of
from .handlers import on
from .lineage import Kind, carry, lineage, lineage_kind, mark
from .ratio import Scaled, ratio, scale_by_constant
from .scope import Scope

FUNCTIONS = """
relu gelu silu tanh sigmoid softplus elu celu selu leaky_relu prelu rrelu hardtanh relu6 hardswish hardsigmoid mish
log_sigmoid softsign tanhshrink softshrink hardshrink threshold erf exp2 expm1 log1p sin cos arctan atan sinh asinh
special_expit special_erf clamp clamp_min clamp_max square
""".split()


_RANDOM = ("rrelu",)  # another function with every call
_ENDS_AT_ZERO = ("exp", "exp2")  # exp(-inf), behind a mask, is 0, and not exp(0) plus a part of its input


@on("exp", rules=("ah", "act"))
@on(*FUNCTIONS, rules=("act",))
def activation(scope: Scope, call: Call) -> Any:
    """f(x) is f(0) plus its input times a constant. Left to its gradient, f passes on x f'(x) instead of f(x)."""
    x: Any = call.args[0]
    if not is_signal(x):
        return call.run()
    if call.name in _BOUNDS and any(isinstance(v, Tensor) and v.numel() > 1 for v in clamp_bounds(call)):
        return clamp_by_element(scope, call, x)
    if call.name == "exp" and is_log_weights(x) and holds_softmax(scope) and not call.inplace:
        return hold_softmax(scope, call)
    before, root = lineage(x)
    if before is Kind.WEIGHTS or any(is_signal(v) for v in (*call.args[1:], *call.kwargs.values())):
        return carry(call.run(), x, same_elements=True)
    zero, slope = at_zero(call, x.device)
    acts = scope.applies("act") and math.isfinite(zero)
    result = apply_act_rule(scope, call, x, zero, slope) if acts else call.run()
    if before is Kind.NORM or call.name in ("clamp", "clamp_min", "clamp_max"):
        mark(result, before, root)  # a bound makes nothing a gate, and of a size a size is made
    else:
        mark(result, Kind.ACTIVATED if zero == 0 else Kind.SHIFTED, root)
    if call.name == "exp" and not call.inplace and scope.follows:
        with_exponent(result, Exponent(x))
    return result


_BOUNDS = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}


def clamp_bounds(call: Call) -> list[Any]:
    return [call.get(number, name) for number, name in enumerate(_BOUNDS[call.name], 1)]


def clamp_by_element(scope: Scope, call: Call, x: Tensor) -> Any:
    """Bounds of their own for each element are constants where they are reached, as in `minimum` and `maximum`."""
    with torch.no_grad():
        value = call.func(x.detach().clone(), *call.args[1:], **call.kwargs)
    result = x.clone() if call.inplace else x  # which is written over
    with scope:
        for name, bound in zip(_BOUNDS[call.name], clamp_bounds(call), strict=True):
            if bound is not None:  # a tensor, as torch has no bounds of which one is a number
                result = torch.maximum(result, bound) if name == "min" else torch.minimum(result, bound)
    result = value_of(value, gradient_of=result)
    return x.copy_(result) if call.inplace else result


def apply_act_rule(scope: Scope, call: Call, x: Tensor, zero: float, slope: float) -> Tensor:
    rest, kwargs = call.args[1:], without_inplace(call)
    if call.inplace or call.kwargs.get("inplace"):
        scope.pending.settle(x)
        with torch.no_grad():
            value = call.func(x.clone(), *rest, **kwargs)
            constant = ratio(x.detach(), value, zero, slope)
        result: Tensor = x.mul_(constant)
        result = x.copy_(Scaled.apply(result, [value], None))
    else:
        with torch.no_grad():
            value = call.func(x, *rest, **kwargs)
        again = None if call.name in _RANDOM else Activation(call.name, call.func, tuple(rest), kwargs)
        result = scale_by_constant(x, value, (zero, slope), scope.pending, again)
        if call.name in _ENDS_AT_ZERO:
            name, sort = scope.label(zero, f"{call.name}(0)")
            result.grad_fn.record = scope.books.record_amount(  # type: ignore[union-attr]
                result, name, sort=sort, varies=(), amount=lambda g: times(g, zero)
            )
            return result
    if zero != 0:
        scope.source(result, zero, f"{call.name}(0)")
    return result


def without_inplace(call: Call) -> dict[str, Any]:
    return {name: value for name, value in call.kwargs.items() if name != "inplace"}


def at_zero(call: Call, device: torch.device) -> tuple[float, float]:
    """f(0) and f'(0) of the function as it was called, in float64."""
    rest, kwargs = call.args[1:], without_inplace(call)
    if any(isinstance(v, Tensor) and v.numel() > 1 for v in (*rest, *kwargs.values())):
        return 0.0, 0.0  # prelu: one slope a channel, and nothing at 0
    key = call.name, str([exact_number(v) for v in rest]), str({k: exact_number(v) for k, v in kwargs.items()})
    if key not in _AT_ZERO:
        with untraced(), torch.autograd.graph.saved_tensors_hooks(itself, itself):
            x = torch.zeros(1, dtype=torch.float64, device=device, requires_grad=True)
            try:
                y = call.func(x.clone(), *map(wider, rest), **{k: wider(v) for k, v in kwargs.items()})
                (slope,) = torch.autograd.grad(y, x)
                _AT_ZERO[key] = (y.item(), slope.item())
            except RuntimeError:
                _AT_ZERO[key] = (math.nan, math.nan)
    return _AT_ZERO[key]


def exact_number(value: Any) -> Any:
    """All of its digits, which the text of a tensor does not have."""
    return value.item() if isinstance(value, Tensor) else value


def wider(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) else value


def itself(tensor: Tensor) -> Tensor:
    """What is saved here is none of the run's: whoever keeps that elsewhere is not to know."""
    return tensor


_AT_ZERO: dict[Any, tuple[float, float]] = {}


@on("pow", rules=("ln", "act"))
def power(scope: Scope, call: Call) -> Any:
    """x^n is an activation (ReLU^2) or a step towards a norm (x^2, v^0.5, v^-0.5); the exponent tells."""
    x, exponent = call.args[:2]
    if not is_signal(x) or is_signal(exponent):
        return call.run()
    if isinstance(exponent, Tensor) and exponent.numel() > 1:
        return power_of_each(scope, call, x, exponent)
    exponent = float(exponent)
    if exponent < 0 and lineage_kind(x) in (Kind.LINEAR, Kind.NORM) and scope.applies("ln"):
        with torch.no_grad():
            held = call.run()
        mark(held, Kind.NORM)
        return held
    before, root = lineage(x)
    if exponent <= 0 or exponent == 1 or before is Kind.WEIGHTS or not scope.applies("act"):
        result = call.run()
    elif exponent == 2 and not call.inplace:
        result = x * x.detach()  # as torch computes it; what x is multiplied by is x
    else:
        result = apply_act_rule(scope, call, x, 0.0, 0.0)
    if exponent <= 0.5:
        mark(result, Kind.NORM)
    else:
        mark(result, before if before >= Kind.WEIGHTS else Kind.ACTIVATED, root)
    return result


def power_of_each(scope: Scope, call: Call, x: Tensor, exponent: Tensor) -> Any:
    """x^n with an exponent for each channel, as x times a constant."""
    before, root = lineage(x)
    positive = bool((exponent > 0).all())
    result = apply_act_rule(scope, call, x, 0.0, 0.0) if positive and scope.applies("act") else call.run()
    mark(result, max(before, Kind.ACTIVATED), root)
    return result


@on("abs")
def size(scope: Scope, call: Call) -> Any:
    """|x| passes its own gradient, sign(x): that is [|x| / x] already."""
    result = call.run()
    if is_signal(result):
        mark(result, Kind.ACTIVATED, lineage(call.args[0]).root)
    return result
