"""The registry: the function that acts for each operation. `@on` enters one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnknownName, UsageError
from .call import Call
from .rule_set import RULES
from .spelling import canonical

Handler = Callable[[Any, Call], Any]  # the scope, and the operation
OPERATIONS: dict[str, Handler] = {}
RULES_AT: dict[str, tuple[str, ...]] = {}  # by operation: the rules that its handler asks for
FOLLOWED: dict[str, Handler] = {}  # the same where scores take part in attention: what is known of weights goes along
SPELLED: dict[str, Callable[[Call], Any]] = {}  # operations of our own, written out in those of torch


def rules_there_are() -> int:
    """Another number when a rule was added or taken away."""
    return hash((*OPERATIONS, *map(id, OPERATIONS.values())))


def on(
    *operations: str | Callable[..., Any], when: str | None = None, rules: Sequence[str] = ()
) -> Callable[[Handler], Handler]:
    """Decorates the rule for operations.

    It works in any package. The rule gets the scope and the call; its result has the model's value, with the gradient
    that relevance takes. Operations of your own are seen, too: those of `torch.library`, and functions in Python to
    which you add `torch.overrides.wrap_torch_function`. Parameters among `call.args` are constants; `is_signal` tells
    what depends on the input. One operation has one such function.

    Args:
        operations: by torch's name ("i0", however it is spelled: `i0_` too) or as functions (`torch.i0`).
        when: the rule (`ah`, `ln`, `act`, `gate`) that the function belongs to: it acts only under methods that have
            this rule, and the operation keeps its gradient under the others. Without it the function acts under every
            method, also `gi`, and asks for itself (`scope.applies("act")`).
        rules: the rules that it asks for, where it asks for itself.

    Returns:
        A decorator, which gives the function back.

    Raises:
        UnknownName: there is no such rule.
        UsageError: an operation has a rule already.

    Example:
        >>> from headwater.rules import on, value_of
        >>> @on(torch.special.i0e, when="act")
        ... def bessel(scope, call):
        ...     '''i0e(x) is i0e(0) = 1 plus its input times a constant.'''
        ...     x, value = call.args[0], call.run().detach()
        ...     result = value_of(value, gradient_of=x * ((value - 1) / x).nan_to_num(0.0).detach())
        ...     scope.source(result, 1.0, "i0e(0)")  # a line of the ledger
        ...     return result
    """
    rules = (*rules, *([when] if when is not None else []))
    for rule in rules:
        if rule not in RULES:
            raise UnknownName("rule", rule, RULES)
    names = [canonical(one if isinstance(one, str) else name_of_operation(one))[0] for one in operations]

    def register(handler: Handler) -> Handler:
        handler = handler if when is None else only_under(when, handler)
        for name in names:
            known = OPERATIONS.setdefault(name, handler)
            if (known.__module__, known.__qualname__) != (handler.__module__, handler.__qualname__):
                raise UsageError(f"the operation {name!r} has a rule already: {known.__module__}.{known.__name__}.")
            OPERATIONS[name], RULES_AT[name] = handler, tuple(rules)
        return handler

    return register


def only_under(rule: str, handler: Handler) -> Handler:
    """The handler where a method has the rule; elsewhere the operation as it is."""

    @functools.wraps(handler)
    def act(scope: Any, call: Call) -> Any:
        return handler(scope, call) if scope.applies(rule) else call.run()

    return act


def name_of_operation(function: Callable[..., Any]) -> str:
    """The name under which the scope meets a function."""
    name: str = getattr(function, "__name__", "")
    if not name:
        raise UsageError(f"a rule acts on an operation, by name or as a function, not on {function!r}.")
    return name


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
