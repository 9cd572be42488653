"""Rows times a matrix in float32 on NVIDIA cards, by the matrix units.

torch computes products of float32 without the matrix units, which take half precision. A number of float32 is the sum
of three of bfloat16, of 8 digits in base two each. Of the nine products of such parts six count, and their sum has all
digits of float32: products of rows in which the parts stand side by side.

What the matrix units add up they cut off after the last digit, always towards zero, where torch rounds. Over thousands
of steps that is a bias. So the five small products come first, and the largest is made of short sums, each of which is
given back what it lost on average, and is added to the others by rounding. Results then differ from torch's by rounding
alone.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ..traces.record import as_operation
from .cards import on_device
from .elementwise_programs import split_program

# By these parts of the left and the right factor, 0 the largest: a2 b0 + a1 b1 + a0 b2 + a1 b0 + a0 b1 + a0 b0.
LEFT, RIGHT = (2, 1, 0, 1, 0, 0), (0, 1, 2, 0, 1, 0)
PRODUCTS = len(LEFT)
BLOCK = 1024  # numbers in a program
SHORT = 512  # numbers in a sum that is cut off
STEP = 16  # numbers that the matrix units add at a time
LOST = 0.36 * 2.0**-23  # of what a sum is after a step: half of the last of 24 digits, the mean over all first digits
AT_ONCE = 1 << 24  # numbers of the rows that are taken apart at a time; their parts take 200 MB


@as_operation
def multiply_by_parts(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix, both of float32."""
    right = split_matrix(matrix)
    out = rows.new_empty((rows.shape[0], matrix.shape[1]))
    step = max(1, AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), step):
        multiply_parts(split(rows[start : start + step], LEFT, by_rows=True), right, out[start : start + step])
    return out


def split_matrix(matrix: Tensor) -> Tensor:
    """The parts of a matrix above one another, in the order of its own memory where that is columns."""
    if matrix.is_contiguous():
        return split(matrix, RIGHT, by_rows=False)
    return split(matrix.T.contiguous(), RIGHT, by_rows=True).T


def split(x: Tensor, parts: tuple[int, ...], *, by_rows: bool) -> Tensor:
    x = x.contiguous()
    height, width = x.shape
    shape = (height, PRODUCTS * width) if by_rows else (PRODUCTS * height, width)
    out = torch.empty(shape, dtype=torch.bfloat16, device=x.device)
    with on_device(x):
        split_program[(triton.cdiv(x.numel(), BLOCK),)](
            x, out, x.numel(), width, BY_ROWS=by_rows, PARTS=parts, PRODUCTS=PRODUCTS, BLOCK=BLOCK
        )
    return out


def multiply_parts(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Sums are in float32."""
    inner = left.shape[1] // PRODUCTS
    small = inner * (PRODUCTS - 1)
    add_product(left[:, :small], right[:small], out, beta=0)
    pieces = -(-inner // SHORT)
    for number in range(pieces):
        own = slice(small + number * inner // pieces, small + (number + 1) * inner // pieces)
        add_product(left[:, own], right[own], out, alpha=give_back(inner / pieces))


def give_back(count: float) -> float:
    """What makes a sum of so many numbers as large as it was before it was cut off: it grows from step to step."""
    return 1 + LOST * (count / STEP + 1) / 2


def add_product(left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1, beta: int = 1) -> None:
    """out = beta out + alpha left @ right."""
    if left.is_cuda:
        torch.addmm(out, left, right, out_dtype=torch.float32, alpha=alpha, beta=beta, out=out)
    else:  # where Triton's interpreter serves: torch has no such product there, and rounds
        torch.addmm(out, left.float(), right.float(), beta=beta, out=out)
