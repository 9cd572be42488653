"""Operations that only move or cast a signal: what it has been through goes along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from .call import Call, find_signal, is_signal
from .gradients import value_of
from .handlers import on
from .lineage import Kind, carry, lineage_kind, mark
from .linear import larger, write_part
from .ratio import scale_by_constant
from .residual import add_rows
from .scope import Scope


def may_reorder_samples(call: Call) -> bool:
    """Whether rows of the first axis may end up elsewhere, so that shapes no longer tell whose they are."""
    if call.name == "getitem":
        index = call.args[1][0] if isinstance(call.args[1], tuple) and call.args[1] else call.args[1]
        return isinstance(index, (Tensor, list)) or (isinstance(index, slice) and (index.step or 1) != 1)
    if call.name in ("masked_select", "take", "index"):
        return True
    if call.name in ("flip", "roll", "index_select", "gather", "take_along_dim", "repeat_interleave", "sort", "topk"):
        axes = call.get(_PLACE.get(call.name, 1), _AXIS.get(call.name, "dim"))
        size = call.args[0].dim()
        if axes is None:
            axes = 0 if call.name in _FLAT else -1
        axes = axes if isinstance(axes, (tuple, list)) else (axes,)
        return any(axis % max(size, 1) == 0 for axis in axes)
    return False


_AXIS = {"flip": "dims", "roll": "dims"}
_PLACE = {"roll": 2, "repeat_interleave": 2, "topk": 2, "take_along_dim": 2}  # of the axis among the arguments
_FLAT = ("roll", "take_along_dim")  # without an axis they go through all elements

STAY = """
to type type_as float double half bfloat16 cuda cpu clone contiguous neg negative positive
nan_to_num dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
""".split()

MOVE = """
view reshape reshape_as view_as transpose permute movedim moveaxis t flatten unflatten squeeze unsqueeze expand
expand_as getitem narrow select chunk split split_with_sizes tensor_split unbind repeat repeat_interleave roll flip
tile broadcast_to masked_select diagonal tril triu
""".split()

_CHOOSE = """
topk sort gather index_select index take take_along_dim max min amax amin
""".split()


@on(*STAY, rules=("act",))
def elements_stay(scope: Scope, call: Call) -> Any:
    """A copy, a cast or dropout: every element stays in its place, and what is known of it stays known."""
    signal = find_signal(call)
    before = getattr(signal, _BEFORE, None)
    result = call.run()
    if signal is None:
        return result
    if before is not None and not in_a_byte(result):
        result = brought_back(scope, before, result)
    elif in_a_byte(result):
        setattr(result, _BEFORE, before if in_a_byte(signal) else signal)
    return carry(result, signal, same_elements=True)


_BEFORE = "_headwater_before"


def in_a_byte(tensor: Tensor) -> bool:
    """Whether numbers are of one of the types float8, which nothing can be computed in."""
    return tensor.is_floating_point() and tensor.dtype.itemsize == 1


def brought_back(scope: Scope, before: Tensor, result: Tensor) -> Tensor:
    """What was rounded to float8 and is a usual number again: what it was before, times a constant.

    Its gradient does not go through float8, which would round it, too.
    """
    if scope.applies("act"):
        return scale_by_constant(before, result.detach(), (0.0, 0.0), scope.pending)
    return value_of(result, gradient_of=before.to(result.dtype))


@on(*MOVE)
def elements_move(scope: Scope, call: Call) -> Any:
    """Another shape or order of the same elements: relevance goes along."""
    signal = find_signal(call)
    scope.books.scrambled |= may_reorder_samples(call)
    result = call.run()
    return carry(result, signal, same_elements=False) if signal is not None else result


@on(*_CHOOSE)
def choose_elements(scope: Scope, call: Call) -> Any:
    """Some of the elements: relevance goes to those that are chosen."""
    if call.name in ("max", "min") and len(call.args) > 1 and isinstance(call.args[1], Tensor):
        return larger(scope, replace(call, name=f"{call.name}imum"))
    scope.books.scrambled |= may_reorder_samples(call)
    return mark_choice(call, call.run())


@on("scatter_add", "index_add", rules=("residual",))
@on("scatter")
def scatter_elements(scope: Scope, call: Call) -> Any:
    """The other way round: chosen places are written into, where constants may stand, or come from."""
    return mark_choice(call, write_part(scope, call, add_rows))


def mark_choice(call: Call, result: Any) -> Any:
    """A softmax from which some entries are chosen is a router: a gate, not attention."""
    signals = [v for v in (*call.args, *call.kwargs.values()) if is_signal(v)]
    if len(signals) == 1:
        carry(result, signals[0], same_elements=False)
        for part in (result,) if isinstance(result, Tensor) else tuple(result):
            if lineage_kind(part) is Kind.WEIGHTS:
                mark(part, Kind.SHIFTED)
    return result
