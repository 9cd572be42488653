"""Heads or neurons removed by relevance over a dataset, and the accuracy that is left, beside other ways to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..errors import UsageError
from ..inputs.readouts import logits_of
from .unit_removal import Chosen, UnitGroup, check_cut, cut_units, find_units
from .unit_scores import SCORES, Examples, Scores, score_units

KINDS = ("heads", "neurons")
BATCH = 64


@dataclass(frozen=True)
class PrunedAccuracy:
    """What is left when the lowest units by one score are removed."""

    score: str
    share: float
    removed: int
    accuracy: float


@dataclass(frozen=True)
class PruningReport:
    """Accuracy before, and for every score and share after. `rows` were measured; `scored` rows gave the scores."""

    kind: str
    units: int
    scored: int
    rows: int
    accuracy: float
    pruned: tuple[PrunedAccuracy, ...]

    def __str__(self) -> str:
        shares = sorted({one.share for one in self.pruned})
        heads = "".join(f"{f'{share:.0%} removed':>16}" for share in shares)
        lines = [f"{self.units:,} {self.kind}, accuracy {self.accuracy:.3f} on {self.rows:,} rows", f"{'':12}{heads}"]
        for name in dict.fromkeys(one.score for one in self.pruned):
            own = {one.share: one.accuracy for one in self.pruned if one.score == name}
            lines.append(f"{name:12}" + "".join(f"{own[share]:16.3f}" for share in shares))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("kind", "units", "scored", "rows", "accuracy")}
        return {**found, "pruned": [vars(one) for one in self.pruned]}


@dataclass(frozen=True)
class Pruner:
    """A model whose units are found and can be cut out."""

    model: nn.Module
    tokenizer: Any
    groups: list[UnitGroup]

    @classmethod
    def open(cls, model: nn.Module, tokenizer: Any, kind: str, text: str) -> Pruner:
        groups = find_units(model, tokenizer, text, kind)
        check_cut(model, tokenizer, text, groups)
        return cls(model, tokenizer, groups)

    def score(self, name: str, examples: Examples, seed: int = 0) -> Scores:
        return score_units(name, self.model, self.tokenizer, examples, self.groups, seed)

    def cut(self, scores: Scores, share: float) -> nn.Module:
        """A copy of the model without that share of its units: those with the lowest scores, over all layers."""
        return cut_units(self.model, self.groups, choose_lowest(scores, share))

    @property
    def units(self) -> int:
        return sum(group.units for group in self.groups)


def choose_lowest(scores: Scores, share: float) -> Chosen:
    if not 0 <= share < 1:
        raise UsageError(f"the share that is removed lies from 0 up to 1, and {share} was asked for.")
    everything = sorted((value, g, u) for g, values in enumerate(scores) for u, value in enumerate(values.tolist()))
    chosen: dict[int, list[int]] = {}
    for _, group, unit in everything[: round(share * len(everything))]:
        chosen.setdefault(group, []).append(unit)
    return chosen


def measure_pruning(
    pruner: Pruner,
    scored: Examples,
    measured: Examples,
    shares: Sequence[float],
    names: Sequence[str] = tuple(SCORES),
    seed: int = 0,
) -> PruningReport:
    """The accuracy on `measured` after pruning by each score, which `scored` gives: the two must be other rows."""
    accuracy = find_accuracy(pruner.model, pruner.tokenizer, measured)
    found = []
    for name in names:
        scores = pruner.score(name, scored, seed)
        for share in shares:
            left = find_accuracy(pruner.cut(scores, share), pruner.tokenizer, measured)
            found.append(PrunedAccuracy(name, share, round(share * pruner.units), left))
    kind = pruner.groups[0].kind
    return PruningReport(kind, pruner.units, len(scored.texts), len(measured.texts), accuracy, tuple(found))


def find_accuracy(model: nn.Module, tokenizer: Any, examples: Examples) -> float:
    """The share of texts whose likeliest class is the true one; long texts are cut."""
    order = sorted(range(len(examples.texts)), key=lambda i: len(examples.texts[i]))
    right = 0
    with torch.no_grad():
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            given = tokenizer([examples.texts[i] for i in some], return_tensors="pt", padding=True, truncation=True)
            said = logits_of(model(**given.to(next(model.parameters()).device))).argmax(-1).cpu().numpy()
            right += int((said == np.array([examples.labels[i] for i in some])).sum())
    return right / len(order)
