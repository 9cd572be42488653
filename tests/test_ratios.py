"""The factor of an activation: when it is made, of what, and in whose memory."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from defining import X, check, check_relevance, hold, times_constant
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from weighing import drawn

from headwater.errors import HiddenOperation
from headwater.rules.ratio import Pending, Ratio, is_only_holder, ratio, scale_by_constant, settle_ratio


def made_alone() -> Tensor:
    return drawn(4, 6).clone()


def test_memory_is_alone_where_nobody_else_holds_it() -> None:
    x = made_alone()
    assert is_only_holder(x)
    other = x.detach()
    assert not is_only_holder(x)
    del other
    assert is_only_holder(x)


def test_a_part_or_another_order_is_not_alone() -> None:
    assert not is_only_holder(drawn(8)[:4].detach())
    assert not is_only_holder(torch.empty(0, dtype=torch.float64).set_(drawn(8).clone().untyped_storage(), 0, (4,)))
    assert not is_only_holder(torch.empty_strided((4, 6), (1, 4)))


def test_the_factor_takes_the_place_of_an_input_that_nobody_else_holds() -> None:
    x, value = made_alone(), drawn(4, 6, seed=4)
    expected, place = value / x, x.data_ptr()
    factor = Ratio(x, value, (0.0, 1.0))
    del x
    made = factor.compute()
    assert torch.equal(made, expected)
    assert made.data_ptr() == place


def test_an_input_that_somebody_holds_stays() -> None:
    x, value = made_alone(), drawn(4, 6, seed=4)
    before = x.clone()
    made = Ratio(x, value, (0.0, 1.0)).compute()
    assert torch.equal(x, before)
    assert torch.equal(made, value / x)


def test_what_it_was_made_of_is_let_go() -> None:
    x, value = made_alone(), drawn(4, 6, seed=4).clone()
    memory = [StorageWeakRef(one.untyped_storage()) for one in (x, value)]
    factor = Ratio(x, value, (0.5, 1.0))
    del x, value
    assert not any(one.expired() for one in memory)
    factor.make()
    assert all(one.expired() for one in memory)


def test_it_is_made_once() -> None:
    factor = Ratio(made_alone(), drawn(4, 6, seed=4), (0.0, 1.0))
    assert factor.make() is factor.make()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_near_zero_it_is_the_slope(dtype: torch.dtype) -> None:
    """With f(0) beside it, a difference within the root of the dtype's precision is rounding alone."""
    near = math.sqrt(torch.finfo(dtype).eps)
    x = torch.tensor([0.0, near, -near, 2 * near, 0.5, -2.0], dtype=dtype)
    found = ratio(x, torch.full_like(x, 3.0), 1.0, 0.25)
    assert found[:3].tolist() == [0.25, 0.25, 0.25]
    torch.testing.assert_close(found[3:], 2.0 / x[3:])


def test_without_a_value_at_zero_it_is_the_slope_at_zero_alone() -> None:
    x = torch.tensor([0.0, 1e-12, 0.0, -3.0], dtype=torch.float64)
    found = ratio(x, torch.tensor([0.0, 2e-12, 4.0, 0.0], dtype=torch.float64), 0.0, 0.25)
    assert found.tolist() == [0.25, pytest.approx(2.0), math.inf, 0.0]


class Elsewhere(Tensor):
    """As if it lay on another device, of which one does not ask for numbers."""

    device = torch.device("cuda")  # type: ignore[assignment]


def test_on_another_device_it_is_the_same() -> None:
    x = drawn(6).as_subclass(Elsewhere)
    x[::3] = 0
    value = torch.tanh(x)
    found = ratio(x, value, 0.0, 0.25).as_subclass(Tensor)
    here = ratio(x.as_subclass(Tensor).clone(), value.as_subclass(Tensor), 0.0, 0.25)
    assert found.tolist() == here.tolist()
    assert found[::3].tolist() == [0.25, 0.25]
    assert ratio(x, value, 0.0, 0.25, x).data_ptr() == x.data_ptr()


def test_they_are_made_in_their_order_and_then_forgotten() -> None:
    pending, order = Pending(), []
    factors = [Ratio(drawn(3, seed=i), drawn(3), (0.0, 1.0)) for i in range(6)]
    assert [one.number for one in factors] == sorted(one.number for one in factors)
    for one in reversed(factors):
        pending.add(one)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: order.append(t[0].item()) or t, lambda t: t):
        pending.settle_ratios()
    assert order == [(drawn(3) / drawn(3, seed=i))[0].item() for i in range(6)]
    assert not list(pending)


class Holder:
    def __init__(self) -> None:
        self.told: list[Tensor] = []

    def copy_before_write(self, written: Tensor) -> None:
        self.told.append(written)


def test_who_holds_tensors_is_told_what_is_written_over() -> None:
    pending, x, y = Pending(), drawn(2), drawn(3)
    before, after = Holder(), Holder()
    pending.register_borrower(before)
    since = pending.moment()
    pending.register_borrower(after)
    pending.settle(x)
    pending.settle([x, 1.0, y])
    pending.settle((y,))
    assert [id(t) for t in before.told] == [id(t) for t in after.told] == [id(t) for t in (x, x, y, y)]
    pending.forget_borrowers(since)
    pending.settle(x)
    assert (len(before.told), len(after.told)) == (5, 4)
    assert pending.moment() < pending.moment()


def test_lenders_that_are_gone_are_told_nothing() -> None:
    pending, holder = Pending(), Holder()
    pending.register_borrower(holder)
    told = holder.told
    del holder
    pending.settle(drawn(2))
    assert not told


def test_a_value_that_is_used_has_its_factor_made() -> None:
    x = made_alone().requires_grad_()
    pending = Pending()
    value = scale_by_constant(x, torch.sigmoid(x.detach()), (0.5, 0.25), pending)
    (factor,) = pending
    settle_ratio(value)
    settle_ratio(3.0)
    settle_ratio(drawn(2))
    with torch.no_grad():
        x.add_(1.0)  # too late to matter
    torch.testing.assert_close(factor.compute(), (torch.sigmoid(x.detach() - 1) - 0.5) / (x.detach() - 1))


@pytest.mark.parametrize("written", ["input", "value"])
def test_numbers_that_are_gone_are_an_error(written: str) -> None:
    x, value = drawn(4), drawn(4, seed=4)
    factor = Ratio(x, value, (0.0, 1.0))
    (x if written == "input" else value).add_(1.0)
    with pytest.raises(HiddenOperation, match="writes over"):
        factor.make()


def test_what_is_used_before_its_input_is_written_over_is_explained() -> None:
    """Under no_grad, where the rules see nothing: by then the factor is made."""

    def operation(x: Tensor) -> Tensor:
        z = 1 * x
        y = torch.tanh(z) + 0
        with torch.no_grad():
            z.add_(1.0)
        return y

    check_relevance(operation, times_constant(torch.tanh))


def test_an_input_that_an_activation_writes_over_is_kept_for_another() -> None:
    """By `inplace=True`, which is no operation in place by its name."""

    def operation(x: Tensor) -> Tensor:
        z = 1 * x
        gate = torch.sigmoid(z)
        return torch.cat([F.silu(z, inplace=True), gate], -1)

    def line(x: Tensor) -> Tensor:
        return torch.cat([times_constant(F.silu)(x), times_constant(torch.sigmoid, 0.5)(x)], -1)

    check_relevance(operation, line)


def test_a_value_that_is_written_over_by_an_activation() -> None:
    def operation(x: Tensor) -> Tensor:
        y = torch.tanh(x)
        return F.elu(y, inplace=True) + y

    check((operation, lambda x: 2 * x * hold(F.elu(torch.tanh(x)) / x)), x=X)
