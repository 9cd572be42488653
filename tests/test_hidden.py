"""What may be hidden: the probes that tell an activation and a linear layer by what they do, each on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import drawn

from headwater.rules.modules import (
    PointwiseOnly,
    acts_linearly,
    adds_up,
    around_zero,
    has_own_gradient,
    is_bare,
    is_elementwise,
    is_plain,
    outermost,
    stays,
)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


X = drawn(3, 4, 6)
TWO, PLACES = torch.tensor(2.0, dtype=torch.float64), drawn(6, seed=4)
NEXT = 1  # the neighbour


def beside(x: Tensor) -> Tensor:
    return x.roll(NEXT, -1)


ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "a step": lambda x: (x > 0).to(x),
    "not a number below 0": torch.sqrt,
    "numpy": lambda x: torch.from_numpy(x.numpy() ** 3),
}
MIXED: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "sums": (lambda x: x.cumsum(-1), (0, 1, 2, 3)),
    "a neighbour that is large": (lambda x: x + (beside(x) > 1.1 * X.max()).to(x), (0, 2, 3)),
    "a neighbour that is far below 0": (lambda x: x + (beside(x) < 1.1 * X.min()).to(x), (0, 2, 3)),
    "a neighbour near 0": (lambda x: x + (beside(x).abs() < 0.3 * X.abs().min()).to(x), (1,)),
    "nearly all are large": (lambda x: x + ((x.abs() > X.abs().max()).double().mean() > 0.6), (2,)),
    "one or two are large": (lambda x: x + (0 < (x.abs() > X.abs().max()).double().mean() < 0.15), (3,)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_function_of_each_element_stays(name: str) -> None:
    module = Function(ALONE[name])
    assert all(stays(module, X, module(X), draw) for draw in range(4))


@pytest.mark.parametrize("name", MIXED)
def test_a_function_that_looks_aside_does_not(name: str) -> None:
    """Each draw finds what the others may miss."""
    module, found_by = Function(MIXED[name][0]), MIXED[name][1]
    assert set(found_by) <= {draw for draw in range(4) if not stays(module, X, module(X), draw)}


def test_where_the_input_is_no_number_it_stays_all_the_same() -> None:
    x = X.clone()
    x[0, 0, 0] = torch.nan
    assert all(stays(Function(torch.tanh), x, torch.tanh(x), draw) for draw in range(4))


def test_where_all_is_zero_others_are_not() -> None:
    module, x = Function(lambda x: x.cumsum(-1)), torch.zeros_like(X)
    assert not any(stays(module, x, module(x), draw) for draw in (0, 2))


def test_others_are_larger_in_size_wherever_the_input_lies() -> None:
    x = -100 * X.abs() - 1
    module = Function(lambda y: y + (beside(y).abs() > 1.1 * x.abs().max()).to(y))
    assert not any(stays(module, x, module(x), draw) for draw in (0, 2, 3))


def test_a_function_of_each_element_is_told_by_its_operations_and_by_its_values() -> None:
    """Each alone would be mistaken: a list shows no operation, and a rare case no value."""
    for name, function in {**ALONE, **POINTWISE}.items():
        if name not in ("numpy", "not a number below 0"):
            assert is_elementwise(Function(function), X, function(X))
    assert not is_elementwise(Function(by_a_list), X, by_a_list(X))
    assert watched(by_a_list)
    assert not is_elementwise(Function(now_and_then), X, now_and_then(X))
    assert all(stays(Function(now_and_then), X, now_and_then(X), draw) for draw in range(4))


def by_a_list(x: Tensor) -> Tensor:
    return x * x.tolist()[0][0][0]


def now_and_then(x: Tensor) -> Tensor:
    return torch.tanh(x) + (x.sum() > 1e6)


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "many": lambda x: torch.where(x > 0, x, torch.expm1(x) * 0.5) + x.clone(),
    "a number": lambda x: x * TWO,
    "a cast": lambda x: x.float().double(),
    "a number made inside": lambda x: x * torch.full((1,), 2.0),
}
ELSE: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum": lambda x: x + x.sum(),
    "another order": lambda x: x.flip(-1),
    "by place": lambda x: x * drawn(6, seed=4),
    "by place, made before": lambda x: x * PLACES,
    "by place, made inside": lambda x: x * torch.arange(6),
    "by a single element": lambda x: x * x[0, 0, 0],
    "by chance": lambda x: F.dropout(x, 0.5, True),
    "a product of matrices": lambda x: x @ x.mT @ x,
    "made without it": lambda x: torch.full(x.shape, 2.0),
}


def watched(function: Callable[[Tensor], Tensor]) -> bool:
    watch: Any = PointwiseOnly(X)
    with watch:
        function(X)
    return bool(watch.holds)


@pytest.mark.parametrize("name", [*POINTWISE, *ELSE])
def test_operations_on_single_elements_are_told_from_others(name: str) -> None:
    assert watched({**POINTWISE, **ELSE}[name]) is (name in POINTWISE)


WEIGHT, BIAS = drawn(5, 6, seed=6), drawn(5, seed=7)


def affine(x: Tensor) -> Tensor:
    return F.linear(x, WEIGHT, BIAS)


BENT: dict[str, Callable[[Tensor], Tensor]] = {
    "a square": lambda x: affine(x) + 1e-6 * affine(x * x),
    "one sign alone": lambda x: affine(torch.relu(x)),
    "large numbers are cut": lambda x: affine(x.clamp(-20, 20)),
    "small numbers are cut": lambda x: affine(F.hardshrink(x, 0.02)),
    "a sum of all": lambda x: affine(x / (1 + x.abs().sum())),
}


def test_a_linear_function_adds_up() -> None:
    assert acts_linearly(Function(affine), X, affine(X), BIAS)
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Linear(6, 5).to(dtype).requires_grad_(False)
        assert acts_linearly(layer, X.to(dtype), layer(X.to(dtype)), layer.bias)
    assert adds_up(Function(affine), X, affine(X) - BIAS, BIAS, -2.0)


def test_what_is_linear_is_so_for_any_numbers() -> None:
    """Nothing at all, a single number, very small and very large ones."""
    assert acts_linearly(Function(lambda x: 0 * affine(x)), X, 0 * affine(X), 0 * BIAS)
    one = torch.ones(1, 1, dtype=X.dtype)
    for x in (one, -one):
        assert acts_linearly(Function(lambda x: 2 * x), x, 2 * x, 0 * one)
    for size in (1e-3, 1.0, 1e3):
        x = size * X
        assert acts_linearly(Function(affine), x, affine(x), BIAS)
        for bent in (
            Function(lambda x, size=size: affine(x.clamp(-20 * size, 20 * size))),
            Function(lambda x, size=size: affine(F.hardshrink(x, 0.02 * size))),
        ):
            assert not acts_linearly(bent, x, bent(x), BIAS)


def test_a_bend_where_the_input_is_small_is_seen() -> None:
    x = X.clone()
    x[..., 0] = 1e-3
    bent = Function(lambda x: affine(x) + F.hardshrink(x[..., :1], 0.5))
    assert not acts_linearly(bent, x, bent(x), BIAS)


@pytest.mark.parametrize("name", BENT)
def test_a_bent_one_does_not(name: str) -> None:
    module = Function(BENT[name])
    bias = module(torch.zeros(1, 6, dtype=X.dtype))
    assert not acts_linearly(module, X, module(X), bias)


class WithGradient(torch.autograd.Function):
    """x W^T + b whose gradient is `factor` times its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return affine(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.factor * gradients[0] @ WEIGHT, None


@pytest.mark.parametrize(("factor", "own"), [(1.0, True), (1 + 1e-9, False), (0.5, False), (-1.0, False), (0.0, False)])
def test_the_gradient_of_a_linear_function_is_its_own(factor: float, own: bool) -> None:
    with torch.no_grad():
        assert has_own_gradient(Function(lambda x: WithGradient.apply(x, factor)), X, BIAS) is own


def test_a_gradient_is_told_in_any_precision() -> None:
    """In float16 numbers whose sum it cannot hold."""

    class Scaling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            ctx.factor = factor
            return 60 * x

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return 60 * ctx.factor * gradients[0], None

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x, weight = drawn(64, 64).to(dtype), drawn(5, 64).to(dtype)
        with torch.no_grad():
            assert has_own_gradient(Function(lambda x, w=weight: F.linear(x, w)), x, weight.new_zeros(5))
        for factor in (1.0, -1.0):
            with torch.no_grad():
                found = has_own_gradient(
                    Function(lambda x, f=factor: Scaling.apply(x, f)), x, torch.zeros(1, dtype=dtype)
                )
            assert found is (factor == 1.0)


class Nothing(torch.autograd.Function):
    """A bias alone, whose gradient says that it is a layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return BIAS.expand(*x.shape[:-1], 5).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] @ WEIGHT


def test_a_gradient_is_its_own_beside_a_large_bias_and_never_that_of_nothing() -> None:
    large = 1e6 * BIAS
    with torch.no_grad():
        assert has_own_gradient(Function(lambda x: WithGradient.apply(x, 1.0) - BIAS + large), X, large)
        assert not has_own_gradient(Function(Nothing.apply), X, BIAS)


def test_value_and_slope_at_zero() -> None:
    zero, slope = around_zero(Function(lambda x: torch.exp(2 * x)), X)
    assert zero == 1.0
    assert slope == pytest.approx(2.0, rel=1e-8)
    assert around_zero(Function(lambda x: torch.exp(5 * x)), X)[1] == pytest.approx(5.0, rel=2e-9)
    assert around_zero(Function(lambda x: x * x), X) == pytest.approx((0.0, 0.0), abs=1e-12)


class Own(nn.Linear):
    """Somebody's own linear layer."""


def test_modules_of_torch_hide_nothing() -> None:
    assert is_plain(nn.Linear(2, 2))
    assert is_plain(nn.GELU())
    assert not is_plain(Own(2, 2))
    changed = nn.Linear(2, 2)
    changed.forward = lambda x: x
    assert not is_plain(changed)
    packed = nn.Linear(2, 2)
    packed._parameters["weight"] = Packed(torch.ones(2, 2))
    assert not is_plain(packed)


class Packed(nn.Parameter):
    pass


def test_an_activation_has_no_parameters_and_no_parts() -> None:
    assert is_bare(nn.GELU())
    assert is_bare(nn.LayerNorm(3, elementwise_affine=False))
    assert not is_bare(nn.Linear(2, 2))
    assert not is_bare(nn.Sequential(nn.GELU()))


def test_the_outermost_of_a_kind() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.ModuleList([nn.TransformerEncoder(layer, 1), nn.Linear(2, 2), layer])
    kinds = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
    assert list(outermost(model, kinds)) == [model[0], model[2]]
