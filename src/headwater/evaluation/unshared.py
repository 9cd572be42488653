"""Relevance of what a unit says and no other unit of its layer does: what pruning takes away for good.

A unit that goes is not replaced by zero but by what the units that are kept predict of it (`unit_refit`). So its score
is its value minus that prediction, times the gradient of the margin of the true class, squared and averaged over texts.
Changes of random sign add up in squares. Units that stand in for each other lose their twin one after another, so that
scores are taken again after every tenth of all units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..inputs.readouts import logits_of
from ..inputs.restoring import outside_inference
from .unit_refit import InputMoments, batches_by_length, refit_units, split_inputs, watch_readers
from .unit_removal import Chosen, UnitGroup
from .unit_scores import Examples, Scores, order_units

STEP = 0.1  # of all units, after which scores are taken again


def choose_in_steps(
    scores_of: Callable[[Chosen], Scores], groups: Sequence[UnitGroup], shares: Sequence[float]
) -> list[Chosen]:
    """For each share the units that go: the lowest tenth, then the lowest by the scores of what is left, and so on."""
    units = sum(group.units for group in groups)
    gone: dict[int, list[int]] = {number: [] for number in range(len(groups))}
    reached: dict[int, Chosen] = {}
    count = 0
    for target in sorted({round(share * units) for share in shares}):
        while count < target:
            more = min(target - count, max(1, round(STEP * units)))
            for g, u in find_lowest(scores_of(gone), gone, more):
                gone[g].append(u)
            count += more
        reached[target] = {g: sorted(own) for g, own in gone.items() if own}
    return [reached[round(share * units)] for share in shares]


def find_lowest(scores: Scores, gone: Chosen, count: int) -> list[tuple[int, int]]:
    """So many of the units that are left."""
    away = {(g, u) for g, units in gone.items() for u in units}
    return [unit for unit in order_units(scores) if unit not in away][:count]


def score_unshared(
    model: nn.Module,
    tokenizer: Any,
    examples: Examples,
    groups: Sequence[UnitGroup],
    moments: Sequence[InputMoments],
    gone: Chosen,
) -> Scores:
    """The score of every unit that is left; of those that are gone, zero."""
    made = refit_units(model, groups, gone, moments)
    readers = [made.get_submodule(group.reader) for group in groups]
    apart = [
        take_unshared(group, one, gone.get(n, ())) for n, (group, one) in enumerate(zip(groups, moments, strict=True))
    ]
    sums: list[NDArray[np.float64]] = [np.zeros(group.units) for group in groups]
    for own, batch in batches_by_length(made, tokenizer, examples.texts):
        labels = [examples.labels[number] for number in own]
        with outside_inference(), torch.enable_grad(), watch_readers(readers, differentiable=True) as found:
            margins = find_margins(logits_of(made(**batch)), labels)
            values = [found[number] for number in range(len(groups))]
            gradients = torch.autograd.grad(margins.sum(), values)
        for number, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
            matrix, mean = (one.to(value) for one in (apart[number], moments[number].mean))
            change = ((value.detach() - mean) @ matrix) * gradient
            by_text = change.reshape(len(own), -1, groups[number].units, change.shape[-1] // groups[number].units)
            sums[number] += by_text.sum((1, 3)).double().square().sum(0).cpu().numpy()
    return [one / len(examples.texts) for one in sums]


def find_margins(logits: Tensor, labels: Sequence[int]) -> Tensor:
    """The logit of the true class minus the mean of all others."""
    true = logits[torch.arange(len(labels)), list(labels)]
    return true - (logits.sum(-1) - true) / max(logits.shape[-1] - 1, 1)


def take_unshared(group: UnitGroup, moments: InputMoments, gone: Sequence[int]) -> Tensor:
    """The matrix [inputs, inputs] that takes inputs, less their means, to what is left of each unit after prediction.

    With P the inverse covariance of what is kept, a unit minus its prediction by all others is z P[:, u] P[u, u]^-1.
    """
    inputs = len(moments.mean)
    kept, _ = split_inputs(group, inputs, gone)
    found = torch.zeros(inputs, inputs, dtype=torch.float64)
    if not len(kept):
        return found
    inverse, size = moments.invert(kept), inputs // group.units
    blocks = inverse.unflatten(0, (-1, size)).unflatten(2, (-1, size)).diagonal(dim1=0, dim2=2)  # [size, size, units]
    own = torch.linalg.inv(blocks.permute(2, 0, 1))
    columns = torch.einsum("kui,uij->kuj", inverse.unflatten(1, (-1, size)), own).flatten(1)
    found[kept[:, None], kept[None, :]] = columns
    return found
