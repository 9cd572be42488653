"""Along which directions the vectors of two texts are explained, where not along all dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def choose_directions(vectors: tuple[Tensor, Tensor], states: tuple[Tensor | None, Tensor | None], rank: int) -> Tensor:
    """[rank, dimensions]: orthonormal directions that hold the score, and most of what tokens do with each other.

    The first is along one of the two vectors, so that the product of the two is kept whole, whatever the rank. The
    second is along what is left of the other. The rest are those in which the states of both texts' tokens reach
    furthest together: the eigenvectors of the product of their second moments. A token's state at the last layer
    stands for what the token brings, which is not known before the backward passes. A model that shows no states has
    directions from a fixed random number generator.
    """
    kept = orthonormal(torch.stack(vectors))[:rank]
    if len(kept) == rank:
        return kept
    shared = find_shared(states, kept)
    if len(shared) < rank:
        generator = torch.Generator().manual_seed(0)
        random = torch.randn(rank, kept.shape[1], generator=generator, dtype=torch.float64)
        shared = torch.cat([shared, random])
    return orthonormal(torch.cat([kept, shared]))[:rank]


def find_shared(states: tuple[Tensor | None, Tensor | None], kept: Tensor) -> Tensor:
    """Directions beside those that are kept, the strongest in both texts first."""
    first, second = states
    if first is None or second is None or first.shape[1] != kept.shape[1] or second.shape[1] != kept.shape[1]:
        return kept[:0]
    sides = [one - (one @ kept.T) @ kept for one in (first, second)]
    basis = torch.linalg.svd(torch.cat(sides), full_matrices=False).Vh  # all that they span
    moments = [(side @ basis.T).T @ (side @ basis.T) for side in sides]
    product = moments[0] @ moments[1]
    strength, found = torch.linalg.eigh(product + product.T)
    return (found[:, strength.abs().argsort(descending=True)].T @ basis).contiguous()


def orthonormal(rows: Tensor) -> Tensor:
    """The same space, row by row (Gram-Schmidt, twice for precision); rows that add nothing are left out."""
    found: list[Tensor] = []
    for row in rows:
        size = row.norm()
        for _ in range(2):
            for one in found:
                row = row - (row @ one) * one
        if row.norm() > 1e-9 * size:
            found.append(row / row.norm())
    return torch.stack(found)
