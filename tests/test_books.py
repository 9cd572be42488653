"""Books, line by line: what a source is worth is its gradient times its value, and each sample has its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from weighing import drawn

from headwater.rules.gradients import times
from headwater.rules.sources import BASE, Books, Site, Sort, sample_axis, wide


def settled(books: Books, result: Tensor, weights: Tensor, of_samples: Callable[[Tensor], Tensor]) -> Books:
    """The passes that an explanation makes: the first, and those that tell samples apart.

    `of_samples` sums what was weighed to one score a sample.
    """
    score = of_samples(result * weights)
    torch.autograd.grad(score.sum(), result, retain_graph=True)
    for probe in range(books.probes):
        books.probe = probe
        seeds = torch.tensor(books.seeds(probe), dtype=score.dtype)
        torch.autograd.grad((score * seeds).sum(), result, retain_graph=True)
    books.settle()
    return books


AXES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    # the result's shape, axes along which the source varies, the axis of the samples
    ((3, 4, 5), (), 0),
    ((3, 4, 5), (1, 2), 0),
    ((4, 3, 5), (), 1),
    ((4, 5, 3), (0,), 2),
    ((3, 3, 5), (), 0),
    ((3, 3, 5), (), 1),
    ((5, 6, 3), (), 2),
    ((6, 3, 2), (), 1),
    ((3, 6, 2), (), 0),
    ((3,), (), 0),
]


@pytest.mark.parametrize("sort", [Sort.CONSTANT, Sort.CUT_OFF, Sort.HELD])
@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize(("shape", "varies", "axis"), AXES)
def test_every_sample_gets_what_is_its_own(
    shape: tuple[int, ...], varies: tuple[int, ...], axis: int, scrambled: bool, sort: Sort
) -> None:
    books, value, weights = Books(3, scrambled=scrambled), drawn(*shape, seed=1), drawn(*shape, seed=2)
    weights.flatten()[0] = 0  # an element that no score reads
    result = drawn(*shape).requires_grad_() * 1
    books.enter(result, "line", sort=sort, varies=varies, amount=times, held=(value,))
    settled(books, result, weights, lambda y: y.movedim(axis, 0).reshape(3, -1).sum(1))
    parts = (value * weights).movedim(axis, 0).reshape(3, -1)
    assert books.totals(sort)["line"].tolist() == pytest.approx(parts.sum(1).tolist(), abs=1e-12)
    assert books.totals(sort)["line"].dtype is torch.float64
    size = parts.abs().sum(1) if sort is Sort.CUT_OFF else torch.zeros(3)
    assert books.cut_size().tolist() == pytest.approx(size.tolist(), abs=1e-12)
    assert all(books.totals(other) == {} for other in Sort if other is not sort)


@pytest.mark.parametrize("samples", [1, 2, 15, 16, 17, 40, 256, 257])
def test_any_number_of_samples_is_told_apart(samples: int) -> None:
    """By as many passes as their numbers have digits."""
    books, value, weights = Books(samples, scrambled=True), drawn(samples, 2, seed=1), drawn(samples, 2, seed=2)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(4))
    result = drawn(samples, 2).requires_grad_() * 1
    books.enter(result, "line", sort=Sort.CONSTANT, varies=(), amount=times, held=(value,))
    assert books.probes == (0 if samples == 1 else 1 if samples <= 16 else 2 if samples <= 256 else 3)
    settled(books, result, weights, lambda y: torch.zeros(samples).double().index_add(0, order, y.sum(1)))
    expected = torch.zeros(samples).double().index_add(0, order, (value * weights).sum(1))
    assert books.totals(Sort.CONSTANT)["line"].tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_factors_are_powers_of_two_that_half_precision_holds() -> None:
    books = Books(300)
    for probe in range(3):
        seeds = torch.tensor(books.seeds(probe), dtype=torch.float16)
        assert bool((seeds > 0).all())
        assert seeds.double().tolist() == books.seeds(probe)
        assert set(seeds.double().log2().tolist()) <= set(range(-8, 8))
    spelled = {tuple(Books(300).seeds(probe)[i] for probe in range(3)) for i in range(300)}
    assert len(spelled) == 300
    assert BASE == 16


def test_a_source_that_is_met_twice_counts_twice() -> None:
    """As where a checkpoint or a second use sends its gradient in parts."""
    books, result = Books(3, scrambled=True), drawn(3, 2).requires_grad_() * 1
    books.enter(result, "line", sort=Sort.CUT_OFF, varies=(), amount=times, held=(torch.ones(3, 2),))
    parts = drawn(2, 3, 2, seed=4)
    for seeds in (torch.ones(3, 1), torch.tensor(books.seeds(0))[:, None]):
        for part in parts:
            torch.autograd.grad(result, result, part * seeds, retain_graph=True)
        books.probe = 0
    books.settle()
    assert books.totals(Sort.CUT_OFF)["line"].tolist() == pytest.approx(parts.sum((0, 2)).tolist())
    assert books.cut_size().tolist() == pytest.approx(parts.abs().sum((0, 2)).tolist())


def test_a_known_axis_counts_in_the_first_pass_alone_and_twice_if_met_twice() -> None:
    books, result = Books(3), drawn(3, 2).requires_grad_() * 1
    books.enter(result, "line", sort=Sort.CUT_OFF, varies=(), amount=times, held=(torch.ones(3, 2),))
    assert (books.probes, books.needs_probe) == (0, False)
    for _ in range(2):
        torch.autograd.grad(result, result, -torch.ones(3, 2, dtype=torch.float64), retain_graph=True)
    books.probe = 0
    torch.autograd.grad(result, result, torch.ones(3, 2, dtype=torch.float64), retain_graph=True)
    assert books.totals(Sort.CUT_OFF)["line"].tolist() == [-4.0, -4.0, -4.0]
    assert books.cut_size().tolist() == [4.0, 4.0, 4.0]


def test_books_that_are_shut_take_nothing() -> None:
    books, result = Books(3), drawn(3, 2).requires_grad_() * 1
    books.enter(result, "line", sort=Sort.CONSTANT, varies=(), amount=times, held=(torch.ones(3, 2),))
    books.open = False
    result.sum().backward()
    assert books.amounts == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 4, 8), (3, 8), (4, 3, 8)])
def test_a_vector_along_the_last_axis(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    books, vector = Books(3), drawn(8, seed=1).to(dtype)
    result = drawn(*shape).to(dtype).requires_grad_() * 1
    weights = drawn(*shape, seed=2).to(dtype)
    books.enter_vector(result, "bias", vector)
    (result * weights).sum().backward()
    axis = shape.index(3)
    expected = (weights.double() * vector.double()).movedim(axis, 0).reshape(3, -1).sum(1)
    exact = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 1e-5)  # half precision is summed in float32
    assert books.totals(Sort.BIAS)["bias"].tolist() == pytest.approx(expected.tolist(), abs=exact)
    assert books.totals(Sort.BIAS)["bias"].dtype is torch.float64


def test_a_vector_of_rows_that_were_reached() -> None:
    """A backward pass that knows which rows have a gradient tells those alone."""
    books, vector, result = Books(2), drawn(4, seed=1), drawn(2, 3, 4)
    tell = books.record_vector(result, "table", vector, sort=Sort.CONSTANT)
    rows = torch.tensor([1, 5])
    gradient = drawn(2, 4, seed=2)
    tell(gradient, rows, torch.Size((2, 3)))
    assert books.totals(Sort.CONSTANT)["table"].tolist() == pytest.approx((gradient @ vector).tolist())
    assert books.sites == [Site("table", Sort.CONSTANT, 0)]


def test_an_axis_along_which_the_vector_lies_is_not_the_samples() -> None:
    books = Books(4)
    books.enter_vector(drawn(4, 4).requires_grad_() * 1, "bias", drawn(4))
    assert books.sites == [Site("bias", Sort.BIAS, 0)]


@pytest.mark.parametrize(
    ("shape", "samples", "varies", "length", "axis"),
    [
        ((7, 2), 1, (), None, 0),
        ((7, 2), 1, (0, 1), None, 0),
        ((3, 5), 3, (), None, 0),
        ((2, 5), 2, (), None, 0),
        ((5, 7), 3, (), None, None),  # nowhere
        ((3, 3), 3, (), None, None),  # in two places
        ((3, 3), 3, (1,), None, 0),
        ((3, 3), 3, (0,), None, None),  # the first axis is not free, so nothing says that it was not folded
        ((5, 3), 3, (0,), None, None),
        ((3, 6), 3, (), None, None),  # or samples lie folded in the other one
        ((3, 6), 3, (), 6, 0),  # no: that is the number of positions
        ((3, 6), 3, (1,), None, 0),
        ((3, 6, 6), 3, (), 6, 0),
        ((3, 6, 9), 3, (), 6, None),
        ((3, 4, 6, 2), 3, (), None, 0),  # past three dimensions a multiple is a coincidence
        ((3, 4, 3, 2), 3, (), None, None),
        ((3, 4, 6), 3, (), None, None),
        ((4, 3, 5), 3, (), None, 1),
        ((6, 3, 5), 3, (), None, None),  # the first may hold samples and more
        ((2, 3, 5), 3, (), None, 1),
        ((4, 5, 3), 3, (), None, 2),
        ((4, 3, 5), 3, (2,), None, 1),
        ((0, 3), 3, (), None, None),
    ],
)
def test_the_axis_of_the_samples_where_it_is_certain(
    shape: tuple[int, ...], samples: int, varies: tuple[int, ...], length: int | None, axis: int | None
) -> None:
    assert sample_axis(torch.Size(shape), samples, varies, length) == axis
    assert Books(samples, length)._axis(torch.zeros(shape), varies) == axis
    assert Books(samples, length, scrambled=True)._axis(torch.zeros(shape), varies) == (0 if samples == 1 else None)


def filled(**amounts: list[float]) -> Books:
    books = Books(2)
    for index, (name, values) in enumerate(amounts.items()):
        books.sites.append(Site(name, Sort.CONSTANT, 0))
        books.amounts[index] = torch.tensor(values, dtype=torch.float64)
    return books


def test_lines_of_one_name_add_up_and_a_bias_that_nothing_reached_is_zero() -> None:
    """And the sorts keep their numbers: what is less than cut off may turn out to be."""
    assert [(sort.name, int(sort)) for sort in Sort] == [("CONSTANT", 0), ("BIAS", 1), ("CUT_OFF", 2), ("HELD", 3)]
    books = filled(a=[1.0, 2.0], b=[3.0, 4.0], c=[0.5, 0.25])
    books.resort(1, "a", Sort.CONSTANT)
    books.resort(2, "moved", Sort.HELD)
    books.sites += [Site("reached", Sort.BIAS, 0), Site("not reached", Sort.BIAS, 0), Site("nothing", Sort.HELD, 0)]
    books.amounts[3] = torch.tensor([7.0, 8.0], dtype=torch.float64)
    told = {sort: {name: amount.tolist() for name, amount in books.totals(sort).items()} for sort in Sort}
    assert told == {
        Sort.CONSTANT: {"a": [4.0, 6.0]},
        Sort.BIAS: {"reached": [7.0, 8.0], "not reached": [0.0, 0.0]},
        Sort.CUT_OFF: {},
        Sort.HELD: {"moved": [0.5, 0.25]},
    }
    assert books.totals(Sort.BIAS)["not reached"].dtype is torch.float64


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_whether_all_amounts_are_numbers(wrong: float) -> None:
    assert Books(2).is_finite()
    assert filled(a=[1.0, 2.0], b=[3.0, 4.0]).is_finite()
    for amounts in ({"a": [1.0, wrong], "b": [3.0, 4.0]}, {"a": [1.0, 2.0], "b": [wrong, 4.0]}):
        assert not filled(**amounts).is_finite()


def test_taken_books_are_whole_and_leave_empty_ones() -> None:
    books = filled(a=[1.0, 2.0])
    books.sizes[0], books.probe = torch.ones(2), 0
    books.first_seen[0], books.digits[0] = [torch.ones(2)], [torch.ones(2)]
    taken = books.take()
    assert (books.amounts, books.sizes, books.first_seen, books.digits, books.probe) == ({}, {}, {}, {}, None)
    assert [len(found) for found in (taken.amounts, taken.sizes, taken.first_seen, taken.digits)] == [1, 1, 1, 1]
    assert taken.sites is books.sites


def test_copied_books_have_memory_of_their_own() -> None:
    books = filled(a=[1.0, 2.0])
    books.sizes[0] = torch.ones(2)
    copied = books.copy()
    books.amounts[0].zero_()
    books.sizes[0].zero_()
    assert copied.amounts[0].tolist() == [1.0, 2.0]
    assert copied.sizes[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    assert wide(torch.ones(2, dtype=dtype)).dtype is (torch.float32 if dtype.itemsize == 2 else dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize("sort", [Sort.CONSTANT, Sort.CUT_OFF])
def test_small_amounts_of_half_precision_are_not_lost(dtype: torch.dtype, scrambled: bool, sort: Sort) -> None:
    """4096 ones and 4096 of 1/1024: neither type could add them one by one."""
    books = Books(2, scrambled=scrambled)
    result = torch.ones(2, 8192, dtype=dtype).requires_grad_() * 1
    value = torch.ones(2, 8192, dtype=dtype)
    value[:, 4096:] /= 1024
    books.enter(result, "line", sort=sort, varies=(), amount=times, held=(value,))
    settled(books, result, torch.ones_like(result), lambda y: y.sum(1))
    assert books.totals(sort)["line"].tolist() == [4100.0, 4100.0]
    assert books.cut_size().tolist() == ([4100.0, 4100.0] if sort is Sort.CUT_OFF else [0.0, 0.0])


def test_one_number_that_is_none_is_found_among_books_of_several_shapes() -> None:
    books = Books(2, amounts={0: torch.ones(2).double(), 1: torch.ones(1).double()})
    assert books.is_finite()
    books.amounts[2] = torch.tensor([1.0, torch.inf], dtype=torch.float64)
    assert not books.is_finite()
