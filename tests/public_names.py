"""What is public, by its name: the modules that docs/policy.md lists, and all in their `__all__`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def public_modules() -> list[str]:
    """As the page names them."""
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    table = page.partition("## What is public")[2].partition("Public are, too")[0]
    return re.findall(r"`(headwater[\w.]*)`", table)


def public_values() -> dict[str, Any]:
    """Functions and classes, each once, by the first name that it has."""
    found: dict[str, Any] = {}
    for module in map(import_module, public_modules()):
        for name in module.__all__:
            value = getattr(module, name)
            if (inspect.isfunction(value) or inspect.isclass(value)) and value not in found.values():
                found[f"{module.__name__}.{name}"] = value
    return found


def public_functions() -> dict[str, Any]:
    return {name: value for name, value in public_values().items() if inspect.isfunction(value)}


def public_classes() -> dict[str, type]:
    return {name: value for name, value in public_values().items() if inspect.isclass(value)}


def list_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that a class of ours has from our classes. A field that holds a function is neither."""
    fields = getattr(kind, "__dataclass_fields__", {})
    for base in kind.__mro__:
        if base.__module__.startswith("headwater"):
            for name, value in vars(base).items():
                if not name.startswith("_") and name not in fields and is_member(value):
                    yield name, value


def is_member(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """All but the object itself."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    return [one for one in inspect.signature(plain).parameters.values() if one.name not in ("self", "cls")]
