"""`smoothgrad(METHOD)`: the mean of a gradient method over noisy copies of the input (Smilkov et al. 2017)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.propagate import Outcome
from ..errors import UsageError
from ..inputs.batch import Batch
from . import lrp
from .random import generator_of
from .registry import Method, family, register, resolve_method

COPIES, NOISE = 10, 0.1  # noise in units of the input's own spread


def smooth_method(inner: Method) -> Method:
    if not inner.gradient:
        raise UsageError(f"smoothgrad takes a gradient method, and {inner.name!r} is none.")

    def run(job: Run) -> Outcome:
        outcome = inner.run(job)
        noisy = [inner.run(replace(job, noise=partial(noise, job.batch, job.seed, k))) for k in range(COPIES)]
        beside = [
            (one, mean_of([gradient for _, gradient in copies]))
            for (one, _), *copies in zip(outcome.beside, *(run.beside for run in noisy), strict=True)
        ]
        amounts = {i: mean_of([one.books.amounts[i] for one in noisy]) for i in outcome.books.amounts}
        return replace(
            outcome,
            relevance=[mean_of(parts) for parts in zip(*(one.relevance for one in noisy), strict=True)],
            gradients=[mean_of(parts) for parts in zip(*(one.gradients for one in noisy), strict=True)],
            beside=beside,
            books=replace(outcome.books, amounts=amounts),
        )

    name = "smoothgrad" if inner.name == "gi" else f"smoothgrad({inner.name})"
    return Method(
        name, f"{inner.name}, mean over {COPIES} noisy inputs (Smilkov et al. 2017)", run, inner.rules, group="rules"
    )


def mean_of(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).mean(0)


def noise(batch: Batch, seed: int, number: int, x: Tensor) -> Tensor:
    """Drawn for each sample by itself, so that neither batch nor padding change it."""
    found = torch.zeros_like(x)
    sequence_first = batch.real is not None and x.shape[0] != batch.samples
    rows = found.transpose(0, 1) if sequence_first else found
    values = x.transpose(0, 1) if sequence_first else x
    for i in range(batch.samples):
        generator = generator_of(batch, i, seed, number)
        keep = slice(None) if batch.real is None or batch.real.shape[1] != rows.shape[1] else batch.real[i]
        mine = values[i][keep]
        draw = torch.randn(mine.shape, generator=generator, dtype=torch.float64).to(mine)
        rows[i, keep] = draw * mine.std() * NOISE
    return found


@family
def parse_smoothgrad(name: str) -> Method | None:
    """smoothgrad(lrp)."""
    match = re.fullmatch(r"smoothgrad\((.*)\)", name)
    return smooth_method(resolve_method(match[1])) if match else None


register(smooth_method(lrp.GI))
