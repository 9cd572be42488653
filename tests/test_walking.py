"""The fast walk over a model finds what torch's own finds, in its order and under its names."""

from __future__ import annotations

import pytest
from tiny import BUILD, tiny
from torch import nn

from headwater.inputs.walking import named_modules, named_weights


@pytest.mark.parametrize("name", BUILD)
def test_it_is_torchs_own_walk(name: str) -> None:
    model = tiny(name)
    assert same(named_modules(model), model.named_modules())
    assert same(named_weights(model), [*model.named_parameters(), *model.named_buffers()])


def test_what_is_shared_is_found_once() -> None:
    part = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": part, "b": nn.Sequential(part, nn.BatchNorm1d(2))})
    model["b"].none = None
    model["b"].tied = part.weight
    assert same(named_modules(model), model.named_modules())
    assert same(named_weights(model), [*model.named_parameters(), *model.named_buffers()])


def same(ours, theirs) -> bool:
    return [(name, id(one)) for name, one in ours] == [(name, id(one)) for name, one in theirs]
