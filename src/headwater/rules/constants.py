"""What is known of a constant: its name, the parameter that it was, and how it is told from others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..traces.record import untraced

NAME = "_headwater_name"
_EMBEDDED = "_headwater_embedded"
_ORIGINAL = "_headwater_original"
BESIDE_HELD = -1  # no site: what meets a constant that a rule holds


def freeze(parameter: Tensor, name: str | None) -> Tensor:
    """The parameter as a constant, which knows its name and what it was."""
    frozen = parameter.detach()
    setattr(frozen, _ORIGINAL, parameter)
    return set_name(frozen, name)


def parameter_of(constant: Any) -> Any:
    """The parameter behind a constant: by its `requires_grad` torch chooses a kernel even where no gradient is made."""
    return getattr(constant, _ORIGINAL, constant)


def set_name(value: Tensor, name: str | None) -> Tensor:
    if name is not None:
        setattr(value, NAME, name)
    return value


def pass_name_on(result: Any, operation: str, args: Any) -> Any:
    """A constant computed from a parameter keeps its name, so that the ledger can say what entered."""
    if isinstance(result, Tensor) and result.is_floating_point() and not hasattr(result, NAME):
        for value in args:
            found = getattr(value, NAME, None) if isinstance(value, Tensor) else None
            if found is not None:
                setattr(result, NAME, found)
                setattr(result, _EMBEDDED, operation == "embedding" or is_embedded(value))
                break
    return result


def is_embedded(value: Any) -> bool:
    """Whether a constant was looked up in a table by index."""
    return getattr(value, _EMBEDDED, False)


def module_on_stack(modules: Mapping[int, str]) -> str:
    """Name of the module whose code is running, found on the Python stack."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",):  # to ask for its values is slow
            this = frame.f_locals.get("self")
            if isinstance(this, nn.Module) and id(this) in modules:
                return modules[id(this)]
        frame = frame.f_back
    return ""


def weight_on_stack(value: Tensor, modules: Mapping[int, str]) -> str | None:
    """The name of a weight that was put into its module just now, as offloaded ones are."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        this = frame.f_locals.get("self")
        if isinstance(this, nn.Module) and id(this) in modules:
            for own, held in (*this._parameters.items(), *this._buffers.items()):
                if held is value:
                    return ".".join(filter(None, (modules[id(this)], own)))
        frame = frame.f_back
    return None


@dataclass(frozen=True)
class EnteredConstant:
    """A constant that entered as line `site` of the books: its name, and two numbers that tell it from others."""

    site: int
    name: str
    value: tuple[float, float]


def fingerprint_constant(value: Any) -> tuple[float, float]:
    if not isinstance(value, Tensor):
        return float(value), 0.0
    with untraced(), torch.no_grad():
        numbers = value.detach().double().nan_to_num().flatten()
        return float(numbers.sum()), float(numbers @ torch.arange(1, len(numbers) + 1).to(numbers))
