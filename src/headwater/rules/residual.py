"""RESIDUAL-rule and TOKEN-rule: in sums of signals, terms that agree with the sum count 1 + gamma times.

Residual sums are sums of different branches (`branches`) at one position: the stream and a block's result, an expert's
result and another's. A reduction over an axis is a sum over tokens where it leaves one vector of features for each
sample, and a sum of experts' (heads', stacked layers') results elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .agreement import AgreeingReduction, AgreeingRows, AgreeingSum, Terms
from .branches import are_terms, feature_axis
from .call import Call, is_signal
from .handlers import on
from .lineage import Kind, lineage_kind
from .rule_set import gamma_of
from .scope import Scope

_NO_FEATURES = (Kind.WEIGHTS, Kind.NORM)  # one attention less another, a size plus another: no vectors of features


def gamma_here(scope: Scope, rule: str) -> float:
    """The gamma of "residual" or "token" in the module whose code is running; 0 if the rule does not act."""
    if rule not in scope.rules:
        return 0.0
    given = getattr(scope.rules, rule)
    return gamma_of(given, scope.where() if isinstance(given, tuple) else None)


def add_branches(scope: Scope, call: Call, signs: tuple[float, float]) -> Any:
    """a + b of two signals, by the rule if they are terms of a residual sum."""
    a, b = call.args
    if not scope.tells_branches or not are_terms(a, b) or {lineage_kind(a), lineage_kind(b)} & {*_NO_FEATURES}:
        return call.run()
    gamma = gamma_here(scope, "residual")
    if not gamma:
        return call.run()
    scope.applies("residual")
    first = a.clone() if call.inplace else a
    terms = Terms([first, b], feature_axis(a, b), gamma, scope.pending)
    result = AgreeingSum.apply(first, b, [run_detached(call)], terms, signs)
    return write_into(a, result, terms) if call.inplace else result


def run_detached(call: Call) -> Tensor:
    """The value of an operation, also of one that writes into its first operand: that stays as it is."""
    target, *rest = call.args
    with torch.no_grad():
        value: Tensor = call.func(target.detach().clone() if call.inplace else target, *rest, **call.kwargs)
    return value.detach()


def write_into(target: Tensor, result: Tensor, terms: Terms) -> Tensor:
    """The end of an operation in place. A term that lies in the same memory is copied before."""
    terms.copy_before_write(target)
    return target.copy_(result)


def reduce_by_rule(scope: Scope, call: Call) -> Any:
    """A sum or mean of a signal over axes, by the rule that it falls under, or as it is."""
    x, axes = call.args[0], reduced_axes(call)
    if not scope.tells_branches or not axes or x.dim() < 3 or lineage_kind(x) in _NO_FEATURES:
        return call.run()
    features = feature_axis(x)
    rule = rule_of_reduction(scope, x, axes, features % x.dim())
    gamma = gamma_here(scope, rule) if rule is not None else 0.0
    if rule is None or not gamma:
        return call.run()
    scope.applies(rule)
    return sum_by_rule(call, axes, Terms([x], features, gamma, scope.pending))


def reduced_axes(call: Call) -> tuple[int, ...]:
    """The axes of a sum or mean, counted from the front; none if it is over all."""
    given = call.get(1, "dim")
    if call.name not in ("sum", "mean") or given is None:
        return ()
    rank = max(1, call.args[0].dim())
    return tuple(axis % rank for axis in (given if isinstance(given, (tuple, list)) else (given,)))


def rule_of_reduction(scope: Scope, x: Tensor, axes: tuple[int, ...], features: int) -> str | None:
    """Which rule a sum over `axes` falls under.

    "token" if one vector of features is left for each sample: the first axis has as many places as there are samples,
    and all other axes but the features' are summed. In a model that has positions before samples, the sum is over the
    first axis, which has the known length. "residual" if it is over one other axis: experts, heads, stacked layers.
    None over features: parts of a norm.
    """
    if features in axes:
        return None
    others = tuple(axis for axis in range(x.dim()) if axis != features)
    if x.shape[0] == scope.books.samples and set(axes) == set(others[1:]):
        return "token"
    if x.dim() == 3 and axes == (0,) and x.shape[:2] == (scope.books.length, scope.books.samples):
        return "token"
    return "residual" if len(axes) == 1 else None


@on("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", rules=("token",))
def pool_positions(scope: Scope, call: Call) -> Any:
    """The mean over all positions of each channel is a sum over tokens; means of neighbours are left as they are."""
    x, size, count = call.args[0], call.get(1, "output_size"), int(call.name[-2])
    whole = all(one == 1 for one in (size if isinstance(size, (tuple, list)) else (size,)))
    if not whole or x.dim() != count + 2 or x.shape[0] != scope.books.samples:
        return call.run()
    gamma = gamma_here(scope, "token")
    if not gamma:
        return call.run()
    scope.applies("token")
    axes = tuple(range(2, x.dim()))
    return sum_by_rule(call, axes, Terms([x], 1 - x.dim(), gamma, scope.pending))


def sum_by_rule(call: Call, axes: tuple[int, ...], terms: Terms) -> Any:
    """A sum or mean of the terms that lie along `axes`."""
    x = call.args[0]
    scale = 1.0 if call.name == "sum" else 1.0 / math.prod(x.shape[axis] for axis in axes)
    return AgreeingReduction.apply(x, [run_detached(call)], terms, axes, scale)


def add_rows(scope: Scope, call: Call) -> Any:
    """Rows of a signal added at places of another (`index_add`, `scatter_add` of whole rows): experts' results."""
    found = rows_added(call)
    gamma = gamma_here(scope, "residual") if found is not None else 0.0
    if found is None or not gamma:
        return call.run()
    scope.applies("residual")
    axis, index, rows = found
    base = call.args[0]
    first = base.clone() if call.inplace else base
    terms = Terms([rows, first] if is_signal(base) else [rows], feature_axis(rows), gamma, scope.pending)
    scale = float(call.kwargs.get("alpha", 1))
    result = AgreeingRows.apply(first, rows, index, [run_detached(call)], terms, axis, scale)
    return write_into(base, result, terms) if call.inplace else result


def rows_added(call: Call) -> tuple[int, Tensor, Tensor] | None:
    """Axis, index and rows, if what is added are whole vectors of features and a signal."""
    source = "source" if call.name == "index_add" else "src"
    axis, index, rows = (call.get(place, name) for place, name in ((1, "dim"), (2, "index"), (3, source)))
    if call.name not in ("index_add", "scatter_add") or not is_signal(rows) or rows.dim() < 2:
        return None
    axis = axis % rows.dim()
    if axis == feature_axis(rows) % rows.dim():
        return None
    if call.name == "index_add":
        return axis, index, rows
    whole = axis == 0 and index.shape == rows.shape == (len(rows), call.args[0].shape[-1]) and index.stride(-1) == 0
    return (axis, index[:, 0], rows) if whole else None
