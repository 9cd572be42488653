"""A network written by hand, whose relevance a reader can compute on paper: one attention, one layer of neurons."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ByHand(nn.Module):
    """One attention of two heads and one layer of neurons, each with a residual sum; no normalisation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(10, 6)
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(6, 5), nn.Linear(5, 6), nn.Linear(6, 2)
        self.double().eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def weigh(self, x: Tensor) -> Tensor:
        """[batch, heads, tokens, tokens]"""
        q, k = (one(x).unflatten(-1, (2, 3)).transpose(1, 2) for one in (self.q, self.k))
        return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(3), -1)

    def mix(self, x: Tensor) -> Tensor:
        """[batch, heads, tokens, 3]"""
        return self.weigh(x) @ self.v(x).unflatten(-1, (2, 3)).transpose(1, 2)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        x = x + self.o(self.mix(x).transpose(1, 2).flatten(2))
        x = x + self.down(F.relu(self.up(x)))
        return self.head(x.mean(1))
