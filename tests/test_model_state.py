"""Whether a model is as it was: whatever its parts hold may be changed, and each change is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from headwater.engine.model_state import ModelState


@dataclass(slots=True)
class Slotted:
    factor: float = 2.0


class Settings:
    """A hook of a user's, and what it acts by."""

    def __init__(self) -> None:
        self.factor = 2.0

    def scale(self, x: Tensor) -> Tensor:
        return x * self.factor


class Part(nn.Module):
    sizes = [4, 4]  # noqa: RUF012 - a list that all objects share is what is tried

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.slotted = Slotted()
        self.settings = Settings()
        self.bound = self.settings.scale
        self.given = partial(torch.mul, other=torch.ones(1))
        self.made = make_function(self, Settings(), nn.Linear(4, 4))
        self.named = {"first": 1, "second": 2}


def make_function(part: nn.Module, settings: Settings, outside: nn.Linear) -> Callable[[Tensor], Tensor]:
    """A function in the place of a module's own, with what it was made with."""
    factor = 2.0

    def forward(x: Tensor, offset: tuple[float, ...] = (1.0,)) -> Tensor:
        return outside(part.steps(x)) * factor * settings.factor + offset[0]

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    forward.change = change  # type: ignore[attr-defined]
    forward.settings, forward.outside = settings, outside  # type: ignore[attr-defined]
    return forward


def turn_weight(part: Part) -> None:
    part.steps[0].weight.data = part.steps[0].weight.data.T


def cut_weight(part: Part) -> None:
    part.steps[0].weight.data = part.steps[0].weight.data[:2]


def put_first_last(part: Part) -> None:
    own = part.steps._modules
    own["0"] = own.pop("0")


def put_name_last(part: Part) -> None:
    part.named["first"] = part.named.pop("first")


def change_slot(part: Part) -> None:
    part.slotted.factor = 3.0


def change_owner_of_method(part: Part) -> None:
    part.bound.__self__.factor = 3.0


def change_argument(part: Part) -> None:
    part.given.keywords["other"] = torch.zeros(1)


def change_cell(part: Part) -> None:
    part.made.change(3.0)


def change_object_in_cell(part: Part) -> None:
    part.made.settings.factor = 3.0


def change_default(part: Part) -> None:
    part.made.__defaults__ = ((2.0,),)


def change_weight_outside(part: Part) -> None:
    part.made.outside.weight = nn.Parameter(torch.zeros(4, 4))


def change_list_of_class(part: Part) -> None:
    Part.sizes.append(4)


CHANGES = [
    *(turn_weight, cut_weight, put_first_last, put_name_last, change_slot, change_owner_of_method, change_argument),
    *(change_cell, change_object_in_cell, change_default, change_weight_outside, change_list_of_class),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: Callable[[Part], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "sizes", [4, 4])
    model = nn.Sequential(Part(), Part()).eval()
    state = ModelState.of(model)
    assert state.holds(model)
    change(model[0])
    assert not state.holds(model)


def test_equal_numbers_in_other_objects_are_no_change() -> None:
    model = nn.Sequential(Part()).eval()
    state = ModelState.of(model)
    model[0].named["first"] = float("1")  # equal, but no longer a whole number
    assert not state.holds(model)
    model[0].named["first"] = 1
    model[0].slotted.factor = float("2")
    assert state.holds(model)


def test_weights_that_are_written_into_are_no_change() -> None:
    model = nn.Sequential(Part()).eval()
    state = ModelState.of(model)
    with torch.no_grad():
        model[0].steps[0].weight.mul_(2)
    assert state.holds(model)


def test_hooks_are_said() -> None:
    model = nn.Sequential(Part()).eval()
    assert not ModelState.of(model).is_hooked
    handle = model[0].register_forward_hook(lambda *_: None)
    assert ModelState.of(model).is_hooked
    handle.remove()
    assert not ModelState.of(model).is_hooked
