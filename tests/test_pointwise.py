"""Chains of operations that compute each number alone: one kernel gives what torch gives operation by operation.

`pytest tests/test_pointwise.py --gpu` runs the kernels on an NVIDIA card; elsewhere Triton's interpreter serves. It
cuts bfloat16 off where a card rounds, so it is asked in float32 and float16.
"""

from __future__ import annotations

import sys
from functools import partial

import pytest
import torch
from torch import Tensor

from headwater.traces.play import compile_trace
from headwater.traces.pointwise import (
    CAST,
    MEAN,
    RSQRT,
    SILU,
    Chain,
    ChainStep,
    From,
    aten,
    check_chains,
    join_pointwise,
    leave_wrong,
)
from headwater.traces.record import Trace, TraceRecorder

pytest.importorskip("triton")
from headwater.kernels import pointwise
from headwater.kernels.pointwise import PointwiseKernel

GPU = "--gpu" in sys.argv
DEVICE = "cuda" if GPU else "cpu"
HALVES = (torch.bfloat16, torch.float16) if GPU else (torch.float16,)
MUL, ADD, SUB = aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor


def norm_chain(half: torch.dtype) -> Chain:
    """What a root mean square norm written out does behind its mean, with a sum and a sign behind it."""
    steps = (
        ChainStep(CAST, (From(0),), torch.float32),
        ChainStep(MUL, (From(4), From(1))),
        ChainStep(CAST, (From(5),), half),
        ChainStep(MUL, (From(2), From(6))),
        ChainStep(ADD, (From(7), From(3))),
        ChainStep(aten.neg.default, (From(8),)),
        ChainStep(MUL, (From(9), 0.3)),
        ChainStep(aten.abs.default, (From(10),)),
        ChainStep(SUB, (From(11), 2)),
    )
    return Chain(4, steps, (8, 12))


def kernel_of(chain: Chain) -> PointwiseKernel:
    return PointwiseKernel(chain, fits=lambda tensor: True)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def is_alike(kernel: PointwiseKernel, *tensors: Tensor) -> bool:
    """Whether numbers, types and order in memory are those of torch's operations."""
    found = kernel(*tensors)
    expected = kernel.by_torch(tensors)
    pairs = zip(found if isinstance(found, tuple) else (found,), expected, strict=True)
    return all(torch.equal(a, b) and a.stride() == b.stride() and a.dtype is b.dtype for a, b in pairs)


@pytest.mark.parametrize("half", [torch.float32, *HALVES])
@pytest.mark.parametrize("shape", [(2, 37, 96), (1, 1, 5), (3, 4097), (1, 70, 2048)])
def test_a_kernel_rounds_as_torch_does(half: torch.dtype, shape: tuple[int, ...]) -> None:
    kernel = kernel_of(norm_chain(half))
    x, d, w = drawn(*shape, dtype=half), drawn(*shape, dtype=half), drawn(shape[-1], dtype=half)
    assert is_alike(kernel, x, drawn(*shape[:-1], 1).exp(), w, d)
    assert None not in kernel.launches.values()


def test_tensors_may_lie_in_memory_in_any_order() -> None:
    chain = Chain(
        3,
        (ChainStep(MUL, (From(0), From(1))), ChainStep(MUL, (From(2), From(1))), ChainStep(ADD, (From(3), From(4)))),
        (5,),
    )
    kernel = kernel_of(chain)
    q = drawn(2, 8, 37, 64).transpose(1, 2)
    assert is_alike(kernel, q, drawn(1, 37, 1, 64), drawn(2, 37, 8, 64))
    assert is_alike(kernel, q[:, ::2, :, 3:50], drawn(19, 1, 47), drawn(2, 19, 8, 47).flip(1))
    assert None not in kernel.launches.values()


def test_what_does_not_fit_is_left_to_torch() -> None:
    chain = Chain(2, (ChainStep(MUL, (From(0), From(1))), ChainStep(ADD, (From(2), From(1)))), (2, 3))
    kernel = kernel_of(chain)
    assert is_alike(kernel, drawn(3, 4, dtype=torch.float64), drawn(4, dtype=torch.float64))
    assert is_alike(kernel, drawn(0, 4), drawn(4))
    assert set(kernel.launches.values()) == {None}
    small = Chain(
        3, (ChainStep(MUL, (From(0), From(1))), ChainStep(ADD, (From(3), From(2)))), (3, 4)
    )  # one result is smaller
    assert is_alike(kernel_of(small), drawn(4, 1), drawn(4, 1), drawn(4, 5))
    elsewhere = PointwiseKernel(chain)
    if not GPU:
        elsewhere(drawn(3, 4), drawn(4))
        assert set(elsewhere.launches.values()) == {None}  # no kernel is started where there is no card


# In a trace


def traced(function: object, *inputs: Tensor) -> tuple[Trace, list[object]]:
    recorder = TraceRecorder()
    with recorder.part(list(inputs)):
        result = function(*inputs)  # type: ignore[operator]
    return recorder.trace, [recorder.find(result)]


def joined(function: object, *inputs: Tensor) -> tuple[list[PointwiseKernel], Tensor]:
    """The kernels that a function becomes, and what they give for the inputs."""
    trace, wanted = traced(function, *inputs)
    made, slots = join_pointwise(trace, [wanted], partial(PointwiseKernel, fits=lambda tensor: True))
    program = compile_trace(made, slots)
    ((found,), _) = program.parts[0](inputs, [], 0)
    kernels = [one.function for one in made.operations if isinstance(one.function, PointwiseKernel)]
    return kernels, found


def sizes(kernels: list[PointwiseKernel]) -> list[int]:
    return [len(kernel.chain.steps) for kernel in kernels]


def test_operations_that_follow_from_one_another_are_one() -> None:
    def work(x: Tensor, y: Tensor) -> Tensor:
        return ((x * y + x).detach() * 3 - y) @ y.t()

    x, y = drawn(4, 6), drawn(4, 6)
    kernels, found = joined(work, x, y)
    assert sizes(kernels) == [4]
    assert torch.equal(found, work(x, y))


def test_a_cast_is_made_again_where_it_is_needed() -> None:
    def work(x: Tensor) -> Tensor:
        wide = x.float()
        return ((wide * wide).sum(-1, keepdim=True) + 1e-6).rsqrt() * wide

    x = drawn(4, 8, dtype=torch.float16)
    kernels, found = joined(work, x)
    assert [kernel.chain.inputs for kernel in kernels] == [1, 2]  # x itself, both times
    assert all(CAST in [step.function for step in kernel.chain.steps] for kernel in kernels)
    assert torch.equal(found, work(x))


def near(kernel: PointwiseKernel, *tensors: Tensor) -> bool:
    """The same but for the last digits: sums of rows are added up in another order."""
    found = kernel(*tensors)
    pairs = zip(found if isinstance(found, tuple) else (found,), kernel.by_torch(tensors), strict=True)
    return all(
        a.stride() == b.stride()
        and a.dtype is b.dtype
        and bool(((a - b).abs() <= last_digits(b) * (b.abs() + b.abs().mean())).all())
        for a, b in pairs
    )


def last_digits(one: Tensor) -> float:
    return 4 * torch.finfo(one.dtype).eps


def whole_norm(half: torch.dtype) -> Chain:
    """A residual sum and its norm, with the number that each row is divided by."""
    steps = (
        ChainStep(ADD, (From(0), From(1))),
        ChainStep(CAST, (From(3),), torch.float32),
        ChainStep(MUL, (From(4), From(4))),
        ChainStep(MEAN, (From(5), (-1,), True)),
        ChainStep(ADD, (From(6), 1e-6)),
        ChainStep(RSQRT, (From(7),)),
        ChainStep(MUL, (From(4), From(8))),
        ChainStep(CAST, (From(9),), half),
        ChainStep(MUL, (From(2), From(10))),
    )
    return Chain(3, steps, (3, 8, 11))


@pytest.mark.parametrize("half", [torch.float32, *HALVES])
@pytest.mark.parametrize("shape", [(2, 37, 96), (1, 1, 5), (3, 4097), (1, 70, 2048), (5, 1)])
def test_a_norm_is_one_kernel(half: torch.dtype, shape: tuple[int, ...]) -> None:
    kernel = kernel_of(whole_norm(half))
    x, y, w = drawn(*shape, dtype=half), drawn(*shape, dtype=half).flip(0), drawn(shape[-1], dtype=half)
    assert near(kernel, x, y, w)
    assert None not in kernel.launches.values()


def test_rows_may_lie_apart_and_a_number_may_be_given_for_each() -> None:
    steps = (
        ChainStep(MUL, (From(0), From(1))),
        ChainStep(MEAN, (From(2), (-1,), True)),
        ChainStep(SUB, (From(2), From(3))),
        ChainStep(MUL, (From(1), From(3))),
    )
    kernel = kernel_of(Chain(2, steps, (4, 5)))
    x = drawn(2, 9, 3, 40).transpose(1, 2)[..., 4:36]
    assert near(kernel, x, drawn(2, 3, 9, 1).exp())
    assert None not in kernel.launches.values()


def test_means_of_other_shapes_are_left_to_torch() -> None:
    steps = (
        ChainStep(MEAN, (From(0), (-1,), True)),
        ChainStep(MUL, (From(2), From(1))),
        ChainStep(MEAN, (From(3), (-1,), True)),
    )
    kernel = kernel_of(Chain(2, steps, (2, 4)))
    assert is_alike(kernel, drawn(3, 8), drawn(3, 1))  # the second mean is one of a single number
    assert is_alike(kernel, drawn(3, 20000), drawn(3, 20000))
    assert is_alike(kernel, drawn(8), drawn(8))
    assert set(kernel.launches.values()) == {None}


def test_a_gate_is_one_kernel() -> None:
    chain = Chain(2, (ChainStep(SILU, (From(0),)), ChainStep(MUL, (From(2), From(1)))), (2, 3))
    for half in (torch.float32, *HALVES):
        x = drawn(4, 70, dtype=half) * 20
        assert near(kernel_of(chain), x, drawn(4, 70, dtype=half))


@pytest.mark.parametrize("wrong", [False, True])
def test_a_kernel_is_held_against_torch(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pointwise.launch_chain
    if wrong:
        monkeypatch.setattr(pointwise, "launch_chain", lambda *given: [one * 1.01 for one in launch(*given)])
    kernel = kernel_of(whole_norm(torch.float32))
    x, y, w = drawn(3, 70), drawn(3, 70).flip(0), drawn(70)
    x[0, 0] = float("nan")
    with check_chains() as checks:
        found = kernel(x, y, w)
    assert [bool(one.agrees) for one in checks] == [not wrong]
    assert all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(found, kernel.by_torch((x, y, w)), strict=True)
    )


def test_a_kernel_that_cannot_be_compiled_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KeyError("no such operation")

    monkeypatch.setattr(pointwise, "launch_chain", refuse)
    kernel, given = kernel_of(whole_norm(torch.float32)), (drawn(3, 70), drawn(3, 70).flip(0), drawn(70))
    with check_chains() as checks:
        kernel(*given)
    leave_wrong(checks)
    assert is_alike(kernel, *given)
    assert set(kernel.launches.values()) == {None}


def test_a_whole_number_makes_another_chain_than_a_broken_one() -> None:
    def work(x: Tensor) -> Tensor:
        return ((x * 2 + x) @ x.t()) * 2.0 + (x * 2.0 + x).sum()

    x = torch.arange(9).view(3, 3).to(DEVICE)
    _, found = joined(work, x)
    assert found.dtype is work(x).dtype
    assert torch.equal(found, work(x))


def test_a_mean_of_what_cancels_is_held_beside_what_it_is_a_mean_of() -> None:
    """A norm of numbers around 0: beside their mean alone, each sum would seem wrong that is added up otherwise."""
    steps = (ChainStep(MEAN, (From(0), (-1,), True)), ChainStep(SUB, (From(0), From(1))))
    x = drawn(5, 700)
    x = x - x.double().mean(-1, keepdim=True).float()
    with check_chains() as checks:
        kernel_of(Chain(1, steps, (1, 2)))(x)
    assert [bool(one.agrees) for one in checks] == [True]


def turned(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


@pytest.mark.parametrize("half", [torch.float32, *HALVES])
def test_rotary_positions_in_a_trace_are_one_kernel(half: torch.dtype) -> None:
    def work(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = x.view(2, 9, 3, 16).transpose(1, 2)
        return q * cos + turned(q) * sin

    x, cos, sin = drawn(2, 9, 48, dtype=half), drawn(1, 1, 9, 16, dtype=half), drawn(1, 1, 9, 16, dtype=half).flip(2)
    kernels, found = joined(work, x, cos, sin)
    assert sizes(kernels) == [4]
    assert torch.equal(found, work(x, cos, sin))
    assert found.stride() == work(x, cos, sin).stride()
    assert None not in kernels[0].launches.values()


@pytest.mark.parametrize(
    "work",
    [
        lambda x: torch.cat((-x[..., 3:], x[..., :4]), dim=-1) * 2 + 1,
        lambda x: torch.cat((x[..., 4:], -x[..., :4]), dim=-1) * 2 + 1,
        lambda x: torch.cat((-x[..., 4:8], x[..., :4]), dim=-1) * 2 + 1,
        lambda x: torch.cat((-x[..., 4:], (x + 1)[..., :4]), dim=-1) * 2 + 1,
        lambda x: torch.cat((-x[4:], x[:4]), dim=-1) * 2 + 1,
        lambda x: torch.cat((-x[..., 4:], x[..., :4]), dim=0) * 2 + 1,
        lambda x: turned((x * 2 + 1).mul_(3)) * 2 + 1,
        lambda x: turned(x * 2 + 1) * x + x,
    ],
)
def test_what_only_looks_like_it_is_what_it_was(work: object) -> None:
    x = drawn(8, 8)
    kernels, found = joined(work, x)
    assert torch.equal(found, work(x))  # type: ignore[operator]
    assert kernels


def test_rotary_positions_of_a_cast_are_one_kernel() -> None:
    """The cast is stored: of a number at another place the program has no value."""

    def work(x: Tensor, cos: Tensor) -> Tensor:
        wide = x.float()
        return (wide * cos + turned(wide) * cos).to(x.dtype)

    x, cos = drawn(2, 4, 8, dtype=torch.float16), drawn(8)
    kernels, found = joined(work, x, cos)
    assert torch.equal(found, work(x, cos))
    assert kernels
    assert all(None not in kernel.launches.values() for kernel in kernels)


def test_what_is_written_between_is_seen() -> None:
    def work(x: Tensor) -> Tensor:
        y = x * 2
        first = y[..., :4]
        last = -y[..., 4:]
        y[..., :4].mul_(3)
        return torch.cat((last, first), dim=-1) * 2 + 1

    x = drawn(8, 8)
    assert torch.equal(joined(work, x)[1], work(x))


def test_a_norm_in_a_trace_is_one_kernel() -> None:
    def work(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        total = x + y
        wide = total.float()
        found = w * (wide * ((wide * wide).mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)
        return found @ total.t()

    x, y, w = drawn(4, 8, dtype=torch.float16), drawn(4, 8, dtype=torch.float16) * 2, drawn(8, dtype=torch.float16)
    kernels, found = joined(work, x, y, w)
    assert sizes(kernels) == [9]
    assert len(kernels[0].chain.gives) == 2
    assert (found - work(x, y, w)).abs().max() <= 1e-2


def test_a_norm_whose_weights_are_cast_is_one_kernel() -> None:
    def work(x: Tensor, w: Tensor) -> Tensor:
        wide = x.float()
        return (w.float() * (wide * ((wide * wide).mean(-1, keepdim=True) + 1e-6).rsqrt())).to(x.dtype)

    x, w = drawn(4, 8, dtype=torch.float16), drawn(8, dtype=torch.float16)
    (kernel,), found = joined(work, x, w)
    assert None not in kernel.launches.values()
    assert (found - work(x, w)).abs().max() <= 1e-2


def test_a_mean_that_meets_longer_rows_is_left_to_torch() -> None:
    def work(x: Tensor, y: Tensor) -> Tensor:
        return (x * 2).mean(-1, keepdim=True) * y + 1

    x, y = drawn(2, 3), drawn(2, 5)
    (kernel,), found = joined(work, x, y)
    assert torch.equal(found, work(x, y))
    assert set(kernel.launches.values()) == {None}


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_a_number_that_is_none_is_in_no_kernel(number: float) -> None:
    def work(x: Tensor) -> Tensor:
        return (x * 2 - 1 + number) * 3 + 1

    kernels, found = joined(work, x := drawn(2, 3))
    assert torch.equal(found.isnan(), work(x).isnan())
    assert torch.equal(found.isinf(), work(x).isinf())
    assert sizes(kernels) == [2, 2]


def test_what_is_written_into_is_read_before() -> None:
    def work(x: Tensor, y: Tensor) -> Tensor:
        z = x + 1
        first = z * y
        z.mul_(2)
        return (first + z) * y

    x, y = drawn(3, 5), drawn(3, 5)
    kernels, found = joined(work, x, y)
    assert torch.equal(found, work(x, y))
    assert sizes(kernels) == [2, 2]


def test_equal_chains_share_a_kernel_and_long_ones_are_cut() -> None:
    def layers(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(3):
            x = (x * y + 1) @ y.t() @ y
        return x

    def long(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(40):
            x = x * y
        return x @ y.t()

    x, y = drawn(3, 3), drawn(3, 3)
    kernels, found = joined(layers, x, y)
    assert len(kernels) == 3
    assert len({id(kernel) for kernel in kernels}) == 1
    assert torch.equal(found, layers(x, y))
    kernels, found = joined(long, x, y)
    assert sum(sizes(kernels)) == 40
    assert max(sizes(kernels)) <= 24
    assert torch.equal(found, long(x, y))
