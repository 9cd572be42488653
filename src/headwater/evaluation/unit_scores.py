"""How much heads and neurons matter over a dataset: by relevance, by Taylor's expansion, by weight, by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..api.explain import explain
from ..errors import UnknownName
from .unit_removal import UnitGroup, by_unit

CHUNK = 32  # texts whose units by token are held at once
Scores = list[NDArray[np.float64]]  # one array per group


def order_units(scores: Scores) -> list[tuple[int, int]]:
    """The group and the number of every unit, the lowest score first."""
    numbered = sorted((value, g, u) for g, values in enumerate(scores) for u, value in enumerate(values.tolist()))
    return [(g, u) for _, g, u in numbered]


@dataclass(frozen=True)
class Examples:
    """Texts with the numbers of their classes."""

    texts: Sequence[str]
    labels: Sequence[int]

    def draw(self, limit: int | None, seed: int) -> Examples:
        """At most `limit` of them, drawn with the seed."""
        chosen = np.random.default_rng(seed).permutation(len(self.texts))[:limit].tolist()
        return Examples([self.texts[i] for i in chosen], [self.labels[i] for i in chosen])


def score_units(
    name: str,
    model: nn.Module,
    tokenizer: Any,
    examples: Examples,
    groups: Sequence[UnitGroup],
    seed: int = 0,
) -> Scores:
    """The scores of all units by one of `ONCE`: what is low can go first."""
    if name not in ONCE:
        raise UnknownName("score of units", name, ONCE)
    if name == "random":
        draw = np.random.default_rng(seed)
        return [draw.random(group.units) for group in groups]
    if name == "magnitude":
        return [by_unit(model, group).detach().flatten(1).norm(dim=1).double().cpu().numpy() for group in groups]
    return sum_relevance(model, tokenizer, examples, groups, *_EXPLAINED[name])


SCORES = {
    "unshared": "relevance of what no other unit of its layer says, squared, taken again after every tenth",
    "relevance": "mean absolute relevance for the true class, by lrp",
    "taylor": "mean absolute value times gradient of the loss (Molchanov et al. 2017, Michel et al. 2019)",
    "magnitude": "norm of the weights that read the unit",
    "random": "chance",
}
UNSHARED = "unshared"
ONCE = tuple(name for name in SCORES if name != UNSHARED)  # scores that are taken once, for all shares
_EXPLAINED = {"relevance": ("lrp", "logit"), "taylor": ("gi", "log-probability")}


def sum_relevance(
    model: nn.Module,
    tokenizer: Any,
    examples: Examples,
    groups: Sequence[UnitGroup],
    method: str,
    output: str,
) -> Scores:
    """For every unit the mean over texts of its absolute relevance, each text explained for its own class.

    The loss is minus the log-probability of the class, so that under plain gradients this is Taylor's score.
    """
    sums = [np.zeros(group.units) for group in groups]
    places = {group.module: number for number, group in enumerate(groups)}
    for label in sorted(set(examples.labels)):
        own = [text for text, known in zip(examples.texts, examples.labels, strict=True) if known == label]
        for start in range(0, len(own), CHUNK):
            made = explain(
                model,
                own[start : start + CHUNK],
                tokenizer=tokenizer,
                method=method,
                output=output,
                target=label,
                inside=[groups[0].kind],
                truncate=True,
            )
            for e in made:
                assert e.inside is not None
                for group in e.inside.groups:
                    if group.module in places:
                        sums[places[group.module]] += group.units.abs().double().numpy()
    return [one / len(examples.texts) for one in sums]
