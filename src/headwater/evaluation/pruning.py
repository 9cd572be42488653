"""Heads or neurons removed by relevance over a dataset, and the accuracy that is left, beside other ways to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UnknownName, UsageError
from ..inputs.readouts import logits_of
from ..kernels.row_products import FasterLinear
from ..plurals import say_count
from .unit_refit import InputMoments, find_moments, refit_units
from .unit_removal import Chosen, UnitGroup, check_cut, cut_units, find_units
from .unit_scores import SCORES, UNSHARED, Examples, Scores, order_units, score_units
from .unshared import choose_in_steps, score_unshared

KINDS = ("heads", "neurons")
BATCH = 64


@dataclass(frozen=True)
class PrunedAccuracy:
    """What is left when the lowest units by one score are removed.

    `agreement` is the share of rows whose prediction is that of the model before, `divergence` the mean KL divergence
    of the class probabilities from those before: it needs no labels, and has less noise than accuracy.
    """

    score: str
    share: float
    removed: int
    accuracy: float
    agreement: float
    divergence: float


@dataclass(frozen=True)
class PruningReport:
    """Accuracy before, and for every score and share after. `rows` were measured; `scored` rows gave the scores."""

    kind: str
    units: int
    scored: int
    rows: int
    accuracy: float
    refit: bool
    pruned: tuple[PrunedAccuracy, ...]

    def __str__(self) -> str:
        shares = sorted({one.share for one in self.pruned})
        heads = "".join(f"{f'{share * 100:g}% removed':>24}" for share in shares)
        said = f"{self.units:,} {self.kind}, accuracy {self.accuracy:.3f} on {say_count(self.rows, 'row')}"
        lines = [said, f"{'':12}{heads}"]
        for name in dict.fromkeys(one.score for one in self.pruned):
            own = {
                one.share: f"{one.accuracy:.3f} (KL {one.divergence:.4f})" for one in self.pruned if one.score == name
            }
            lines.append(f"{name:12}" + "".join(f"{own[share]:>24}" for share in shares))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("kind", "units", "scored", "rows", "accuracy", "refit")}
        return {**found, "pruned": [vars(one) for one in self.pruned]}


@dataclass(frozen=True)
class Pruner:
    """A model whose units are found and can be cut out, and the texts that they are scored on.

    With `moments` the weights of the units that are kept are fitted such that they say what those that go said.
    """

    model: nn.Module
    tokenizer: Any
    groups: list[UnitGroup]
    scored: Examples
    moments: list[InputMoments] | None = None

    @classmethod
    def open(cls, model: nn.Module, tokenizer: Any, kind: str, scored: Examples, refit: bool = True) -> Pruner:
        groups = find_units(model, tokenizer, scored.texts[0], kind)
        check_cut(model, tokenizer, scored.texts[0], groups)
        moments = find_moments(model, tokenizer, scored.texts, groups) if refit else None
        return cls(model, tokenizer, groups, scored, moments)

    def score(self, name: str, seed: int = 0) -> Scores:
        return score_units(name, self.model, self.tokenizer, self.scored, self.groups, seed)

    def choose(self, name: str, shares: Sequence[float], seed: int = 0) -> list[Chosen]:
        """For each share the units that go by a score, over all layers: those with the lowest."""
        for share in shares:
            if not 0 <= share < 1:
                raise UsageError(f"the share that is removed lies from 0 up to 1, and {share} was asked for.")
        if name not in SCORES:
            raise UnknownName("score of units", name, SCORES)
        if name != UNSHARED:
            scores = self.score(name, seed)
            return [choose_lowest(scores, share) for share in shares]
        if self.moments is None:
            raise UsageError(f"the score {UNSHARED!r} is of units whose weights are fitted again: ask for that, too.")
        scores_of = partial(score_unshared, self.model, self.tokenizer, self.scored, self.groups, self.moments)
        return choose_in_steps(scores_of, self.groups, shares)

    def cut(self, chosen: Chosen) -> nn.Module:
        """A copy of the model without these units."""
        if self.moments is None:
            return cut_units(self.model, self.groups, chosen)
        return refit_units(self.model, self.groups, chosen, self.moments)

    @property
    def units(self) -> int:
        return sum(group.units for group in self.groups)


def choose_lowest(scores: Scores, share: float) -> Chosen:
    everything = order_units(scores)
    chosen: dict[int, list[int]] = {}
    for group, unit in everything[: round(share * len(everything))]:
        chosen.setdefault(group, []).append(unit)
    return chosen


def measure_pruning(
    pruner: Pruner,
    measured: Examples,
    shares: Sequence[float],
    names: Sequence[str] = tuple(SCORES),
    seed: int = 0,
) -> PruningReport:
    """What is left on `measured` after pruning by each score; these must be other rows than those that were scored."""
    before = find_logits(pruner.model, pruner.tokenizer, measured)
    labels = np.array(measured.labels)
    found = []
    for name in names:
        for share, chosen in zip(shares, pruner.choose(name, shares, seed), strict=True):
            after = find_logits(pruner.cut(chosen), pruner.tokenizer, measured)
            removed = sum(map(len, chosen.values()))
            found.append(PrunedAccuracy(name, share, removed, *compare_logits(before, after, labels)))
    accuracy = float((before.argmax(-1).numpy() == labels).mean())
    kind, scored = pruner.groups[0].kind, len(pruner.scored.texts)
    refit = pruner.moments is not None
    return PruningReport(kind, pruner.units, scored, len(labels), accuracy, refit, tuple(found))


def compare_logits(before: Tensor, after: Tensor, labels: NDArray[np.int64]) -> tuple[float, float, float]:
    """Accuracy, agreement and divergence."""
    said = after.argmax(-1)
    was, now = (one.double().log_softmax(-1) for one in (before, after))
    divergence = (was.exp() * (was - now)).sum(-1).mean()
    return (
        float((said.numpy() == labels).mean()),
        float((said == before.argmax(-1)).double().mean()),
        float(divergence),
    )


def find_logits(model: nn.Module, tokenizer: Any, examples: Examples) -> Tensor:
    """[texts, classes]; texts of like length together, long ones cut."""
    order = sorted(range(len(examples.texts)), key=lambda i: len(examples.texts[i]))
    found: list[Tensor] = []
    with torch.no_grad(), FasterLinear():
        for start in range(0, len(order), BATCH):
            some = [examples.texts[i] for i in order[start : start + BATCH]]
            given = tokenizer(some, return_tensors="pt", padding=True, truncation=True)
            found.append(logits_of(model(**given.to(next(model.parameters()).device))).cpu())
    return torch.cat(found)[torch.tensor(order).argsort()]
