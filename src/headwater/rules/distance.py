"""Distances and angles between signals, or from signals to points that were learned: those are lines of the ledger."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from .call import Call, is_signal
from .gradients import times, value_of
from .handlers import on
from .lineage import Kind, mark
from .scope import Scope


@on("cdist")
def distances(scope: Scope, call: Call) -> Any:
    """|a_i - b_j| doubles if a and b double, so its gradient shares all of it between the two.

    If one of them is no signal (a learned prototype), its part is a line: b_j (b_j - a_i) / |a_i - b_j| for p = 2.
    """
    a, b, power = call.args[0], call.args[1], float(call.get(2, "p", 2.0))
    result = call.run()
    mark(result, Kind.NORM)
    for points, others, axis in ((a, b, -2), (b, a, -1)):
        if not is_signal(points):
            name, sort = scope.label(points, call.name)
            scope.books.enter(
                result,
                name,
                sort=sort,
                varies=(result.dim() + axis,),
                amount=partial(book_points, power, axis),
                held=(points, others, result),
            )
    return result


def book_points(power: float, axis: int, gradient: Tensor, points: Tensor, others: Tensor, distance: Tensor) -> Tensor:
    return times(gradient, part_of_points(points, others, distance, power, axis))


def part_of_points(points: Tensor, others: Tensor, distance: Tensor, power: float, axis: int) -> Tensor:
    """What the points have of each distance to the others: their coordinates times its gradient."""
    if power == 2:
        products = points @ others.mT
        gap = points.square().sum(-1).unsqueeze(-1) - products
    else:
        step = points.unsqueeze(-2) - others.unsqueeze(-3)
        longest = step.abs() == step.abs().amax(-1, keepdim=True)
        slope = longest / longest.sum(-1, keepdim=True) if power == torch.inf else step.abs().pow(power - 1)
        gap = (points.unsqueeze(-2) * step.sign() * slope).sum(-1)
    gap = gap if axis == -2 else gap.mT
    below = distance.pow(1 if power == 2 else 0 if power == torch.inf else power - 1)
    return torch.where(distance == 0, torch.zeros_like(gap), gap / below)


@on("pairwise_distance")
def distance(scope: Scope, call: Call) -> Any:
    """|a - b + eps|, taken apart so that the point that is no signal, and eps, are lines."""
    a, b = call.args[0], call.args[1]
    power, eps, keep = call.get(2, "p", 2.0), call.get(3, "eps", 1e-6), call.get(4, "keepdim", False)
    with torch.no_grad():
        value = call.run()
    with scope:
        line = torch.linalg.vector_norm(a - b + eps, power, -1, keep)
    result = value_of(value, gradient_of=line)
    mark(result, Kind.NORM)
    return result


@on("cosine_similarity", rules=("ln", "act", "gate"))
def cosine(scope: Scope, call: Call) -> Any:
    """a b / (|a| |b|): the sizes are held constant as those of a normalisation, the product is shared as any other."""
    a, b = call.args[0], call.args[1]
    axis, eps = call.get(2, "dim", 1), call.get(3, "eps", 1e-8)
    with torch.no_grad():
        value = call.run()
    with scope:
        first, second = (x / torch.linalg.vector_norm(x, 2, axis, True).clamp_min(eps) for x in (a, b))
        line = (first * second).sum(axis)
    return value_of(value, gradient_of=line)
