"""The fast walk over a model finds what torch's own finds, in its order and under its names."""

from __future__ import annotations

import copy

import pytest
from tiny import BUILD, arguments, tiny
from torch import nn

import headwater as hw
from headwater.inputs import walking
from headwater.inputs.walking import named_modules, named_weights, walk_once


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


def test_an_explanation_walks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one walks again, for a model may have changed in between."""
    walks: list[nn.Module] = []
    plain = walking.walk_modules
    monkeypatch.setattr(walking, "walk_modules", lambda model: walks.append(model) or plain(model))
    model = copy.deepcopy(tiny("llama"))
    hw.explain(model, arguments("llama"), method="lrp")
    assert [one is model for one in walks].count(True) == 1
    model.model.layers.append(copy.deepcopy(model.model.layers[0]))
    model.config.num_hidden_layers += 1
    longer = hw.explain(model, arguments("llama"), method="lrp")
    assert [one is model for one in walks].count(True) == 2
    assert all(explanation.ledger.closed for explanation in longer)


def test_of_a_walk_that_is_over_nothing_is_kept() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with walk_once():
        before = named_modules(model)
        with walk_once():
            assert named_modules(model) is before
        assert named_modules(model) is before
    assert named_modules(model) is not before
