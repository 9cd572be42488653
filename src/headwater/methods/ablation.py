"""`leave-one-out` and `contextcite`: the score of inputs from which tokens are taken out, many of them in one pass.

A token that is taken out is replaced by [UNK] (else [MASK], else padding). Where the tokenizer has none of these, and
for images and bare tensors, its numbers are zero. Samples go one by one and without padding, so that neither batch nor
padding change a number. Where several scores of one prediction are explained, all are read off the same passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.outcome import Outcome
from ..errors import NotFinite
from ..inputs.readouts import ScoreReading
from ..inputs.restoring import outside_inference
from .parameters import baseline, whole_number
from .perturbation import (
    Function,
    choose_token,
    functions_of,
    join_found,
    nothing,
    per_feature,
    positions_mask,
    split_samples,
)
from .random import generator_of
from .registry import Method, register_with_parameters
from .surrogate import fit_lasso

COPIES = 64  # of one input in a pass, at most
ROWS, ROWS_ON_CARD = 2048, 16384  # copies times tokens in a pass
NUMBERS = 1 << 24  # in the copies of a pass: 64 MiB of float32
ABLATIONS, MOST_ABLATIONS = 32, 100_000  # of contextcite


@dataclass(frozen=True)
class Ablated:
    """One sample of which tokens (patches of an image, positions of a tensor) can be taken out."""

    run: Run
    functions: list[Function]  # one for each score
    readings: list[ScoreReading]
    x: Tensor
    baseline: Tensor
    features: Tensor  # the number of the token that each number of x belongs to

    @classmethod
    def of(cls, run: Run, readers: Sequence[Any], taken_out: str | None) -> Ablated:
        functions, readings = functions_of(run, readers)
        inputs = functions[0].inputs
        x = inputs.leaf.detach()
        baseline = nothing(run, inputs, choose_token(run, taken_out))
        return cls(run, functions, readings, x, baseline, positions_mask(functions[0], x))

    @property
    def count(self) -> int:
        return int(self.features.max()) + 1

    def sources(self, score: int) -> int:
        """How many of the first tokens can have a part in a score. A reader of generated text knows: those before."""
        tell = getattr(self.functions[score].read, "count_sources", None)
        return self.count if tell is None else min(self.count, tell(self.count))

    def full_scores(self) -> Tensor:
        """[scores]: of the whole input."""
        return torch.cat([reading.score.detach().double().cpu() for reading in self.readings])

    def score_copies(self, kept: Tensor) -> Tensor:
        """[copies, scores] of inputs that keep these tokens, [copies, tokens], and lack the others."""
        found = torch.cat([self._score_pass(part) for part in kept.split(self.copies_at_once())])
        if not bool(found.isfinite().all()):
            raise NotFinite("the score is not finite when some tokens are taken out, so they cannot be compared.")
        return found

    def _score_pass(self, kept: Tensor) -> Tensor:
        keep = kept.to(self.x.device)[:, self.features[0]]
        out, batch = self.functions[0].run_copies(torch.where(keep, self.x, self.baseline))
        return torch.stack([function.read(out, batch).score.double().cpu() for function in self.functions], 1)

    def copies_at_once(self) -> int:
        rows = ROWS if self.x.device.type == "cpu" else ROWS_ON_CARD
        tokens = 1 if self.run.batch.tensor is not None else self.x.shape[1]
        return max(1, min(COPIES, rows // tokens, NUMBERS // self.x.numel()))

    def as_relevance(self, values: Tensor) -> Tensor:
        """One number per token; for a tensor, spread evenly over the numbers that were taken out together."""
        dtype = torch.promote_types(self.x.dtype, torch.float32)
        values = values.to(dtype)
        if self.run.batch.tensor is None:
            return values
        return per_feature(self.functions[0], values[self.features.cpu()])[0]


@dataclass(frozen=True)
class Found:
    """What ablations say of one score of one sample."""

    relevance: Tensor
    reading: ScoreReading
    intercept: float | None = None


Explain = Callable[[Ablated], list[Found]]  # one for each score


def make_ablation(name: str, summary: str, explain: Explain, taken_out: str | None = None) -> Method:
    def each(job: Run, readers: Sequence[Any]) -> Iterator[Outcome]:
        with outside_inference(), torch.no_grad():
            samples = [explain(Ablated.of(part, readers, taken_out)) for part in split_samples(job)]
        yield from (join_outcome(list(parts)) for parts in zip(*samples, strict=True))

    def run(job: Run) -> Outcome:
        (outcome,) = each(job, [job.read])
        return outcome

    return Method(name, summary, run, group="perturbation", each=each)


def join_outcome(parts: list[Found]) -> Outcome:
    """The samples of a batch, for one score."""
    lines = [part.intercept for part in parts if part.intercept is not None]
    constants = {"intercept of the linear model": lines} if lines else {}
    return join_found([part.reading for part in parts], [part.relevance for part in parts], constants)


def leave_one_out(sample: Ablated) -> list[Found]:
    """Relevance of a token: the score of the whole input less that without the token."""
    most = max(sample.sources(k) for k in range(len(sample.functions)))
    without = sample.score_copies(~torch.eye(sample.count, dtype=torch.bool)[:most])
    found = []
    for k, reading in enumerate(sample.readings):
        values, part = torch.zeros(sample.count, dtype=torch.float64), sample.sources(k)
        values[:part] = sample.full_scores()[k] - without[:part, k]
        found.append(Found(sample.as_relevance(values), reading))
    return found


HOW = {"zero": "zero embedding", "unk": "[UNK]", "mask": "[MASK]", "pad": "padding"}


def make_leave_one_out(baseline: str | None = None) -> Method:
    how = "[UNK], else [MASK], padding, zero" if baseline is None else HOW[baseline]
    summary = f"the score less that without the token ({how}); tokens + 1 passes"
    return make_ablation("leave-one-out", summary, leave_one_out, baseline)


def contextcite(sample: Ablated, ablations: int) -> list[Found]:
    """Weights of a sparse linear model of the score: tokens kept or not, each with probability 1/2 (ContextCite)."""
    kept = torch.rand(ablations, sample.count, generator=generator_of(sample.run.batch, 0, sample.run.seed)) < 0.5
    scores = sample.score_copies(kept)
    found = []
    for k, reading in enumerate(sample.readings):
        values, part = torch.zeros(sample.count, dtype=torch.float64), sample.sources(k)
        weights, intercept = fit_lasso(kept[:, :part].numpy(), scores[:, k].numpy())
        values[:part] = torch.from_numpy(np.asarray(weights))
        found.append(Found(sample.as_relevance(values), reading, intercept))
    return found


def make_contextcite(samples: int = ABLATIONS, baseline: str | None = None) -> Method:
    summary = f"a sparse linear model of {samples} random ablations (ContextCite, Cohen-Wang et al. 2024)"
    return make_ablation("contextcite", summary, lambda sample: contextcite(sample, samples), baseline)


register_with_parameters("leave-one-out", [baseline(leading=True)], make_leave_one_out)
register_with_parameters(
    "contextcite",
    [whole_number("samples", ABLATIONS, "random ablations", 2, MOST_ABLATIONS, leading=True), baseline()],
    make_contextcite,
)
