"""How a function of one number rises between two points: the slopes by which differences are passed on.

Of f between b and x the slope is (f(x) - f(b)) / (x - b). Where the two points are close, rounding takes the digits of
the quotient: there it is the derivative halfway, or a form of the quotient that subtracts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


def derivative_between(function: Function, x: Tensor, b: Tensor) -> Tensor:
    """The derivative halfway between two points."""
    with torch.enable_grad():
        middle = ((x + b) / 2).detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(function(middle).sum(), middle)
    return slope


def derivative_by_values(function: Function, x: Tensor, b: Tensor) -> Tensor:
    """The same of a function whose own gradient is not to be trusted."""
    step, middle = closeness(x.dtype), (x + b) / 2
    return (function(middle + step) - function(middle - step)) / (2 * step)


def secant_slope(
    function: Function,
    points: tuple[Tensor, Tensor],
    values: tuple[Tensor, Tensor],
    derivative: Callable[[Function, Tensor, Tensor], Tensor] = derivative_between,
) -> Tensor:
    """The slope of a function of single numbers between two points, whose values are given."""
    (x, b), (there, here) = points, values
    difference = x - b
    close = difference.abs() <= closeness(x.dtype) * torch.maximum(x.abs(), b.abs()).clamp(max=1.0)
    quotient = (there - here) / torch.where(close, torch.ones_like(difference), difference)
    return torch.where(close, derivative(function, x, b), quotient)


def closeness(dtype: torch.dtype) -> float:
    """A difference below which the derivative halfway is nearer to the slope than a quotient of differences.

    Their errors are d^2 / 24 and eps / d.
    """
    return float((24 * torch.finfo(dtype).eps) ** (1 / 3))


def slope_of_exp(x: Tensor, b: Tensor) -> Tensor:
    """exp(b) (exp(d) - 1) / d: the logarithmic mean of both values."""
    return logarithmic_mean(x.exp(), b.exp(), x - b)


def logarithmic_mean(p: Tensor, q: Tensor, ratio: Tensor) -> Tensor:
    """(p - q) / log(p / q), where `ratio` is that logarithm; 0 where one of them is 0."""
    known = ratio.isfinite()
    size = torch.where(known, ratio, torch.zeros_like(ratio)).abs()
    share = torch.where(
        size == 0, torch.ones_like(size), -torch.expm1(-size) / size.clamp(min=torch.finfo(size.dtype).tiny)
    )
    return torch.where(known, torch.maximum(p, q) * share, torch.zeros_like(p))


def slope_of_log(x: Tensor, b: Tensor) -> Tensor:
    relative = (x - b) / b
    return torch.where(relative.abs() < 1e-8, 1 / b, torch.log1p(relative) / (x - b))


def slope_of_sqrt(x: Tensor, b: Tensor) -> Tensor:
    total = x.sqrt() + b.sqrt()
    return torch.where(total == 0, torch.zeros_like(total), 1 / total)


def slope_of_rsqrt(x: Tensor, b: Tensor) -> Tensor:
    first, second = x.sqrt(), b.sqrt()
    return -1 / (first * second * (first + second))


def slope_of_reciprocal(x: Tensor, b: Tensor) -> Tensor:
    return -1 / (x * b)


CLOSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": slope_of_exp,
    "log": slope_of_log,
    "sqrt": slope_of_sqrt,
    "rsqrt": slope_of_rsqrt,
    "reciprocal": slope_of_reciprocal,
    "square": torch.add,
}
POWERS: dict[float, str] = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal", 2.0: "square"}


def slope_of_power(x: Tensor, b: Tensor, exponent: Any) -> Tensor | None:
    """Of x^n with a whole, positive n: the sum of x^i b^(n-1-i). None for other exponents."""
    if exponent in POWERS:
        return CLOSED[POWERS[exponent]](x, b)
    if isinstance(exponent, (int, float)) and float(exponent).is_integer() and 1 <= exponent <= 8:
        n = int(exponent)
        return torch.stack([x**i * b ** (n - 1 - i) for i in range(n)]).sum(0)
    return None


def softmax_slopes(weights: tuple[Tensor, Tensor], scores: tuple[Tensor, Tensor], axis: int) -> Tensor:
    """L in p_j - q_j = L_j (d_j - c), where d_j is the rise of a score and c that of the logarithm of the sum.

    It is the logarithmic mean of p_j and q_j. As both add up to 1, c is the mean of d weighed by L.
    """
    p, q = weights
    logs = [part.log_softmax(axis) for part in scores]
    both = (p > 0) & (q > 0)
    return torch.where(both, logarithmic_mean(p, q, logs[0] - logs[1]), torch.zeros_like(p))
