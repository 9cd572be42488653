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
from headwater.traces.pointwise import CAST, Chain, ChainStep, From, aten, join_pointwise
from headwater.traces.record import Trace, TraceRecorder

pytest.importorskip("triton")
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
        return ((wide * wide).mean(-1, keepdim=True) + 1e-6).rsqrt() * wide

    x = drawn(4, 8, dtype=torch.float16)
    kernels, found = joined(work, x)
    assert [kernel.chain.inputs for kernel in kernels] == [1, 2]  # x itself, both times
    assert [kernel.chain.steps[0].function for kernel in kernels] == [CAST, CAST]
    assert torch.equal(found, work(x))


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
