"""Which expert of a mixture an operation belongs to: its matrix is a slice of one parameter that holds all experts'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from .call import Call, is_signal
from .shape_ops import MOVE, STAY

_EXPERT = "_headwater_expert"  # which expert a result is of, until it is weighed
_ALONG = frozenset((*STAY, *MOVE, "dropout", "add"))  # an expert's result stays one through these
MATRICES = {"linear": 1, "addmm": 2, "matmul": 1, "mm": 1, "bmm": 1}  # the place of the matrix


class Expert(NamedTuple):
    """One expert: its number, and how many there are in its layer."""

    number: int
    among: int


def find_stacked(model: nn.Module) -> list[Tensor]:
    """Parameters that may hold one matrix for each expert."""
    return [one for one in model.parameters() if one.dim() == 3 and not one.is_meta and len(one) > 1]


def find_expert(call: Call, stacked: Sequence[Tensor]) -> Expert | None:
    """The expert whose matrix a linear operation multiplies by, if it is a slice of such a parameter."""
    place = MATRICES.get(call.name)
    matrix = call.args[place] if place is not None and len(call.args) > place else None
    if not isinstance(matrix, Tensor) or is_signal(matrix) or matrix.dim() != 2:
        return None
    for one in stacked:
        step = one.stride(0) * one.element_size()
        number, rest = divmod(matrix.data_ptr() - one.data_ptr(), step)
        if 0 <= number < len(one) and not rest and matrix.numel() == one[0].numel():
            return Expert(number, len(one))
    return None


def expert_of(tensor: Any) -> Expert | None:
    """The expert that a tensor is the result of, where it was not weighed yet."""
    found: Expert | None = getattr(tensor, _EXPERT, None)
    return found


def expert_after(call: Call, signals: Sequence[Tensor], here: Expert | None) -> Expert | None:
    """The expert that a result is of: that of the operation, or of what it was made of."""
    if here is not None:
        return here
    return expert_of(signals[0]) if len(signals) == 1 and call.name in _ALONG else None


def mark_expert(tensor: Tensor, expert: Expert | None) -> None:
    if expert is not None:
        setattr(tensor, _EXPERT, expert)
    elif hasattr(tensor, _EXPERT):
        delattr(tensor, _EXPERT)


def find_weighing(call: Call) -> Mapping[int, Expert]:
    """Where in a product the router's weights stand that an expert's result is multiplied by."""
    if call.name != "mul" or len(call.args) < 2:
        return {}
    left, right = expert_of(call.args[0]), expert_of(call.args[1])
    if (left is None) == (right is None):
        return {}
    place, expert = (1, left) if left is not None else (0, right)
    return {place: expert} if expert is not None and is_signal(call.args[place]) else {}
