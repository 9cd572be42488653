"""How the solution X of A X = B rises between two pairs of A and B.

From A X - A' X' = M (X - X') + (A - A') Y, with the means M of A and A' and Y of X and X', follows

    X - X' = M^-1 ((B - B') - (A - A') Y),

which is exact, and linear in the rise of A and of B once M and Y are held constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .call import Call

Reference = Callable[[Any], Any]  # the same value in the run of the reference


def pass_triangular_on(call: Call, reference_of: Reference) -> Tensor:
    """Of `linalg.solve_triangular`: what lies outside the triangle, or on a diagonal of ones, is not read."""
    a, b = call.args[:2]
    options = {name: call.kwargs.get(name, name == "left") for name in ("upper", "left", "unitriangular")}
    step = int(options["unitriangular"])
    used = a.triu(step) if options["upper"] else a.tril(-step)
    with torch.no_grad():
        before = reference_of(a), reference_of(b)
        solution = (call.func(a, b, **options) + call.func(*before, **options)) / 2
        middle = (a + before[0]) / 2
    product = used @ solution if options["left"] else solution @ used
    solved: Tensor = call.func(middle, b - product, **options)
    return solved


def pass_solution_on(call: Call, reference_of: Reference) -> Tensor:
    """Of `linalg.solve`; a B with one axis less is a vector."""
    a, b = call.args[:2]
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    left, before = call.kwargs.get("left", True), (reference_of(a), reference_of(b))
    if not vector:
        return rise_of_solution((a, b), before, left)
    return rise_of_solution((a, b.unsqueeze(-1)), (before[0], before[1].unsqueeze(-1)), left).squeeze(-1)


def pass_inverse_on(call: Call, reference_of: Reference) -> Tensor:
    """Of an inverse, which solves A X = 1."""
    a = call.args[0]
    one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return rise_of_solution((a, one), (reference_of(a), one), left=True)


def rise_of_solution(now: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor], left: bool) -> Tensor:
    """The map above, for A and B of the input and of the reference."""
    a, b = now
    with torch.no_grad():
        solution = (torch.linalg.solve(a, b, left=left) + torch.linalg.solve(*before, left=left)) / 2
        middle = (a + before[0]) / 2
    solved: Tensor = torch.linalg.solve(middle, b - (a @ solution if left else solution @ a), left=left)
    return solved


SOLUTIONS: dict[str, Callable[[Call, Reference], Tensor]] = {
    "linalg_solve_triangular": pass_triangular_on,
    "linalg_solve": pass_solution_on,
    "linalg_inv": pass_inverse_on,
    "inverse": pass_inverse_on,
}
