"""`read_head_pairs`: the attention of every head, and its relevance between the same positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from typing_extensions import Unpack

from ..engine.forward import Read, Run
from ..engine.options import OptionsByName
from ..engine.session import answer_all
from ..errors import UsageError
from ..inputs.restoring import restores
from ..methods.registry import Method
from ..results.inside import HeadPairs
from ..rules.maps import AttentionMap, MapScope
from ..rules.scope import Scope
from .requests import Model, make_request


@restores
def read_head_pairs(
    model: Model, text: Any, *, method: str | Method | None = None, **options: Unpack[OptionsByName]
) -> list[HeadPairs]:
    """One for each attention that can be read, in the order in which the model computes them; of one text."""
    seen: list[MapScope] = []
    ask = make_request(model, text, method=method, **options)
    made = answer_all(ask, lambda run: keep_maps(run, seen))
    if len(made) != 1 or not seen:
        raise UsageError("the attention of one text is read: pass one, which fits the model.")
    return [make_pairs(one) for one in seen[0].maps if one.weights.dim() == 3 or one.weights.shape[0] == 1]


def keep_maps(run: Run, seen: list[MapScope]) -> Run:
    def inspect(scope: Scope, _: Read) -> None:
        assert isinstance(scope, MapScope)
        seen.append(scope)

    return replace(run, scope=MapScope, inspect=inspect, planned=False)


def make_pairs(one: AttentionMap) -> HeadPairs:
    slope = one.weights_gradient
    relevance = torch.zeros_like(one.weights) if slope is None else one.weights * slope
    shape = one.weights.shape[-3:]
    return HeadPairs(one.module, one.weights.reshape(shape).cpu(), relevance.reshape(shape).cpu())
