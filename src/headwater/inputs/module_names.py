"""A module of a model by its dotted name, by a pattern of names, or as the module itself: where a text is explained."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..errors import InputError, UnknownName
from .walking import named_modules

SHOWN = 5  # names in a message


def find_module(model: nn.Module, chosen: Any, more: tuple[str, ...] = ()) -> tuple[str, nn.Module]:
    """The module that was chosen, with its name. `more`: other names that could have been said, for the answer."""
    modules = {name: module for name, module in named_modules(model) if name}
    if isinstance(chosen, nn.Module):
        return name_of_module(modules, chosen), chosen
    if not isinstance(chosen, str):
        raise InputError(
            f"inputs= names what is explained: a module, its dotted name or a pattern of names, not {chosen!r:.40}."
            f"{say_layers(model)}"
        )
    if chosen in modules:
        return chosen, modules[chosen]
    name = match_one(list(modules), chosen) if is_pattern(chosen) else None
    if name is None:
        raise UnknownName("input or module", chosen, [*more, *modules], hint=say_layers(model))
    return name, modules[name]


def name_of_module(modules: dict[str, nn.Module], wanted: nn.Module) -> str:
    for name, module in modules.items():
        if module is wanted:
            return name
    raise InputError("inputs= is a module that is not part of the model.")


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def match_one(names: list[str], pattern: str) -> str | None:
    """The one module that a pattern names: of modules within one another the outermost. None if it names none."""
    found = [name for name in names if fnmatchcase(name, pattern)]
    outer = [name for name in found if not any(name.startswith(f"{other}.") for other in found)]
    if len(outer) > 1:
        shown = ", ".join(map(repr, outer[:SHOWN])) + (", …" if len(outer) > SHOWN else "")
        raise InputError(f"{pattern!r} names {len(outer)} modules: {shown}. What is explained is the output of one.")
    return outer[0] if outer else None


def say_layers(model: nn.Module) -> str:
    """What the model's layers are called: the first and the last of its longest list of modules."""
    stacks = [(name, len(module)) for name, module in named_modules(model) if isinstance(module, nn.ModuleList)]
    if not stacks:
        return ""
    name, count = max(stacks, key=lambda stack: stack[1])
    last = f" to '{name}.{count - 1}'" if count > 1 else ""
    return f" The model's layers are '{name}.0'{last}."
