"""The table of operations: what acts on each, read from the registry."""

from __future__ import annotations

from dataclasses import dataclass

from .handlers import OPERATIONS, RULES_AT


@dataclass(frozen=True)
class OperationRule:
    """An operation by torch's name, the rules that act on it, and the function that does it, with what it says."""

    operation: str
    rules: tuple[str, ...]
    function: str
    summary: str


def list_operations() -> list[OperationRule]:
    """Every operation that has a rule, by name, those of plug-ins too.

    An operation without rules is linear, or only has constants to account for. One that is not listed keeps its
    gradient.
    """
    found = []
    for name, handler in sorted(OPERATIONS.items()):
        lines = (handler.__doc__ or "").strip().splitlines() or [""]
        function = f"{handler.__module__}.{handler.__qualname__}"
        found.append(OperationRule(name, RULES_AT.get(name, ()), function, lines[0]))
    return found
