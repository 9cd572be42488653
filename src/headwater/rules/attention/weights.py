"""What is known of attention weights stays known when they pass through a mask, a cast or a slice.

With `ah=secant` that is even attention and the linear function of the scores. Before a softmax by hand is complete, it
is the scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import gate, linear, norm, shape_ops  # noqa: F401  (their handlers are what is followed)
from ..call import Call, is_signal
from ..handlers import FOLLOWED, OPERATIONS, Handler
from ..lineage import Kind, lineage, lineage_kind, mark
from ..operands import Place, operand_places, run_with
from ..scope import Scope
from ..shape_ops import MOVE, STAY
from .facts import Even, Exponent, exponent_of, with_exponent

_WEIGHED = ("mul", "div", "masked_fill", "where")  # by what is constant, or with nothing in place of some
_JOINED = ("add", "sub", "rsub", "cat", "stack")
_SUMMED = ("sum", "mean")


def follow_weights(handler: Handler) -> Handler:
    """The same handler. If its operands are weights and it is linear in them, its result is marked as weights, too."""

    def follow(scope: Scope, call: Call) -> Any:
        evens, exponent = even_among(call), exponent_after(call)
        made = (
            Even(*(apply_to_part(call, evens, part) for part in ("line", "weights")))
            if is_linear_in_weights(call, evens)
            else None
        )
        result = handler(scope, call)
        if made is not None and not is_new(result, evens):
            mark(result, Kind.WEIGHTS, root=made)
        elif made is None and evens and isinstance(result, Tensor) and not is_new(result, evens):
            mark(result, lineage_kind(result))  # what was known of the weights is not so of what was made of them
        if exponent is not None:
            with_exponent(result, exponent)
        return result

    return follow


def even_among(call: Call) -> dict[Place, Even]:
    found = {place: lineage(value).root for place, value in operand_places(call).items() if is_signal(value)}
    roots = {place: root for place, root in found.items() if isinstance(root, Even)}
    if call.name == "div":  # what divides is held constant
        roots.pop((1, -1), None)
    return roots


def is_new(result: Any, evens: dict[Place, Even]) -> bool:
    """Whether the handler knows more of the weights: they are a softmax once more, over their own sum."""
    root = lineage(result).root
    return isinstance(root, Even) and not any(root is known for known in evens.values())


def is_linear_in_weights(call: Call, evens: dict[Place, Even]) -> bool:
    """Whether the operation is a linear one of weights alone, with nothing added."""
    if not evens or (call.name in _MANY):
        return False
    if call.name in _JOINED:
        numbers = [value for value in call.args[:2] if isinstance(value, (int, float))]
        return len(evens) == len(operand_places(call)) and (call.name in ("cat", "stack") or not numbers)
    return len(evens) == 1 and is_weighed(call, next(iter(evens)))


def is_weighed(call: Call, place: Place) -> bool:
    """Whether the other operands only weigh the one at `place`."""
    if call.name == "div":
        return place == (0, -1)
    if call.name == "mul":
        return not any(is_signal(value) for other, value in operand_places(call).items() if other != place)
    if call.name == "masked_fill":
        return _is_nothing(call.get(2, "value"))
    if call.name == "where":
        others = [value for number, value in enumerate(call.args) if number != place[0]]
        return all(_is_nothing(value) for value in others if not _is_condition(value))
    return True


def _is_nothing(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _is_condition(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.bool


_MANY = ("chunk", "split", "split_with_sizes", "tensor_split", "unbind")  # several results


def apply_to_part(call: Call, evens: dict[Place, Even], part: str) -> Tensor:
    """What the operation makes of `part` of what is known of the weights."""
    swapped = {place: value.detach() for place, value in operand_places(call).items() if is_signal(value)}
    swapped |= {place: getattr(root, part) for place, root in evens.items()}
    if call.inplace:
        swapped = {place: value.clone() for place, value in swapped.items()}
    made: Tensor = run_with(call, swapped)
    return made


def exponent_after(call: Call) -> Exponent | None:
    """base * exp(scores) times a constant, or with nothing in place of some."""
    operands = operand_places(call)
    found = {place: known for place, value in operands.items() if (known := exponent_of(value)) is not None}
    if len(found) != 1:
        return None
    ((place, known),) = found.items()
    if call.inplace and place != (0, -1):
        return None
    if call.name in STAY:
        return known
    if call.name not in _WEIGHED or not is_weighed(call, place) or (call.name == "div" and is_signal(call.args[1])):
        return None
    base = torch.ones_like(known.scores, requires_grad=False) if known.base is None else known.base
    made = run_with(call, {place: base.clone() if call.inplace else base})
    return replace(known, base=made) if made.shape == base.shape else None


FOLLOWED |= {name: follow_weights(OPERATIONS[name]) for name in (*STAY, *MOVE, *_WEIGHED, *_JOINED, *_SUMMED)}
