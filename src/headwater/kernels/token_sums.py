"""The γ-rule in sums over tokens: y_i = sum_j p_ij v_j, in which tokens that agree with the sum count more.

With the gradient g_i at y_i, token j has the term r_ij = p_ij <g_i, v_j> in R_i = sum_j r_ij. A term that has the sign
of R_i counts 1 + gamma times, and all are rescaled to R_i. So values get dV_j = sum_i w_ij p_ij g_i with
w_ij = (1 + gamma [r_ij R_i > 0]) R_i / S_i and S_i = R_i + gamma (R_i + sign(R_i) sum_j |r_ij|) / 2. S_i is 0 only
where R_i is, so no epsilon is needed; there all w_ij are 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TokenRule:
    """How values share what comes back to a sum over tokens. `value` is [batch, heads of the values, keys, size].

    The values take p_ij (1 + offset (sum_k p_ik log p_ik - log p_ij)) instead of p_ij: `offset` is the part of the
    weights, of which the constant c of their tangent p = J s + c is the values'.
    """

    value: Tensor
    gamma: float = 0.0
    offset: float = 0.0

    def with_offset(self, weights: Tensor) -> Tensor:
        """What the values are mixed by."""
        if not self.offset:
            return weights
        logs = torch.xlogy(weights, weights)
        mean = logs.sum(-1, keepdim=True)
        return torch.addcmul(weights, weights, mean, value=self.offset).sub_(logs, alpha=self.offset)

    def boost(self, weights: Tensor, gradient: Tensor, value: Tensor) -> Tensor:
        """w_ij p_ij, [queries, keys] as the weights: new memory, unless there is no gamma."""
        if not self.gamma:
            return weights
        terms = (gradient @ value.transpose(-2, -1)).mul_(weights)
        return agreeing(terms, self.gamma).mul_(weights)


def agreeing(terms: Tensor, gamma: float) -> Tensor:
    """w for the terms of sums along the last axis, in the memory of `terms`."""
    total = terms.sum(-1, keepdim=True)
    scale = rescale(total, torch.linalg.vector_norm(terms, 1, -1, keepdim=True), gamma)
    return terms.mul_(total.sign()).gt_(0).mul_(gamma).add_(1.0).mul_(scale)


def rescale(total: Tensor, size: Tensor, gamma: float) -> Tensor:
    """R / S, of the sum R of terms and the sum of their absolute values."""
    boosted = total + 0.5 * gamma * (total + total.sign() * size)
    return torch.where(boosted == 0, torch.ones_like(total), total / boosted)
