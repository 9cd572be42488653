"""Each rule by its definition: relevance element by element, and every line of the ledger with its name and amount.

A rule says that an operation is linear in its signals, with something held constant, plus what enters for nothing. So
each case says the same operation three times: as a model has it, as that linear function (constants detached), and
what enters by name. Relevance is then the input times the gradient of the linear function.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, Operation, drawn

import headwater as hw

X = drawn(3, LENGTH, WIDTH)
Case = tuple[Operation, Operation] | tuple[Operation, Operation, dict[str, Any]]


class Alone(nn.Module):
    """One operation; the score is the sum of what comes out, each element with a weight of its own."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return weighed(self.operation(x))


def weighed(y: Tensor) -> Tensor:
    weight = drawn(*y.shape[1:], seed=31).to(y.dtype)
    return (y * weight).flatten(1).sum(1, keepdim=True)


def expected_relevance(line: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """Input times gradient, and what the linear function gives."""
    leaf = x.clone().requires_grad_()
    y = line(leaf)
    if not y.requires_grad:
        return torch.zeros_like(x), y
    return x * torch.autograd.grad(weighed(y).sum(), leaf)[0], y.detach()


def check(case: Case, method: str = "lrp", x: Tensor = X, group: str = "constants") -> None:
    """Relevance, and the lines of one group of the ledger."""
    operation, line, *more = case
    expected, y = expected_relevance(line, x)
    lines = {
        name: weighed(torch.as_tensor(amount(x) if callable(amount) else amount, dtype=y.dtype).expand_as(y))
        for name, amount in (more[0] if more else {}).items()
    }
    for i, e in enumerate(explain_alone(operation, method, x)):
        torch.testing.assert_close(e.relevance, expected[i], rtol=1e-10, atol=1e-12)
        assert dict(getattr(e.ledger, group)) == pytest.approx(
            {name: float(amount[i]) for name, amount in lines.items()}, rel=1e-10, abs=1e-12
        )


def check_relevance(operation: Operation, line: Operation, method: str = "lrp", x: Tensor = X) -> None:
    """Of inputs alone; what constants are worth is another test's."""
    expected, _ = expected_relevance(line, x)
    for i, e in enumerate(explain_alone(operation, method, x)):
        torch.testing.assert_close(e.relevance, expected[i], rtol=1e-10, atol=1e-12)


def explain_alone(operation: Operation, method: str, x: Tensor) -> list[hw.Explanation]:
    """Explanations whose score is the model's own, bit for bit."""
    with torch.no_grad():
        plain = Alone(operation).eval()(x.clone())
    found = hw.explain(Alone(operation).eval(), x, method=method, score=lambda out: out[:, 0])
    assert [e.score for e in found] == plain[:, 0].tolist()
    return list(found)


def hold(x: Tensor) -> Tensor:
    return x.detach()


def half_each(a: Tensor, b: Tensor) -> Tensor:
    return 0.5 * (a * hold(b) + hold(a) * b)


def times_constant(function: Operation, zero: float = 0.0) -> Operation:
    """x times [(f(x) - f(0)) / x]."""
    return lambda x: x * hold((function(x) - zero) / x)
