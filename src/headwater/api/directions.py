"""Along which directions the vectors of two texts are explained, where not along all dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def choose_directions(vectors: tuple[Tensor, Tensor], states: tuple[Tensor | None, Tensor | None], rank: int) -> Tensor:
    """[rank, dimensions]: orthonormal directions that hold the score, and most of what tokens do with each other.

    The first two span the vectors themselves. So the product of the vectors is kept whole, and so is what each token
    makes with the whole other text. The rest are the principal directions of the states of both texts' tokens at the
    last layer, which stand for what the tokens bring: that itself is not known before the backward passes. Where these
    do not suffice, or a model shows no states, directions come from a fixed random number generator. From rank 3 on the
    last one does: it says how much lies outside (`bound_remainder`).
    """
    kept = orthonormal(torch.stack(vectors))[:rank]
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(rank, kept.shape[1], generator=generator, dtype=torch.float64)
    some = orthonormal(torch.cat([kept, find_principal(states, kept), random]), max(rank - 1, len(kept)))
    return orthonormal(torch.cat([some, random]), rank)


def bound_remainder(first: Tensor, second: Tensor, rank: int, dimensions: int) -> float | None:
    """About the most that the norm of what the matrix misses can be; None where no direction is random.

    `first` and `second` are relevances [directions, tokens]. With E what tokens bring outside the directions, the
    matrix misses E_a^T E_b, whose norm is at most |E_a| |E_b| (Cauchy-Schwarz). The squared length of E along a random
    direction is on average that of E over the number of dimensions outside (Hutchinson).
    """
    if rank == dimensions:
        return 0.0
    if rank < 3:
        return None
    products = first[rank - 1 :: rank].norm(dim=1) * second[rank - 1 :: rank].norm(dim=1)
    return float((dimensions - rank) * products.sum())


def find_principal(states: tuple[Tensor | None, Tensor | None], kept: Tensor) -> Tensor:
    """The principal directions of the states of both texts, which count alike however long they are."""
    sides = [one / one.norm() for one in states if one is not None and one.shape[1] == kept.shape[1]]
    return torch.linalg.svd(torch.cat(sides), full_matrices=False).Vh if len(sides) == 2 else kept[:0]


def orthonormal(rows: Tensor, most: int | None = None) -> Tensor:
    """The same space, row by row (Gram-Schmidt, twice for precision); rows that add nothing are left out."""
    found: list[Tensor] = []
    for row in rows:
        if len(found) == most:
            break
        size = row.norm()
        for _ in range(2):
            for one in found:
                row = row - (row @ one) * one
        if row.norm() > 1e-9 * size:
            found.append(row / row.norm())
    return torch.stack(found)
