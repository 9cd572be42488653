"""GATE-rule: in a product of two signals the gate is a constant, as attention is for the AH-rule, or takes a share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from .attention.registry import Softmax
from .attention.token import boost_tokens
from .attention.variant import Variant, variant_of
from .call import Call, is_signal
from .gated import share_with_gate
from .gradients import value_of
from .handlers import on
from .lineage import Kind, carry, lineage, lineage_kind, mark, mark_normalised
from .linear import add_product, linear, times_matrix
from .norm import denominator_of, over_sum
from .operands import Place, operand_places, run_with, share_product
from .ratio import settle_ratio
from .rule_set import named_of
from .scope import Scope
from .shares import parse_gate


@on("mul", rules=("ah", "ln", "act", "gate"))
def multiply(scope: Scope, call: Call) -> Any:
    """a * b with both alive passes relevance twice if left to its gradient."""
    a, b = call.args
    if not (is_signal(a) and is_signal(b)):
        signal = a if is_signal(a) else b
        settle_ratio(signal)
        result = call.run()
        if is_size(b if signal is a else a):
            mark_normalised(result)
        return carry(result, signal, same_elements=result.shape == signal.shape)
    by_hand = lineage(a).root is lineage(b).root
    kinds, root = (lineage_kind(a), lineage_kind(b)), lineage(a).root
    if not by_hand and not call.inplace and (weights := times_inverse(scope, call, a, b)) is not None:
        return weights
    share = decide_split(scope, a, b, "act" if by_hand else "gate")
    if isinstance(share, float) and not (by_hand or call.inplace):
        gated = share_with_gate(a, b, share, scope.pending)
        if gated is not None:
            mark(gated, Kind.LINEAR)
            return gated
    for factor, constant in ((a, Split.FIRST_CONSTANT), (b, Split.SECOND_CONSTANT)):
        if share is not constant:
            settle_ratio(factor)
    result = share_factors(call, a, b, share)
    if by_hand:
        mark(result, max(Kind.ACTIVATED, kinds[0], kinds[1]), root)
    else:
        mark(result, Kind.LINEAR)
    return mark_normalised(result) if Kind.NORM in kinds else result


def is_size(factor: Any) -> bool:
    """Whether a factor is one over what a normalisation divides by."""
    return isinstance(factor, Tensor) and lineage_kind(factor) is Kind.NORM


def times_inverse(scope: Scope, call: Call, a: Tensor, b: Tensor) -> Any:
    """exp(s) * (1 / sum) is exp(s) / sum."""
    for above, inverse in ((a, b), (b, a)):
        below = denominator_of(inverse)
        if below is not None and lineage_kind(above) is lineage_kind(below):
            return over_sum(scope, call, above, below, inverse)
    return None


class Split(Enum):
    """How a product of two signals is shared, where it is not by numbers."""

    FIRST_CONSTANT = "the first is constant"
    SECOND_CONSTANT = "the second is constant"
    GRADIENT = "the product is left to its gradient"


HALF = 0.5  # what each takes of a product of two signals of one kind
Share = Split | float  # a number is what the first takes; the second takes the rest


def gate_share(scope: Scope) -> float:
    """What the gate takes of a product in the module whose code is running."""
    given = scope.rules.gate
    return parse_gate(given if isinstance(given, str) else named_of(given, scope.where(), "constant"))


def decide_split(scope: Scope, a: Tensor, b: Tensor, rule: str) -> Share:
    """How `a * b` is shared by a rule, "gate" or "act".

    The factor that is more surely a gate is the constant one, or takes the gate's share.
    """
    gate = a if lineage_kind(a) > lineage_kind(b) else b
    which = Split.FIRST_CONSTANT if gate is a else Split.SECOND_CONSTANT
    if lineage_kind(gate) is Kind.NORM:  # a size that multiplies is held as one that divides is
        return which if scope.applies("ln") else Split.GRADIENT
    if not scope.applies(rule):
        return Split.GRADIENT
    if lineage_kind(gate) is Kind.WEIGHTS and (rule == "ah" or scope.variant.softmax is Softmax.LINEAR):
        return which
    if lineage_kind(a) == lineage_kind(b):
        return HALF
    share = gate_share(scope) if rule == "gate" else 0.0
    if share == 0.0:
        return which
    return share if gate is a else 1 - share


def share_factors(call: Call, a: Tensor, b: Tensor, share: Share) -> Any:
    """The product as the model computes it, with relevance going to the factors that are not constant."""
    if share is Split.GRADIENT:
        return call.run()
    if share is Split.SECOND_CONSTANT:
        return call.func(a, b.detach())
    if isinstance(share, float):
        return a.copy_(_Shared.apply(a.clone(), b, share)) if call.inplace else _Shared.apply(a, b, share)
    return a.copy_(a.detach().clone() * b) if call.inplace else call.func(a.detach(), b)


class _Shared(torch.autograd.Function):
    """a * b; `share` of its relevance goes to a, the rest to b."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, share: float) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.share = share
        return a * b

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        a, b = ctx.saved_tensors
        first = gradients[0] * (ctx.share * b)  # which may be fewer numbers than gradients
        second = gradients[0] * ((1 - ctx.share) * a)
        return first.sum_to_size(a.shape), second.sum_to_size(b.shape), None


@on("matmul", rules=("ah", "ln", "gate", "gamma", "output", "token"))
@on(
    "mm",
    "bmm",
    "mv",
    "dot",
    "rmatmul",
    "einsum",
    "tensordot",
    "inner",
    "_grouped_mm",
    "grouped_mm",
    rules=("ah", "ln", "gate", "token"),
)
def contraction(scope: Scope, call: Call) -> Any:
    """A sum of products. Two signals in it share as in a product; a softmax among them is attention."""
    operands = operand_places(call)
    alive = [place for place in operands if is_signal(operands[place])]
    if len(alive) == 1 and (weights := held_weights(scope, operands)) is not None:
        return boost_tokens(scope, call, weights, alive[0]).run()
    if alive == [(0, -1)] and call.name == "matmul" and call.args[1].dim() == 2 and call.args[0].dim() > 2:
        return times_matrix(scope, call, *call.args)
    if len(alive) < 2 or (len(alive) > 2 and not scope.applies("gate")):
        return call.run()
    if len(alive) > 2:
        return contraction_of_many(scope, call, operands, alive)
    share = decide_contraction(scope, *(operands[place] for place in alive))
    if share is Split.GRADIENT:
        return call.run()
    mixed = mixture(scope, call, alive, share)
    if share in (Split.FIRST_CONSTANT, Split.SECOND_CONSTANT):
        return mixed
    with torch.no_grad():
        value = call.run()
    return value_of(value, gradient_of=mixed)


def mixture(scope: Scope, call: Call, places: list[Place], share: Share | Variant) -> Any:
    """A sum of products of two signals: the one with the other held constant, or of each its part (the first's)."""
    operands = operand_places(call)
    first, second = places
    if isinstance(share, Variant):
        weights, values = places if lineage_kind(operands[first]) is Kind.WEIGHTS else places[::-1]
        return share.mix(boost_tokens(scope, call, weights, values), weights, values)
    if isinstance(share, float):
        return share_product(call, first, second, share)
    held, other = places if share is Split.FIRST_CONSTANT else places[::-1]
    if lineage_kind(operands[held]) is Kind.WEIGHTS:
        call = boost_tokens(scope, call, held, other)
    return run_with(call, {held: operands[held].detach()})


def held_weights(scope: Scope, operands: dict[Place, Any]) -> Place | None:
    """Where among the operands weights of attention stand that are held constant, if sums over tokens have a rule."""
    if "token" not in scope.rules:
        return None
    origins = {place: scope.cuts.of(value) for place, value in operands.items() if not is_signal(value)}
    return next((place for place, origin in origins.items() if origin is not None and origin.weights), None)


def contraction_of_many(scope: Scope, call: Call, operands: dict[Place, Any], alive: list[Place]) -> Any:
    """A sum of products of three signals or more: gates are constants, the others share.

    With a share, each gate takes it against the rest for each other factor; with half, all take the same.
    """
    share, least = gate_share(scope), min(lineage_kind(operands[place]) for place in alive)
    most = Kind.SHIFTED if share else least
    sharing = [place for place in alive if lineage_kind(operands[place]) <= most] or alive
    with torch.no_grad():
        value = call.run()
    held = {place: operands[place].detach() for place in alive}
    parts = torch.stack([run_with(call, {p: own for p, own in held.items() if p != place}) for place in sharing])
    gates = [lineage_kind(operands[place]) > least for place in sharing]
    if share == HALF or not any(gates) or all(gates):
        return value_of(value, gradient_of=parts.mean(0))
    weights = parts.new_tensor([share if gate else 1 - share for gate in gates])
    return value_of(value, gradient_of=torch.tensordot(weights / weights.sum(), parts, 1))


@on("bilinear", rules=("ah", "ln", "gate"))
def bilinear(scope: Scope, call: Call) -> Any:
    """a W b + c: the bias is no part of the product."""
    bias = (*call.args, None)[3]
    product = contraction(scope, replace(call, args=call.args[:3], kwargs={}))
    return product if bias is None else plus_bias(scope, call, product, bias)


def plus_bias(scope: Scope, call: Call, product: Tensor, bias: Tensor) -> Tensor:
    with torch.no_grad():
        value = call.run()
    with scope:
        total = product + bias
    return value_of(value, gradient_of=total)


@on("linear", rules=("ah", "ln", "gate", "gamma", "output"))
def linear_layer(scope: Scope, call: Call) -> Any:
    """x W^T + b. Weights that are made from the input are no weights but a second signal: a sum of products of two."""
    if not is_signal(call.args[1]):
        return linear(scope, call)
    bias = (*call.args, None)[2]
    product = contraction(scope, replace(call, args=call.args[:2], kwargs={}))
    return product if bias is None else plus_bias(scope, call, product, bias)


def decide_contraction(scope: Scope, a: Tensor, b: Tensor) -> Share | Variant:
    """How a sum of products is shared: weights times values by the variant of attention, all else as in a product.

    Scores are a sum of products of two signals of one kind. The variant says what the queries, which stand first, take.
    """
    variant = variant_of(scope)
    if Kind.WEIGHTS in (lineage_kind(a), lineage_kind(b)):
        if "ah" not in scope.rules:
            return Split.GRADIENT
        held = decide_split(scope, a, b, "ah")
        return (
            held if Kind.NORM in (lineage_kind(a), lineage_kind(b)) or variant.softmax is Softmax.CONSTANT else variant
        )
    share = decide_split(scope, a, b, "gate")
    alike = isinstance(share, float) and lineage_kind(a) == lineage_kind(b) and "ah" in scope.rules
    if not alike or variant.query_part == 0.5:
        return share
    constants = {0.0: Split.FIRST_CONSTANT, 1.0: Split.SECOND_CONSTANT}
    return constants.get(variant.query_part, variant.query_part)


@on("addmm", rules=("ah", "ln", "gate", "gamma", "output"))
@on("baddbmm", "addbmm", "addmv", rules=("ah", "ln", "gate"))
def add_contraction(scope: Scope, call: Call) -> Any:
    """A product that something is added to; two signals in it share as in any other."""
    base, a, b = call.args
    if call.inplace:
        on_copy = replace(call, func=copying(call.func), inplace=False, args=(scope.as_it_was(call), a, b))
        return base.copy_(add_contraction(scope, on_copy))
    share = decide_contraction(scope, a, b) if is_signal(a) and is_signal(b) else Split.GRADIENT
    if share is Split.GRADIENT:
        return add_product(scope, call)
    with torch.no_grad():
        value = call.run()
    product, beta = _WITHIN[call.name], call.kwargs.get("beta", 1)
    inner = replace(call, func=product, args=(a, b), kwargs={})
    mixed = mixture(scope, inner, list(operand_places(inner)), share) * call.kwargs.get("alpha", 1)
    mixed = mixed.sum(0) if call.name == "addbmm" else mixed
    result = value_of(value, gradient_of=mixed + beta * base if is_signal(base) else mixed)
    if not is_signal(base):
        scope.source(result, base, call.name, sign=float(beta))
    return result


_WITHIN: dict[str, Any] = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv, "addbmm": torch.bmm}


def copying(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An operation that writes into its first operand, on a copy of that."""
    return lambda first, *rest, **more: func(first.clone(), *rest, **more)


@on("linalg_solve_triangular", "linalg_solve", "linalg_inv", "inverse", "linalg_pinv", "pinverse", rules=("gate",))
def solve(scope: Scope, call: Call) -> Any:
    """The solution X of A X = B is linear in B if A is a constant. A is held constant as attention weights are.

    Left to their gradients, A and B together pass on nothing: X = A^-1 B grows with B and falls with A by the same
    amount.
    """
    matrix, *rest = call.args
    if not is_signal(matrix) or not scope.applies("gate"):
        return call.run()
    return call.func(matrix.detach(), *rest, **call.kwargs)


@on("glu", rules=("gate",))
def linear_unit_with_gate(scope: Scope, call: Call) -> Any:
    """glu(x) = a * sigmoid(b)."""
    result = call.run()
    if not scope.applies("gate"):
        return result
    a, b = call.args[0].chunk(2, call.get(1, "dim", -1))
    share = gate_share(scope)
    if share:
        gate = torch.sigmoid(b)
        slope = ((gate - 0.5) / b).nan_to_num(0.25).detach()
        linear = (1 - share) * a * gate.detach() + share * a.detach() * (b * slope)
        scope.source(linear, 0.5 * share * a, "sigmoid(0)", by_rule=True)
    else:
        linear = a * torch.sigmoid(b).detach()
    return value_of(result, gradient_of=linear)


@on("lerp", rules=("ah", "ln", "act", "gate", "residual"))
def interpolate(scope: Scope, call: Call) -> Any:
    """start + weight * (end - start), taken apart so that its product and its constants meet their rules."""
    start, end, weight = call.args
    if is_signal(start) and is_signal(end) and not is_signal(weight):
        return call.run()
    with torch.no_grad():
        value = call.func(start.clone(), end, weight)
    before = scope.as_it_was(call)
    with scope:
        line = before + weight * (end - before)
    result = value_of(value, gradient_of=line)
    return start.copy_(result) if call.inplace else result


@on("addcmul", "addcdiv", rules=("ah", "ln", "act", "gate", "residual"))
def sum_and_product(scope: Scope, call: Call) -> Any:
    """input + value * a * b, or value * a / b: taken apart, so that each part meets its rule."""
    base, a, b = call.args
    with torch.no_grad():
        value = call.func(base.clone(), a, b, **call.kwargs)
    before = scope.as_it_was(call)
    with scope:
        inner = a * b if call.name == "addcmul" else a / b
        linear = before + call.kwargs.get("value", 1) * inner
    result = value_of(value, gradient_of=linear)
    return base.copy_(result) if call.inplace else result
