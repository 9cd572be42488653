"""Operations that write into a constant: what stood there has its line, with its name and its origin."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scoped import amount, check, passed, rules
from torch import Tensor
from weighing import drawn

A, B, C = (drawn(3, 4, seed=seed) for seed in (1, 2, 3))
GATE = rules("gate")
Write = Callable[[Tensor, Tensor], Tensor]
SQUARE = drawn(4, 4, seed=6)

WRITES: dict[str, tuple[Write, Tensor]] = {
    "add": (lambda y, b: y.add_(b), A),
    "add, times": (lambda y, b: y.add_(b, alpha=3), A),
    "sub": (lambda y, b: y.sub_(b), A),
    "operator": (lambda y, b: y.__iadd__(b), A),
    "lerp": (lambda y, b: y.lerp_(b, 0.3), 0.7 * A),
    "addcmul": (lambda y, b: y.addcmul_(b, C, value=0.5), A),
    "addcdiv": (lambda y, b: y.addcdiv_(b, C), A),
    "masked_fill": (lambda y, b: y.masked_fill_(C > 0, b[0, 0]), A.masked_fill(C > 0, 0)),
    "addmm": (lambda y, b: y.addmm_(b, SQUARE), A),
    "addmm from the right": (lambda y, b: y.addmm_(C[:, :3], b, beta=0.4, alpha=2), 0.4 * A),
}


def there(write: Write, stood: Tensor) -> Callable[[Tensor], Tensor]:
    """The tensor that is written into goes on, not what the operation gives back."""

    def operation(b: Tensor) -> Tensor:
        kept = stood * 1.0
        assert write(kept, b) is kept
        return kept * 1.0

    return operation


@pytest.mark.parametrize("name", WRITES)
def test_what_stood_there_is_a_line(name: str) -> None:
    write, left = WRITES[name]
    operation, zero = there(write, A), torch.zeros_like(A)
    found = check(operation, lambda b: write(zero.clone(), b), [B], GATE)
    assert sum(found.lines.values()) == pytest.approx(amount(left, 3, 4), abs=1e-12)
    named = passed(operation, [B], GATE, {"memory": A})
    assert named.lines == pytest.approx({"memory": amount(left, 3, 4)}, abs=1e-12)
    assert named.sorts["memory"].name == "BIAS"


@pytest.mark.parametrize("name", WRITES)
def test_what_was_cut_off_stays_cut_off(name: str) -> None:
    """A tensor without its gradient is no constant, also where something is added to it in place."""
    write, left = WRITES[name]

    def operation(b: Tensor) -> Tensor:
        return write((b.detach() - B + A).clone(), b)

    found = passed(operation, [B], GATE)
    assert {sort.name for sort in found.sorts.values()} == {"CUT_OFF"}
    assert sum(found.lines.values()) == pytest.approx(amount(left, 3, 4), abs=1e-12)


@pytest.mark.parametrize("name", WRITES)
def test_what_a_signal_was_goes_on(name: str) -> None:
    write, _ = WRITES[name]
    zero = torch.zeros_like(A)

    def operation(a: Tensor, b: Tensor) -> Tensor:
        kept = a * 1.0
        assert write(kept, b) is kept
        return kept * 1.0

    def reference(a: Tensor, b: Tensor) -> Tensor:
        stays = {"lerp": 0.7, "masked_fill": (C <= 0).double(), "addmm from the right": 0.4}.get(name, 1.0)
        return a * stays + write(zero.clone(), b)

    check(operation, reference, [A, B], GATE, {})


@pytest.mark.parametrize("constant", [False, True])
def test_a_product_of_signals_written_into_something(constant: bool) -> None:
    """The value is the model's own: to write twice would count the product twice."""

    def operation(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        kept = (C if constant else c)[:, :3] * 1.0
        assert kept.addmm_(a, b.T, alpha=0.5) is kept
        return kept * 1.0

    def reference(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        halves = 0.25 * a @ b.detach().T + 0.25 * a.detach() @ b.T
        return halves if constant else c[:, :3] + halves

    check(operation, reference, [A, B, C], GATE, {"addmm": amount(C[:, :3], 3, 3)} if constant else {})
