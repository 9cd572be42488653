"""An evaluation within a limit of memory: how many samples are explained at once, and how many perturbed inputs run.

The largest sample decides: pieces of its explanation by every method, and a few of its perturbed inputs, are really run
before the work begins, and what torch allocates is counted. Shorter ones then go together as far as their tokens add up
to no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ..engine.model import where_it_is
from ..errors import check_least
from ..memory.policy import UNLIMITED, MemoryPolicy
from ..methods import resolve_method

TOKENS_A_THREAD, TOKENS_ON_CPU, TOKENS_ELSEWHERE = 2048, 4096, 2**17


@dataclass(frozen=True)
class Bound:
    """One method's explanations: so many of the largest sample at once, `length` each, and how they are kept."""

    samples: int
    length: int
    room: MemoryPolicy


@dataclass(frozen=True)
class Bounds:
    """Without a limit all is as it was asked for; with one every method has its own."""

    room: MemoryPolicy = UNLIMITED
    methods: Mapping[str, Bound] = field(default_factory=dict)
    inputs: int | None = None  # perturbed ones of the largest sample at once

    def room_of(self, method: str) -> MemoryPolicy:
        """Only what is made of rules can be computed again; all other methods are left as they are."""
        if method in self.methods:
            return self.methods[method].room
        return self.room if resolve_method(method).group == "rules" else replace(self.room, recompute=None)

    def samples_of(self, method: str, asked: int) -> int:
        return min(asked, self.methods[method].samples) if method in self.methods else asked

    def length_of(self, method: str, asked: float) -> float:
        """Of all samples that go together."""
        bound = self.methods.get(method)
        return asked if bound is None else min(asked, bound.samples * bound.length)

    def within(self, budget: int) -> int:
        """Tokens of perturbed inputs in a batch."""
        length = max((bound.length for bound in self.methods.values()), default=0)
        return budget if self.inputs is None else min(budget, self.inputs * length)

    def groups(self, count: int, most: int | None) -> list[range]:
        """Numbers below `count`, so many at once."""
        step = count if most is None else min(count, most)
        return [range(start, min(start + step, count)) for start in range(0, count, step)]


def share_limit(limit: int, weights: int, workers: int) -> int:
    """What one of several processes may take: each has a copy of the model, beside the one that hands out the work."""
    return limit if workers <= 1 else (limit - weights) // workers


def model_bytes(model: Any) -> int:
    return sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))


def budget(model: nn.Module, tokens: int | None) -> int:
    """Tokens in a batch: enough to keep all threads, or the device, busy; beyond that only memory grows."""
    if tokens is None and where_it_is(model)[0].type == "cpu":
        return min(TOKENS_ON_CPU, TOKENS_A_THREAD * torch.get_num_threads())
    if tokens is None:
        return TOKENS_ELSEWHERE
    check_least("batch_tokens", tokens)
    return tokens
