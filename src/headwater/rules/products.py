"""Products of many signals: each of n factors takes an n-th, as each of two takes half."""

from __future__ import annotations

from typing import Any

import torch

from .call import Call
from .gradients import value_of
from .handlers import on
from .lineage import Kind, lineage_kind, mark
from .scope import Scope


@on("prod", rules=("gate",))
def product_of_all(scope: Scope, call: Call) -> Any:
    """Left to its gradient, a product of n factors passes on n times what it is."""
    x, result = call.args[0], call.run()
    if scope.applies("gate"):
        count = x.numel() // max(1, result.numel())
        result = value_of(result, gradient_of=result / count)
    return gate_still(result, lineage_kind(x))


@on("cumprod", rules=("gate",))
def product_so_far(scope: Scope, call: Call) -> Any:
    """The n-th entry is a product of n factors."""
    x, axis = call.args[0], call.get(1, "dim")
    before = lineage_kind(x)
    result = x.clone().cumprod(axis) if call.inplace else call.run()
    if scope.applies("gate"):
        shape = [-1 if place == axis % result.dim() else 1 for place in range(result.dim())]
        counts = torch.arange(1, result.shape[axis] + 1, dtype=result.dtype, device=result.device).reshape(shape)
        result = value_of(result, gradient_of=result / counts)
    return gate_still(x.copy_(result) if call.inplace else result, before)


def gate_still(result: Any, factors: Kind) -> Any:
    """A product of gates is a gate."""
    mark(result, Kind.SHIFTED if factors is Kind.SHIFTED else Kind.LINEAR)
    return result
