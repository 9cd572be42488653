"""A softmax, as one operation or as exp(s) / sum exp(s) by hand: constant, left to its gradient, or linear in s.

The variant of attention says which (`registry.Softmax`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..call import Call
from ..gradients import value_of
from ..handlers import on
from ..lineage import Kind, lineage, mark
from ..scope import Scope
from .facts import Even, Exponent, exponent_of, with_exponent
from .registry import Softmax
from .variant import variant_of

SLACK = 1e-9  # of a sum of weights that is one


def holds_softmax(scope: Scope) -> bool:
    """Whether a softmax, however it is written, is constant whatever it weighs."""
    return "ah" in scope.rules and "gate" in scope.rules and scope.variant.softmax is Softmax.CONSTANT


def hold_softmax(scope: Scope, call: Call) -> Any:
    """A softmax, or the end of one by hand, as a constant. It is still known for weights."""
    scope.applies("ah")
    with torch.no_grad():
        result = call.run()
    mark(result, Kind.WEIGHTS)
    return result


@on("softmax", rules=("ah",))
def softmax(scope: Scope, call: Call) -> Any:
    """With `ah` and `gate` both on, a softmax is constant whatever it weighs. With one of them, its use decides."""
    if holds_softmax(scope):
        return hold_softmax(scope, call)
    if scope.follows:
        with torch.no_grad():
            value = call.run()
        scores, axis = call.args[0], axis_of(call)
        return with_exponent(variant_of(scope).weigh(scope, scores, value, axis, None), Exponent(scores, None, axis))
    result = nothing_from_dead_rows(call, call.run())
    mark(result, Kind.WEIGHTS)
    return result


def axis_of(call: Call) -> int:
    """Without an axis, `F.softmax` takes the first, or of two axes and of four the second."""
    given = call.get(1, "dim")
    return int(call.args[0].dim() not in (1, 3)) if given is None else int(given)


def nothing_from_dead_rows(call: Call, result: Any) -> Any:
    """A query that may look at nothing has no weights (NaN, which models fill later), and its gradient is zero."""
    if not bool(result.isnan().any()):
        return result
    x, *rest = call.args
    dead = (x.to(result.dtype) == -math.inf).all(axis_of(call), keepdim=True)
    return value_of(result, gradient_of=call.func(x.masked_fill(dead, 0), *rest, **call.kwargs))


def softmax_by_hand(scope: Scope, value: Tensor, above: Tensor, below: Tensor) -> Tensor | None:
    """exp(s) / sum exp(s) written by hand, with or without a mask in between; None if it is something else.

    The divisor may hold more than the sum: a small number, or a sink. Its part of the result is a constant.
    """
    found = exponent_of(above)
    if found is None or not scope.follows or below.dim() != above.dim():
        return None
    axes = [axis for axis in range(above.dim()) if below.shape[axis] == 1 < above.shape[axis]]
    if len(axes) != 1 or found.axis not in (None, axes[0], axes[0] - above.dim()):
        return None
    total = value.sum(axes[0], keepdim=True)
    if bool((total > 1 + SLACK).any()):
        return None
    result = variant_of(scope).weigh(scope, found.scores, value, axes[0], found.base)
    root = lineage(result).root
    if isinstance(root, Even):
        left = value - root.line.detach()
        scope.source(root.line, torch.where(left.abs() > SLACK * value, left, 0.0), "softmax", by_rule=True)
    return with_exponent(result, Exponent(found.scores, found.base, axes[0]))
