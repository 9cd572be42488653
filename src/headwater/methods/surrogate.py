"""A sparse linear model of scores: the LASSO that ContextCite asks of scikit-learn.

Coordinate descent sets one weight after the other to its best value. With more columns than rows it would take tens of
thousands of rounds, so it begins where a homotopy ends (Efron et al. 2004): the solution is followed from the penalty
at which all weights are 0 down to the one asked for. In between it is linear until a weight becomes or ceases to be 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.01  # ContextCite's
TOLERANCE, ROUNDS = 1e-10, 1000  # of coordinate descent

Floats = NDArray[np.float64]


def fit_lasso(kept: NDArray[Any], scores: NDArray[Any], alpha: float = ALPHA) -> tuple[Floats, float]:
    """Weights and intercept that minimise |y - b - X w|^2 / 2n + alpha |w|_1, columns of X standardised first.

    The weights are those of the columns as they were given. A column that is the same in every row has weight 0.
    """
    x, y = kept.astype(np.float64), scores.astype(np.float64)
    mean, spread = x.mean(0), x.std(0)
    scale = np.where(spread > 0, spread, 1.0)
    columns, centred = (x - mean) / scale, y - y.mean()
    weights = descend(columns, centred, alpha, follow_path(columns, centred, alpha)) / scale
    return weights, float(y.mean() - mean @ weights)


def follow_path(x: Floats, y: Floats, alpha: float) -> Floats:
    """The weights at the penalty `alpha`, by way of those at every larger penalty."""
    rows, count = x.shape
    weights, pulls = np.zeros(count), x.T @ y / rows
    penalty = float(np.abs(pulls).max(initial=0.0))
    active = [int(np.abs(pulls).argmax())] if count else []
    for _ in range(10 * rows):
        if penalty <= alpha or not active:
            break
        part = x[:, active]
        way = np.linalg.lstsq(part.T @ part / rows, np.sign(pulls[active]), rcond=None)[0]
        slopes = x.T @ (part @ way) / rows
        enters, place = next_to_enter(pulls, slopes, penalty, active)
        leaves, gone = next_to_leave(weights[active], way)
        step = min(enters, leaves, penalty - alpha)
        weights[active] += step * way
        pulls, penalty = pulls - step * slopes, penalty - step
        if step == leaves:
            weights[active.pop(gone)] = 0.0
        elif step == enters:
            active.append(place)
    return weights


def next_to_enter(pulls: Floats, slopes: Floats, penalty: float, active: list[int]) -> tuple[float, int]:
    """How far the penalty falls until a further column pulls as hard, and which one that is."""
    steps = np.full((2, len(pulls)), np.inf)
    for sign, row in zip((1.0, -1.0), steps, strict=True):
        closing = 1.0 - sign * slopes  # by so much the distance of a pull to the penalty shrinks
        np.divide(np.maximum(penalty - sign * pulls, 0.0), closing, out=row, where=closing > TOLERANCE)
    steps[:, active] = np.inf
    nearest = steps.min(0)
    return float(nearest.min()), int(nearest.argmin())


def next_to_leave(weights: Floats, way: Floats) -> tuple[float, int]:
    """How far the penalty falls until a weight is 0 again, and which one that is."""
    steps = np.full(len(weights), np.inf)
    np.divide(-weights, way, out=steps, where=weights * way < 0)
    return float(steps.min()), int(steps.argmin())


def descend(x: Floats, y: Floats, alpha: float, start: Floats) -> Floats:
    """One weight at a time is set to its best value, until none moves. Columns have mean square 1, or are 0."""
    weights, rest = start.copy(), y - x @ start
    alive, size = np.flatnonzero(x.any(0)), float(np.abs(y).max(initial=0.0))
    for _ in range(ROUNDS):
        moved = 0.0
        for k in alive:
            pull = float(x[:, k] @ rest) / len(y) + weights[k]
            best = np.sign(pull) * max(abs(pull) - alpha, 0.0)
            if best != weights[k]:
                rest += x[:, k] * (weights[k] - best)
                moved = max(moved, abs(best - weights[k]))
                weights[k] = best
        if moved <= TOLERANCE * size:
            break
    return weights
