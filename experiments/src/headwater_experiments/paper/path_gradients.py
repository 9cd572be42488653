"""`path-gradients`: integrated gradients as captum computes them, without captum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwater.engine.forward import Run
from headwater.engine.outcome import Outcome
from headwater.methods import method
from headwater.methods.ablation import ROWS_ON_CARD
from headwater.methods.captum import MOST_STEPS, STEPS, join_samples, one_sample
from headwater.methods.perturbation import Function, split_samples


@method("path-gradients", "integrated gradients from [UNK], by Gauss and Legendre's points")
def path_gradients(run: Run) -> Outcome:
    """As `integrated-gradients`: 32 points, twice as many until the sum is right to a thousandth, 256 at most."""
    return join_samples([one_sample(part, None, integrate_to_completeness) for part in split_samples(run)], run)


def integrate_to_completeness(package: Any, f: Function, x: Tensor, baseline: Tensor) -> Tensor:
    with torch.no_grad():
        rise = float(f(x) - f(baseline))
    steps = STEPS
    while True:
        found = integrate_gradients(f, x.detach(), baseline, steps)
        if steps >= MOST_STEPS or abs(float(found.double().sum()) - rise) <= 1e-3 * max(abs(rise), 0.1):
            return found
        steps *= 2


def integrate_gradients(f: Function, x: Tensor, baseline: Tensor, steps: int) -> Tensor:
    """(x - b) times the mean gradient on the straight line from b to x."""
    places, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(x)
    for part in np.array_split(np.arange(steps), -(-steps // points_at_once(x))):
        at, weight = (torch.tensor(v[part], dtype=x.dtype, device=x.device) for v in ((1 + places) / 2, weights / 2))
        shape = (-1, *[1] * (x.dim() - 1))
        points = (baseline + at.view(shape) * (x - baseline)).requires_grad_(True)
        (gradient,) = torch.autograd.grad(f(points).sum(), points)
        total += (weight.view(shape) * gradient).sum(0, keepdim=True)
    return (x - baseline) * total


def points_at_once(x: Tensor) -> int:
    """Points of the line in one pass: a card takes more of them."""
    return STEPS if x.device.type == "cpu" else max(STEPS, ROWS_ON_CARD // x.shape[1])
