"""Infidelity and max-sensitivity (Yeh et al. 2019), computed by captum on the items of an explanation.

Infidelity: a random set S of items is replaced; relevance forecasts that the score falls by the sum over S. The mean
squared error of the forecast, from 0 on, in squared units of the score.

Max-sensitivity: noise is added to the embeddings, uniform within a tenth of their spread; the largest change of the
explanation, relative to its size, from 0 on. A small number says that the explanation is stable, not that it is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ModelError, UsageError, require_extra
from ..inputs.hooks import hook_modules
from ..inputs.places import find_places
from ..results.explanation import Explanation
from .perturbation import Subjects
from .ranking import Counts, Floats
from .tokens import TokenPart

DRAWS = 10
RADIUS = 0.1


def captum_metrics(what: str) -> Any:
    with require_extra(what, "captum"):
        from captum import metrics
    return metrics


def infidelity(
    part: Subjects, method: str, made: Sequence[Explanation], targets: Counts, seed: int, draws: int = DRAWS
) -> Floats:
    """One number per sample; each item is replaced with probability one half, in `draws` draws."""
    measure = captum_metrics("infidelity").infidelity
    found = []
    for i, explanation in enumerate(made):
        items = part.items(i)
        generator = torch.Generator().manual_seed(sample_seed(seed, i))

        def score(present: Tensor, i: int = i) -> Tensor:
            inputs, bounds = part.perturb(i, present.bool().numpy()), part.source.bounds
            groups = bounds.groups(len(inputs), bounds.inputs)
            answers = [part.logits([inputs[n] for n in group])[:, targets[i]] for group in groups]
            return torch.from_numpy(np.concatenate(answers))

        def remove(present: Tensor, generator: torch.Generator = generator) -> tuple[Tensor, Tensor]:
            removed = (torch.rand(present.shape, generator=generator) < 0.5).to(present.dtype)
            return removed, present - removed

        relevance = explanation.relevance.double().cpu()[torch.from_numpy(items)]
        present = torch.ones(1, len(items), dtype=torch.float64)
        found.append(float(measure(score, remove, present, relevance[None], n_perturb_samples=draws)))
    return np.array(found)


def sensitivity(
    part: Subjects, method: str, made: Sequence[Explanation], targets: Counts, seed: int, draws: int = DRAWS
) -> Floats:
    """One number per sample: the largest of `draws` draws of noise."""
    measure = captum_metrics("sensitivity").sensitivity_max
    if not isinstance(part, TokenPart):
        raise UsageError("sensitivity is measured on texts only: it needs embeddings to add noise to.")
    found = []
    for i in range(len(part)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(sample_seed(seed, i))
            x = embed_sample(part, i)

            def explain(inputs: tuple[Tensor], i: int = i) -> tuple[Tensor]:
                (noisy,) = inputs
                again: list[Explanation] = []
                bounds = part.source.bounds
                for group in bounds.groups(len(noisy), bounds.samples_of(method, len(noisy))):
                    with replace_embeddings(part.source.model, noisy[group.start : group.stop]):
                        again += part.explain_together([i] * len(group), method, int(targets[i]), seed)
                return (torch.stack([e.relevance.double() for e in again]),)

            found.append(float(measure(explain, x, perturb_radius=RADIUS * float(x.std()), n_perturb_samples=draws)))
    return np.array(found)


def sample_seed(seed: int, sample: int) -> int:
    return int(np.random.SeedSequence([seed, sample]).generate_state(1)[0])


def embed_sample(part: TokenPart, sample: int) -> Tensor:
    """What the model's embeddings give for a text, [1, tokens, channels]."""
    found: list[Tensor] = []
    place = find_embedding(part.source.model)
    with hook_modules([place], after=lambda module, args, kwargs, output: found.append(output)), torch.no_grad():
        part.source.model(**part.fields([sample]))
    return found[0].detach()


@contextmanager
def replace_embeddings(model: nn.Module, given: Tensor) -> Iterator[None]:
    """The model's embeddings give this instead, until the block is left."""
    with hook_modules([find_embedding(model)], after=lambda module, args, kwargs, output: given.to(output.dtype)):
        yield


def find_embedding(model: nn.Module) -> nn.Module:
    places = find_places(model, "embeddings")
    if len(places) != 1:
        raise ModelError("sensitivity needs a model that embeds its text once; this one has more than one place.")
    return places[0]
