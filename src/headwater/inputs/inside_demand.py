"""Which parts inside a model are asked for: heads, neurons, layers, attention's roles, and modules by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..errors import UnknownName, UsageError
from ..results.inside import KINDS
from .module_names import is_pattern, say_layers
from .places import is_stack
from .walking import named_modules


@dataclass(frozen=True)
class InsideDemand:
    """`kinds` are found by operation; `modules` are dotted names or patterns of them."""

    kinds: frozenset[str]
    modules: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: str | Sequence[str] | None) -> InsideDemand | None:
        """What was passed as `inside=`; None if nothing is asked for."""
        if given is None:
            return None
        names = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
        if not all(isinstance(name, str) for name in names):
            raise UsageError(f"inside= takes names: {', '.join(KINDS)}, or those of modules, not {given!r:.60}.")
        found = cls(frozenset(names) & {*KINDS}, tuple(name for name in names if name not in KINDS))
        return found if found.kinds or found.modules else None

    def find_modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """The modules that were named."""
        known = {name: module for name, module in named_modules(model) if name}
        found: dict[str, nn.Module] = {}
        for one in self.modules:
            matching = {name: known[name] for name in known if name == one or fnmatchcase(name, one)}
            if not matching:
                kinds = () if is_pattern(one) else KINDS
                raise UnknownName("part inside the model", one, [*kinds, *known], hint=say_layers(model))
            found |= matching
        return found


def find_stacks(model: nn.Module) -> dict[str, list[nn.Module]]:
    """The stacks of layers by name: lists of modules that lie in no other such list."""
    found: dict[str, list[nn.Module]] = {}
    for name, module in named_modules(model):
        if is_stack(module) and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = list(module.children())
    return found


def find_layer(stacks: dict[str, list[Any]], module: str) -> tuple[str, int] | None:
    """The stack that a module lies in, and the number of its layer there."""
    for name, layers in stacks.items():
        rest = module.removeprefix(f"{name}.") if name else module
        number = rest.split(".")[0]
        if (rest != module or not name) and number.isdigit() and int(number) < len(layers):
            return name, int(number)
    return None
