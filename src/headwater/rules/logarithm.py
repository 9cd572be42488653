"""The ACT-rule for logarithms: of one signal, of a sum of exponentials, of a softmax. They are zero at 1, not at 0."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .attention.facts import log_weights
from .attention.secant import between
from .call import Call, is_signal
from .gradients import value_of
from .handlers import on
from .lineage import Kind, lineage, mark
from .ratio import ratio
from .scope import Scope

_SLOPES = {"log": 1.0, "log2": 1 / math.log(2), "log10": 1 / math.log(10)}  # at 1


@on(*_SLOPES, rules=("act",))
def logarithm(scope: Scope, call: Call) -> Any:
    """log(u) = (u - 1) [log(u) / (u - 1)]: a logarithm has no value at 0, and is 0 at 1.

    The factor is positive and finite. So log(1 + x) passes on what log1p(x) does, and log(exp(x)) what x does.
    """
    x = call.args[0]
    kind, root = lineage(x)
    if not scope.applies("act"):
        result = call.run()
    else:
        with torch.no_grad():
            value = call.func(x.clone())
            factor = ratio(x.detach() - 1, value, 0.0, _SLOPES[call.name])
        result = value_of(value, gradient_of=x * factor)
        scope.source(result, factor, f"{call.name} from 1", sign=-1.0, by_rule=True)
        result = x.copy_(result) if call.inplace else result
    weighs = kind is Kind.WEIGHTS
    mark(result, Kind.ACTIVATED if weighs else max(kind, Kind.ACTIVATED), None if weighs else root)
    return result


_MASKED = (
    torch.finfo(torch.float16).min / 2
)  # what a model writes where nothing is to be seen is below, in any precision


@on("logsumexp", "special_logsumexp", rules=("act",))
def log_sum_exp(scope: Scope, call: Call) -> Any:
    """log sum exp(s) = log n + sum_k w_k s_k, with weights w between even ones and the softmax, held constant.

    Left to its gradient, w is the softmax. Then what is passed on is less than the value by the softmax's entropy.
    The sum is over those that are not masked, whether by -inf or by the most negative number.
    """
    x, axes = call.args[0], call.get(1, "dim")
    axes = tuple(axes) if isinstance(axes, (list, tuple)) else axes
    if not scope.applies("act"):
        return call.run()
    with torch.no_grad():
        value = call.run()
        weights = (x - x.logsumexp(axes, keepdim=True)).exp().nan_to_num(0.0)
        seen = (weights > 0) | (x > _MASKED)
    own = x.masked_fill(~seen, 0.0)
    with torch.no_grad():
        count = seen.sum(axes, keepdim=True).clamp_min(1)
        even = seen / count.to(x.dtype)
        mixed = between(own, weights, even, axes)
        start = count.to(x.dtype).log().reshape(value.shape)
    line = (mixed * own).sum(axes).reshape(value.shape)
    result = value_of(value, gradient_of=line)
    scope.source(result, start, f"{call.name}(0)")
    return result


@on("logaddexp", "logaddexp2", rules=("act",))
def log_add_exp(scope: Scope, call: Call) -> Any:
    """log(exp(a) + exp(b)), as a log-sum-exp of two."""
    unit = 1.0 if call.name == "logaddexp" else math.log(2)
    with torch.no_grad():
        value = call.run()
    with scope:
        both = torch.stack(torch.broadcast_tensors(call.args[0], call.args[1]))
        line = (both * unit).logsumexp(0) / unit
    return value_of(value, gradient_of=line)


@on("log_softmax", "special_log_softmax", rules=("act",))
def log_softmax(scope: Scope, call: Call) -> Any:
    """x - log sum exp(x), so that the two parts meet their rules."""
    x, axis = call.args[0], call.get(1, "dim")
    if not isinstance(axis, int):
        return call.run()
    with torch.no_grad():
        value = call.run()
    with scope:
        same: Tensor = x.to(value.dtype)
        line = same - same.logsumexp(axis, keepdim=True)
    return log_weights(value_of(value, gradient_of=line)) if is_signal(line) else value
