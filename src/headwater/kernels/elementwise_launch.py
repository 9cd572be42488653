"""One pass over memory on NVIDIA cards for what `elementwise` computes by several operations elsewhere."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ..traces.record import as_operation
from .cards import on_device
from .elementwise_programs import (
    centring_program,
    dot_program,
    flow_program,
    join_program,
    ratio_program,
    silu_product_program,
    silu_share_program,
)

BLOCK = 2048  # numbers of each tensor in a program


def launch_program(program: Any, given: tuple[Tensor, ...], made: tuple[Tensor, ...], *numbers: float) -> None:
    count = made[0].numel()
    with on_device(made[0]):
        program[(triton.cdiv(count, BLOCK),)](*given, *made, count, *numbers, BLOCK=BLOCK)


@as_operation
def multiply_silu(gate: Tensor, other: Tensor) -> Tensor:
    made = torch.empty_like(other)
    launch_program(silu_product_program, (gate, other), (made,))
    return made


@as_operation
def share_silu(gradient: Tensor, gate: Tensor, other: Tensor, share: float) -> tuple[Tensor, Tensor]:
    made = torch.empty_like(gate), torch.empty_like(other)
    launch_program(silu_share_program, (gradient, gate, other), made, share)
    return made


@as_operation
def launch_flow(size: Tensor, z: Tensor, gradient: Tensor, half: float) -> tuple[Tensor, Tensor]:
    made = torch.empty_like(gradient), torch.empty_like(gradient)
    launch_program(flow_program, (size, z, gradient), made, half)
    return made


@as_operation
def launch_join(whole: Tensor, x: Tensor, other: Tensor, half: float) -> Tensor:
    made = torch.empty_like(whole)
    launch_program(join_program, (whole, x, other), (made,), half)
    return made


@as_operation
def launch_ratio(x: Tensor, value: Tensor, slope: float) -> Tensor:
    made = torch.empty_like(x)
    launch_program(ratio_program, (x, value), (made,), slope)
    return made


@as_operation
def launch_centring(gradient: Tensor, weight: Tensor | None, scale: Tensor) -> Tensor:
    made, width = torch.empty_like(gradient), gradient.shape[-1]
    scale, vector = scale.float().contiguous(), scale if weight is None else weight.contiguous()
    with on_device(made):
        centring_program[(gradient.numel() // width,)](
            *(gradient, vector, scale, made, width), WEIGHED=weight is not None, BLOCK=triton.next_power_of_2(width)
        )
    return made


@as_operation
def launch_dot(gradient: Tensor, value: Tensor) -> Tensor:
    """Sums over blocks of numbers, in the order in which they lie in memory."""
    count = gradient.numel()
    sums = torch.empty(triton.cdiv(count, BLOCK), dtype=torch.float32, device=gradient.device)
    with on_device(gradient):
        dot_program[(len(sums),)](gradient, value, sums, count, BLOCK=BLOCK)
    return sums
