"""Tensors that wait for the backward pass, and what they have been through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from headwater.errors import HiddenOperation
from headwater.rules.lineage import Kind, carry, lineage, lineage_kind, mark
from headwater.rules.saved import BorrowedTensor, SavedTensor


class Keeper:
    """Keeps tensors under numbers, as a disk would; what comes back is another tensor."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def pack(self, tensor: Tensor) -> int:
        self.kept.append(tensor.clone())
        return len(self.kept) - 1

    def unpack(self, number: int) -> Tensor:
        return self.kept[number]

    def hooks(self) -> Any:
        return saved_tensors_hooks(self.pack, self.unpack)


class Operations(TorchFunctionMode):
    """Every operation that somebody outside would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_tensor_waits_without_its_graph_and_in_the_same_memory() -> None:
    x = torch.ones(3).requires_grad_() * 2
    one = SavedTensor(x)
    assert one.here
    assert one.tensor().data_ptr() == x.data_ptr()
    assert not one.tensor().requires_grad


def test_it_goes_through_the_hooks_of_its_moment() -> None:
    keeper = Keeper()
    with keeper.hooks():
        one = SavedTensor(torch.full((2,), 5.0))
        assert not one.here
        assert keeper.kept[0].tolist() == [5.0, 5.0]
    keeper.kept[0] += 1
    assert one.tensor().tolist() == [6.0, 6.0]
    like = SavedTensor(torch.full((2,), 7.0), one)
    assert not like.here
    assert (len(keeper.kept), like.tensor().tolist()) == (2, [7.0, 7.0])
    with keeper.hooks():
        assert SavedTensor(torch.ones(2), SavedTensor(torch.ones(2), one)).tensor().tolist() == [1.0, 1.0]


def test_a_tensor_that_waits_like_one_without_hooks_has_none() -> None:
    plain, keeper = SavedTensor(torch.ones(2)), Keeper()
    with keeper.hooks():
        assert SavedTensor(torch.ones(2), plain).here
    assert keeper.kept == []


def test_waiting_is_no_operation_of_the_models() -> None:
    memory = torch.arange(6.0)
    with Operations() as operations:
        lent = BorrowedTensor(memory)
        SavedTensor(memory)
        lent.copy_before_write(memory)
    assert [name for name in operations.seen if name in ("detach", "clone", "empty", "set_")] == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_written_over_is_spared(elsewhere: bool) -> None:
    """Whatever view of the memory is written into; what is not in it is left alone."""
    keeper, base = Keeper(), torch.arange(12.0).reshape(3, 4)
    part, other = base[1:, ::2], torch.arange(4.0)
    if elsewhere:
        with keeper.hooks():
            lent, apart = BorrowedTensor(part), BorrowedTensor(other)
    else:
        lent, apart = BorrowedTensor(part), BorrowedTensor(other)
    assert lent.here is apart.here is not elsewhere
    kept = len(keeper.kept)
    before = part.tolist()
    lent.copy_before_write(torch.ones(3))
    apart.copy_before_write(base)
    assert len(keeper.kept) == kept
    lent.copy_before_write(base)
    assert len(keeper.kept) == kept + elsewhere
    base.zero_()
    assert lent.tensor().tolist() == before
    assert lent.tensor().shape == part.shape
    assert lent.here is not elsewhere
    lent.copy_before_write(base)  # what waits now is a copy
    base.add_(1)
    assert lent.tensor().tolist() == before
    assert apart.tensor().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_copy_has_no_graph_and_may_be_of_a_tensor_that_has_one() -> None:
    x = torch.arange(4.0).requires_grad_() * 2
    lent = BorrowedTensor(x)
    lent.copy_before_write(x)
    with torch.no_grad():
        x.zero_()
    assert (lent.tensor().tolist(), lent.tensor().requires_grad) == ([0.0, 2.0, 4.0, 6.0], False)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_was_written_over_unseen_is_refused(elsewhere: bool) -> None:
    base, keeper = torch.arange(4.0), Keeper()
    if elsewhere:
        with keeper.hooks():
            lent = BorrowedTensor(base)
        base.add_(1)
        assert lent.tensor().tolist() == [0.0, 1.0, 2.0, 3.0]  # whoever keeps it has a copy
    else:
        lent = BorrowedTensor(base)
        base.add_(1)
        with pytest.raises(HiddenOperation, match="writes over"):
            lent.tensor()
    with pytest.raises(HiddenOperation, match="writes over"):
        lent.copy_before_write(base)


def test_memory_that_was_given_back_is_not_taken_for_its_successor() -> None:
    keeper = Keeper()
    with keeper.hooks():
        lent = BorrowedTensor(torch.arange(4.0))
    for _ in range(20):
        lent.copy_before_write(torch.ones(4))
    assert len(keeper.kept) == 1


# Lineage


def test_kinds_are_ordered_by_how_surely_they_are_a_gate() -> None:
    assert sorted(Kind, key=int) == [Kind.LINEAR, Kind.ACTIVATED, Kind.SHIFTED, Kind.WEIGHTS, Kind.NORM]


def test_a_tensor_of_which_nothing_is_known_is_linear_with_a_root_of_its_own() -> None:
    assert len(Kind) == 5
    one, other = torch.ones(2), torch.ones(2)
    assert lineage_kind(one) is Kind.LINEAR
    assert lineage(one) is lineage(one)
    assert lineage(one).root is not lineage(other).root
    assert lineage(one).root is not None
    root = object()
    assert mark(one, Kind.NORM, root) is lineage(one)
    assert (lineage(one).root, lineage(one).kind, lineage_kind(one)) == (root, Kind.NORM, Kind.NORM)
    assert mark(one, Kind.NORM).root is not root


@pytest.mark.parametrize("known", [None, Kind.LINEAR, Kind.SHIFTED])
@pytest.mark.parametrize("same", [False, True])
def test_what_a_tensor_has_been_through_goes_along(known: Kind | None, same: bool) -> None:
    source = torch.ones(2).requires_grad_()
    if known is not None:
        mark(source, known)
    parts: Any = (torch.ones(2).requires_grad_(), torch.ones(2), "text", torch.ones(3).requires_grad_())
    for result in (parts, list(parts), parts[0]):
        assert carry(result, source, same_elements=same) is result
    assert not hasattr(parts[1], "_headwater_lineage")
    for part in (parts[0], parts[3]):
        assert lineage_kind(part) is (known or Kind.LINEAR)
        assert (lineage(part).root is lineage(source).root) is same


def test_a_view_of_a_linear_signal_is_not_marked() -> None:
    """Which would be a root for nothing, at every view of a model."""
    for source in (torch.ones(2), torch.ones(2)):
        result = torch.ones(2).requires_grad_()
        carry(result, source, same_elements=False)
        assert not hasattr(result, "_headwater_lineage")
        lineage(source)
        carry(result, source, same_elements=False)
        assert not hasattr(result, "_headwater_lineage")
