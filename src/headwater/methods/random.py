"""`random`: the row that every other method has to beat."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch

from ..engine.forward import Demand, Run
from ..engine.outcome import Outcome
from ..engine.propagate import propagate
from ..inputs.batch import Batch, list_leaves
from ..rules import RuleSet
from .registry import Method, register


def run_random(job: Run) -> Outcome:
    """Uniform in -1 … 1, by the seed and the sample itself, so that neither batch nor padding change it."""
    outcome = propagate(job, Demand(RuleSet(frozenset()), backward=False))
    drawn = [
        torch.rand(n, generator=generator_of(job.batch, i, job.seed)) for i, n in enumerate(list_lengths(job, outcome))
    ]
    return replace(outcome, positions=[numbers * 2 - 1 for numbers in drawn])


def list_lengths(job: Run, outcome: Outcome) -> list[int]:
    real = job.batch.real
    if job.batch.patches is not None:
        return [len(job.batch.patches.cells)] * job.batch.samples
    if real is not None:
        return [int(n) for n in real.sum(1)]
    return [outcome.captured[0].leaf.reshape(job.batch.samples, -1, outcome.captured[0].leaf.shape[-1]).shape[1]] * (
        job.batch.samples
    )


def generator_of(batch: Batch, index: int, seed: int, number: int = 0) -> torch.Generator:
    """Random numbers that depend on the seed, on what the sample is, and on a number."""
    digest = hashlib.sha256(repr((seed, number)).encode())
    digest.update(encode_sample(batch, index))
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:8], "big") % 2**63)


def encode_sample(batch: Batch, index: int) -> bytes:
    """A sample as bytes, whatever batch it is in: its tokens, else its tensors."""
    if batch.alone is not None and batch.samples > 1:
        return encode_sample(batch.alone(index), 0)
    if batch.ids is not None and batch.real is not None:
        return repr(batch.ids[index][batch.real[index]].tolist()).encode()
    tensors = [t for t in list_leaves((batch.args, batch.kwargs)) if isinstance(t, torch.Tensor) and t.dim() > 0]
    rows = [t[index].detach().cpu().double().numpy().tobytes() for t in tensors if len(t) == batch.samples]
    return b"".join(rows)


register(Method("random", "uniform random numbers, seeded", run_random, group="chance"))
