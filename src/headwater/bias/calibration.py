"""Whether the permutation test keeps what it promises on these very mentions: random labels, planted differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..evaluation.statistics import permutation_p
from .effects import Sums, find_means

LEVEL = 0.05
PERMUTATIONS = 999
PLANTED = (0.5, 1.0, 1.5)  # of the difference that the audit calls detectable


@dataclass(frozen=True)
class Planted:
    """A difference that was added to the mentions of one random group, and the share of labellings that show it."""

    difference: float
    found: float


@dataclass(frozen=True)
class Calibration:
    """What the test says where the truth is known: the entries of two groups, labelled at random `labellings` times.

    `false`: the share of labellings with p <= .05, which should be .05. `quartiles` of p, which should be .25, .5 and
    .75. `planted`: the share that is found of differences of known size; of the detectable one it should be .8.
    """

    first: str
    second: str
    labellings: int
    false: float
    quartiles: tuple[float, float, float]
    planted: tuple[Planted, ...]

    def to_dict(self) -> dict[str, object]:
        return {**vars(self), "planted": [vars(one) for one in self.planted]}


def calibrate(
    names: tuple[str, str],
    sums: tuple[Sums, Sums],
    detectable: float,
    labellings: int,
    seed: int,
    tick: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """Ask the test about random groups of the sizes of the real ones, as they are and with a difference planted."""

    def found(difference: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        ps = []
        for number, (one, other) in enumerate(label_randomly(sums, labellings, seed)):
            ps.append(permutation_p(shift_entries(one, difference), other, find_means, seed + number, PERMUTATIONS))
            tick(1)
        return np.array(ps)

    none = found(0.0)
    planted = [(size * detectable, found(size * detectable)) for size in PLANTED]
    low, middle, high = np.quantile(none, [0.25, 0.5, 0.75]).tolist()
    return Calibration(
        *names,
        labellings=labellings,
        false=float((none <= LEVEL).mean()),
        quartiles=(low, middle, high),
        planted=tuple(Planted(size, float((ps <= LEVEL).mean())) for size, ps in planted),
    )


def label_randomly(sums: tuple[Sums, Sums], labellings: int, seed: int) -> Iterator[tuple[Sums, Sums]]:
    """The entries of both groups, handed out at random to two groups of the same sizes."""
    both, size = np.concatenate(sums), len(sums[0])
    random = np.random.default_rng(seed)
    for _ in range(labellings):
        order = random.permutation(len(both))
        yield both[order[:size]], both[order[size:]]


def shift_entries(sums: Sums, by: float) -> Sums:
    """Count, sum and sum of squares of entries whose every mention has `by` added to it."""
    count, total, squares = sums.T
    return np.stack([count, total + by * count, squares + 2 * by * total + by**2 * count], axis=1)
