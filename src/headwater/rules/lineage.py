"""What a signal has been through since it last left a linear layer, so that a product can tell its gate.

`silu(a) * u`: the factor that went through an activation is the gate. `x * (1 + tanh(c * x))`: both factors come from
the same tensor, so this is an activation written out by hand. Both are read off two facts that travel with a tensor.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from torch import Tensor

from .branches import keep_branch

_FIELD = "_headwater_lineage"
_NORMALISED = "_headwater_normalised"

# operations on each element alone, through which a gate stays a gate
ELEMENTWISE = frozenset("sqrt square pow exp sigmoid tanh relu clamp mul div add sub rsub to type float clone".split())


class Kind(IntEnum):
    """Ordered by how surely the tensor is a gate when it meets another signal in a product."""

    LINEAR = 0  # nothing nonlinear since the last linear layer
    ACTIVATED = 1  # through an activation with f(0) = 0
    SHIFTED = 2  # through a sigmoid, softplus, exp, 1 + tanh: f(0) != 0, which only a gate has
    WEIGHTS = 3  # a softmax
    NORM = 4  # a standard deviation, a root of a mean square: what a normalisation divides by


class Lineage(NamedTuple):
    """`root` identifies the tensor from which elementwise operations alone led here."""

    kind: Kind
    root: object


def lineage(tensor: Tensor) -> Lineage:
    found: Lineage | None = getattr(tensor, _FIELD, None)
    return found or mark(tensor, Kind.LINEAR)


def mark(tensor: Tensor, kind: Kind, root: object | None = None) -> Lineage:
    """Set what `tensor` has been through; a new root unless one is given."""
    found = Lineage(kind, root if root is not None else object())
    setattr(tensor, _FIELD, found)
    return found


def lineage_kind(tensor: Tensor) -> Kind:
    found: Lineage | None = getattr(tensor, _FIELD, None)
    return found.kind if found else Kind.LINEAR


def mark_normalised(result: Tensor) -> Tensor:
    """Says of a tensor that a normalisation made it. That stays known through casts, views and constant factors."""
    setattr(result, _NORMALISED, True)
    return result


def is_normalised(tensor: Tensor) -> bool:
    return getattr(tensor, _NORMALISED, False)


def carry(result: Any, source: Tensor, *, same_elements: bool) -> Any:
    """Pass the lineage on through a cast (elements stay where they were) or a view (they do not)."""
    if is_normalised(source):
        for tensor in (result,) if isinstance(result, Tensor) else tuple(result):
            setattr(tensor, _NORMALISED, True)
    if same_elements:
        keep_branch(result, source)
    found: Lineage | None = getattr(source, _FIELD, None)
    if found is None:
        if not same_elements:
            return result
        found = lineage(source)
    elif found.kind is Kind.LINEAR and not same_elements:
        return result  # which nothing says of a tensor, too
    for tensor in (result,) if isinstance(result, Tensor) else tuple(result):
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            mark(tensor, found.kind, found.root if same_elements else None)
    return result


def keep_kind(result: Any, name: str, args: Any) -> Any:
    """Inside somebody's own autograd function no gradient is made, but what a tensor has been through is still noted.

    So the result of that function can be recognised as a gate, which is held constant.
    """
    if name in ELEMENTWISE and args and isinstance(args[0], Tensor) and isinstance(result, Tensor):
        kind = lineage_kind(args[0])
        if kind in (Kind.ACTIVATED, Kind.SHIFTED) and result.shape == args[0].shape:
            mark(result, kind)
    return result
