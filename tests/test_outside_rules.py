"""A rule for an operation, from a module outside of the package: with the rule it closes, without it it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import outside_rules
import pytest
import torch
from outside_rules import steer
from scoped import UPSTREAM, Passed, passed, rules
from torch import Tensor, nn
from weighing import drawn

import headwater as hw
from headwater import rules as public
from headwater.errors import UsageError
from headwater.rules import OPERATIONS, on

X = drawn(3, 4, seed=1)
RULES = rules("ah", "ln", "act", "gate")
CALLS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "an operation of torch": ("i0", torch.i0),
    "by another name": ("special_i0", torch.special.i0),
    "as a method": ("i0", lambda x: x.i0()),
    "a library's": ("cube", outside_rules.cube),
    "by its overload": ("cube", lambda x: torch.ops.outside.cube.default(x)),
    "in Python": ("steer", lambda x: steer(x, 2 * x)),
}


@pytest.fixture
def without() -> Iterator[Callable[[str], None]]:
    before = dict(OPERATIONS)
    yield lambda name: OPERATIONS.pop(name)  # type: ignore[misc,return-value]
    OPERATIONS.clear()
    OPERATIONS.update(before)


def unaccounted(found: Passed) -> float:
    upstream = drawn(found.value.numel(), seed=UPSTREAM).reshape(found.value.shape)
    arrived = float((X * found.gradients[0]).sum())
    return float((upstream * found.value).sum()) - arrived - sum(found.lines.values())


@pytest.mark.parametrize("call", CALLS)
def test_with_the_rule_it_closes_and_without_it_does_not(call: str, without: Callable[[str], None]) -> None:
    name, operation = CALLS[call]
    found = passed(operation, (X,), RULES)
    torch.testing.assert_close(found.value, operation(X), rtol=0, atol=0)
    assert unaccounted(found) == pytest.approx(0, abs=1e-12)
    without(name)
    if name != "steer":  # whose body is then seen, operation by operation
        assert abs(unaccounted(passed(operation, (X,), RULES))) > 1e-3


def test_a_function_in_python_is_one_operation_with_a_rule(without: Callable[[str], None]) -> None:
    """The gain is no constant where its own rule does not say so: half of the product is its."""
    gain = drawn(3, 4, seed=2)
    own = passed(steer, (X, gain), rules("act", "gate", gate="half"))
    torch.testing.assert_close(own.gradients[0], drawn(12, seed=UPSTREAM).reshape(3, 4) * torch.expm1(gain))
    assert not own.gradients[1].any()
    without("steer")
    apart = passed(steer, (X, gain), rules("act", "gate", gate="half"))
    torch.testing.assert_close(apart.gradients[0], own.gradients[0] / 2)
    assert apart.gradients[1].abs().max() > 1e-3


class Bessel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.i0(self.first(x)))
        return logits


def test_a_model_is_explained_by_the_rule(without: Callable[[str], None]) -> None:
    torch.manual_seed(0)
    model = Bessel().eval()
    assert hw.explain(model, X, method="lrp", target=0)[0].ledger.error < 1e-12
    without("i0")
    assert hw.explain(model, X, method="lrp", target=0)[0].ledger.error > 1e-4


def test_an_operation_has_one_rule() -> None:
    def another(scope: Any, call: Any) -> Any: ...

    before = dict(OPERATIONS)
    for name in ("mul", "mul_", "__rmul__", torch.mul, "i0", "capped_attention"):
        with pytest.raises(UsageError, match=r"has a rule already: (headwater|outside_rules)"):
            on(name)(another)
    assert before == OPERATIONS


def test_a_file_that_is_read_again_registers_again() -> None:
    assert on(torch.i0)(outside_rules.bessel) is OPERATIONS["i0"]


def test_what_has_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match="by name or as a function, not on 3"):
        on(3)  # type: ignore[arg-type]


def test_what_a_rule_needs_is_public() -> None:
    assert {"on", "value_of", "is_signal", "Scope", "Call", "register_variant", "Variant"} <= set(public.__all__)
