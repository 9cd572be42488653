"""What a package outside of Headwater adds to its rules: variants of attention, and rules for operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import wrap_torch_function

from headwater.rules import (
    Call,
    Place,
    Scope,
    Softmax,
    Variant,
    is_signal,
    on,
    register_variant,
    share_product,
    value_of,
)
from headwater.rules.attention.facts import Even
from headwater.rules.attention.secant import weigh_by_secant
from headwater.rules.lineage import lineage
from headwater.rules.operands import operand_places, run_with


@register_variant
class Mirror(Variant):
    """`ah=half` once more, in the fewest lines: nothing is said of fused attention, or of a cap."""

    name = "mirror"
    softmax = Softmax.GRADIENT

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        mixed: Tensor = share_product(call, weights, values)
        return mixed


@register_variant
class Thirds(Variant):
    """Of what scores make of even attention, queries, keys and values take a third each."""

    name = "thirds"
    softmax = Softmax.LINEAR

    def weigh(self, scope: Scope, scores: Tensor, value: Tensor, axis: int, base: Tensor | None) -> Tensor:
        return weigh_by_secant(scope, scores, value, axis, base)

    def mix(self, call: Call, weights: Place, values: Place) -> Tensor:
        operands = operand_places(call)
        own, root = operands[weights], lineage(operands[weights]).root
        assert isinstance(root, Even)
        to_values = (own.detach() + 2 * root.weights) / 3
        brought: Tensor = run_with(
            call, {weights: 2 / 3 * (root.line - root.weights), values: operands[values].detach()}
        )
        seen: Tensor = run_with(call, {weights: to_values})
        return seen + brought


@on(torch.i0, torch.special.i0)
def bessel(scope: Scope, call: Call) -> Any:
    """i0(x) is i0(0) = 1 plus its input times a constant."""
    x, value = call.args[0], call.func(call.args[0].detach().clone())
    result = value_of(value, gradient_of=x * ((value - 1) / x).nan_to_num(0.0).detach())
    scope.source(result, 1.0, "i0(0)")
    return result.copy_(value) if call.inplace else result


@torch.library.custom_op("outside::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    """An operation that torch does not have."""
    return x**3


@cube.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def keep_input(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def triple(ctx: Any, gradient: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    slope: Tensor = 3 * x**2 * gradient
    return slope


cube.register_autograd(triple, setup_context=keep_input)


@on("cube")
def cube_rule(scope: Scope, call: Call) -> Any:
    """x^3 is x times a constant, x^2. Its gradient passes on three times what there is."""
    (x,) = call.args
    return value_of(call.run(), gradient_of=x * x.detach().square()) if scope.applies("act") else call.run()


@wrap_torch_function(lambda x, gain: (x, gain))
def steer(x: Tensor, gain: Tensor) -> Tensor:
    """A function in Python: x exp(gain)."""
    return x * torch.expm1(gain)


@on(steer)
def steer_rule(scope: Scope, call: Call) -> Any:
    """The gain is a gate whatever it is made of."""
    x, gain = call.args
    return call.func(x, gain.detach()) if is_signal(gain) else call.run()
