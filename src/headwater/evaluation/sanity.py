"""The model-randomisation check (Adebayo et al. 2018): an explanation must change when the weights are scrambled.

One that does not explains the input, or the architecture, but not what the model has learnt. Weights are drawn anew
with each tensor's own mean and spread, so that norms and embeddings keep their scale; the model itself is untouched.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from ..engine.model import prepare_model
from ..errors import UnknownName
from ..viz.reading import layer_of
from .graphs import GraphPart, GraphSource
from .images import ImagePart, ImageSource
from .perturbation import Subjects
from .protocols import ali2022
from .ranking import Counts, Floats
from .statistics import MeanEstimate, rank_correlation, resample_means, with_interval
from .tokens import TokenPart, TokenSource

MODES = ("cascading", "full")
SAMPLES = 64


@dataclass(frozen=True)
class Stage:
    """After scrambling all modules up to `module`, from the output down: mean rank correlation with the explanation
    before, over samples, with its interval. In [-1, 1]; near 0 is right."""

    module: str
    correlation: MeanEstimate


def randomisation(
    model: nn.Module,
    texts: Sequence[str],
    *,
    method: str,
    tokenizer: Any,
    mode: Literal["cascading", "full"] = "cascading",
    seed: int = 0,
    batch_size: int = 16,
) -> list[Stage]:
    """How much of an explanation is left as the weights are scrambled, for the class that the model predicts.

    "cascading" goes from the output to the embeddings, one layer more a stage; "full" is its last stage alone.
    """
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    source = TokenSource(prepare_model(model, None, None), tokenizer, list(texts), ali2022, batch_size)
    part = source.part(range(len(source)))
    targets = predict_classes(part)
    before = explain_targets(part, method, targets, seed)
    stages = []
    scrambled = copy.deepcopy(source.model)
    for module, names in layers_from_output(source.model):
        scramble(scrambled, names, seed)
        if mode == "full" and module != layers_from_output(source.model)[-1][0]:
            continue
        after = explain_targets(with_model(part, scrambled), method, targets, seed)
        stages.append(Stage(module, measure_agreement(before, after, seed)))
    return stages


def scramble_and_compare(
    source: TokenSource | GraphSource | ImageSource, targets: Counts, methods: Sequence[str], seed: int
) -> Mapping[str, MeanEstimate]:
    """The last stage for several methods, on a few samples drawn with the seed."""
    count = min(SAMPLES, len(source))
    chosen = sorted(np.random.default_rng(seed).permutation(len(source))[:count].tolist())
    part = source.part(chosen)
    scrambled = copy.deepcopy(source.model)
    for _, names in layers_from_output(source.model):
        scramble(scrambled, names, seed)
    other = with_model(part, scrambled)
    return {
        method: measure_agreement(
            explain_targets(part, method, targets[chosen], seed),
            explain_targets(other, method, targets[chosen], seed),
            seed,
        )
        for method in methods
    }


def layers_from_output(model: nn.Module) -> list[tuple[str, list[str]]]:
    """Parameters by layer, from the output to the embeddings: the reverse of the order in which they were made."""
    found: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        found.setdefault(layer_of(name), []).append(name)
    return list(reversed(found.items()))


def scramble(model: nn.Module, names: Sequence[str], seed: int) -> None:
    """Draws these parameters anew, each with its own mean and spread."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name in names:
            old = parameters[name]
            generator = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
            noise = torch.randn(old.shape, generator=generator, dtype=torch.float64)
            spread = old.double().std(correction=0) if old.numel() else 0.0
            old.copy_((old.double().mean() + spread * noise.to(old.device)).to(old.dtype))


def with_model(part: TokenPart | GraphPart | ImagePart, model: nn.Module) -> Subjects:
    """The same samples, for another model."""
    other: Any = copy.copy(part)
    other.source = copy.copy(part.source)
    other.source.model = model
    return other  # type: ignore[no-any-return]


def predict_classes(part: TokenPart) -> Counts:
    logits = []
    for i in range(len(part)):
        logits.append(part.logits(part.perturb(i, np.ones((1, len(part.items(i))), dtype=np.bool_)))[0])
    return np.asarray(np.stack(logits).argmax(1), dtype=np.intp)


def explain_targets(part: Subjects, method: str, targets: Counts, seed: int) -> list[Floats]:
    found: dict[int, Floats] = {}
    for label in sorted(set(targets.tolist())):
        group = np.flatnonzero(targets == label).tolist()
        for i, e in zip(group, part.explain(group, method, label, seed), strict=True):
            found[i] = e.relevance.double().cpu().numpy()
    return [found[i] for i in range(len(part))]


def measure_agreement(before: Sequence[Floats], after: Sequence[Floats], seed: int) -> MeanEstimate:
    """Mean rank correlation; a sample whose relevance is all equal, before or after, has none and is left out."""
    found = np.array([rank_correlation(a, b) for a, b in zip(before, after, strict=True)])
    found = found[np.isfinite(found)]
    if not len(found):
        return MeanEstimate(np.nan, np.nan, np.nan)
    return with_interval(float(found.mean()), resample_means(found[:, None], seed)[:, 0])
