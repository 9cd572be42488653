"""`smoothgrad(METHOD)`: the mean of a gradient method over noisy copies of the input (Smilkov et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.outcome import Outcome
from ..errors import NotApplicable, UsageError
from ..inputs.batch import Batch
from . import lrp
from .parameters import Parameter, number, whole_number
from .random import generator_of
from .registry import Method, register_with_parameters, resolve_method

COPIES, NOISE = 10, 0.1  # noise in units of the input's own spread


def smooth_method(method: str | Method = lrp.GI, samples: int = COPIES, noise: float = NOISE) -> Method:
    inner = resolve_method(method)
    if not inner.gradient:
        raise UsageError(f"smoothgrad takes a gradient method, and {inner.name!r} is none.")

    def run(job: Run) -> Outcome:
        if job.inside is not None or job.inspect is not None:
            raise NotApplicable(
                f"smoothgrad is a mean over many passes, and what is inside the model is of one: take {inner.name!r}."
            )
        outcome = inner.run(job)
        drawn = [partial(draw_noise, job.batch, job.seed, k, size=noise) for k in range(samples)]
        noisy = [inner.run(replace(job, noise=one)) for one in drawn]
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

    summary = f"{inner.name}, mean over {samples} noisy inputs (Smilkov et al. 2017)"
    return Method("smoothgrad", summary, run, inner.rules, group="rules")


def mean_of(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).mean(0)


def draw_noise(batch: Batch, seed: int, number: int, x: Tensor, size: float = NOISE) -> Tensor:
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
        rows[i, keep] = draw * mine.std() * size
    return found


register_with_parameters(
    "smoothgrad",
    [
        Parameter("method", "gi", "the gradient method that is averaged", resolve_method, leading=True),
        whole_number("samples", COPIES, "noisy copies of the input", 1, 10_000),
        number("noise", NOISE, "size of the noise, in units of the input's own spread", 0.0, 100.0),
    ],
    smooth_method,
)
