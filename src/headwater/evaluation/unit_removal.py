"""Heads and neurons cut out of a model's weights: where each is read, and the weights that read it set to zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..api.patch import make_one_run, patch
from ..api.requests import make_request
from ..engine.compiled import run_eagerly
from ..engine.forward import NO_RULES, forward, scope_for
from ..engine.session import Session
from ..errors import NotApplicable
from ..inputs.inside_demand import InsideDemand
from ..inputs.restoring import outside_inference, restores
from ..inputs.walking import walk_once
from ..results.inside import Node
from ..rules.inside import watch_inside
from ..rules.scope import Scope
from ..rules.unit_readers import ReaderScope

TOLERANCE = 1e-3  # of the score: between values set to zero and the weights that read them


@dataclass(frozen=True)
class UnitGroup:
    """The heads of one attention or the neurons of one layer; `reader` is the linear layer that reads them."""

    kind: str
    module: str
    reader: str
    units: int


@restores
def find_units(model: nn.Module, tokenizer: Any, text: str, kind: str) -> list[UnitGroup]:
    """The groups of one kind that lie in layers, in the order in which the model computes them."""
    ask = make_request(model, text, tokenizer=tokenizer, truncate=True)
    with walk_once():
        run = make_one_run(Session.open(ask.model, ask.options), ask)
        demand = InsideDemand(frozenset([kind]))

        @contextmanager
        def watch(scope: Scope) -> Iterator[None]:
            assert isinstance(scope, ReaderScope)
            scope.ask(demand)
            with watch_inside(run.model, scope):
                yield

        scope = scope_for(replace(run, scope=ReaderScope), NO_RULES)
        assert isinstance(scope, ReaderScope)
        with outside_inference(), torch.enable_grad(), run_eagerly():
            forward(replace(run, scope=ReaderScope, watch=watch), scope)
    found = [
        make_group(model, kind, place.module, readers, 1 if place.units is None else place.kept[place.units])
        for place, readers in zip(scope.places, scope.readers, strict=True)
        if place.layer is not None
    ]
    scope.release()
    check_groups(found, kind)
    return found


def make_group(model: nn.Module, kind: str, module: str, readers: Sequence[str], units: int) -> UnitGroup:
    """A group whose reader is told: one linear layer, whose inputs are the units one after another."""
    if len(readers) != 1:
        raise NotApplicable(f"the {kind} of {module!r} are read by {len(readers)} linear layers, so none can be cut.")
    inputs = read_inputs(model.get_submodule(readers[0]), readers[0])
    if len(inputs) % units:
        raise NotApplicable(f"{readers[0]!r} reads {len(inputs)} numbers, which are not those of {units} {kind}.")
    return UnitGroup(kind, module, readers[0], units)


def check_groups(found: Sequence[UnitGroup], kind: str) -> None:
    if not found:
        raise NotApplicable(f"the model has no {kind} that lie in layers and can be told.")
    if len({group.reader for group in found}) < len(found):
        raise NotApplicable(f"layers share weights, so that {kind} cannot be cut out of one of them.")


def read_inputs(reader: nn.Module, name: str) -> Tensor:
    """The weights of a linear layer, by input: [inputs, outputs]."""
    weight = getattr(reader, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise NotApplicable(f"{name!r} is a {type(reader).__name__}, whose weights are not known to be read by input.")
    return weight.T if isinstance(reader, nn.Linear) else weight


Chosen = Mapping[int, Sequence[int]]  # numbers of groups -> numbers of units


def cut_units(model: nn.Module, groups: Sequence[UnitGroup], chosen: Chosen) -> nn.Module:
    """A copy of the model in which nothing reads the chosen units."""
    made = deepcopy(model)
    with torch.no_grad():
        for number, units in chosen.items():
            weights = by_unit(made, groups[number])
            weights[list(units)] = 0
    return made


def by_unit(model: nn.Module, group: UnitGroup) -> Tensor:
    """The weights that read each unit, [units, inputs of the unit, outputs]: a view of the model's own."""
    found: Tensor = read_inputs(model.get_submodule(group.reader), group.reader).unflatten(0, (group.units, -1))
    return found


def check_cut(model: nn.Module, tokenizer: Any, text: str, groups: Sequence[UnitGroup]) -> None:
    """Without its weights a unit is as if it were zero: asked of one unit in each group, by patching."""
    nodes = [Node(f"{one.module} {one.kind[:-1]} 0", 0.0, one.kind, one.module, None, 0) for one in groups]
    expected = patch(model, text, nodes, with_="zeros", tokenizer=tokenizer, truncate=True)
    made = cut_units(model, groups, {number: [0] for number in range(len(groups))})
    found = patch(made, text, nodes[:1], with_="zeros", tokenizer=tokenizer, truncate=True, target=expected.target)
    if abs(found.score - expected.patched) > TOLERANCE * max(abs(expected.patched), 1.0):
        raise NotApplicable(
            f"the {groups[0].kind} of this model are not read one after another by a linear layer: without their "
            f"weights the score is {found.score:.4g}, with zeros in their place it is {expected.patched:.4g}."
        )
