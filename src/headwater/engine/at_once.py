"""Several scores of one prediction in one backward pass: torch.vmap over their gradients at the model's outputs."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import HeadwaterError, NoSignal
from ..inputs.places import Captured
from ..rules import Books, Scope
from .forward import Demand, Read, Run, read_score, watch_nothing

ROWS = 2048  # scores times positions of one backward pass on the processor
ROWS_ON_CARD = 16384
SEEDS = 1 << 25  # numbers in the gradients that it starts from: 128 MiB of float32
SEEDS_ON_CARD = 1 << 28
LOOPS = "There is a performance drop"  # what torch says where it goes through scores one by one, inside an operation


@dataclass(frozen=True)
class Pulled:
    """What a backward pass found for one score."""

    read: Read
    gradients: list[Tensor]
    books: Books


@dataclass
class AtOnce:
    """Backward passes of as many scores as memory allows. It gives up for good where one cannot be had."""

    run: Run
    scope: Scope
    inputs: list[Captured]
    possible: bool
    ready: deque[Pulled] = field(default_factory=deque)

    @classmethod
    def of(cls, run: Run, demand: Demand, scope: Scope, inputs: list[Captured]) -> AtOnce:
        watched = run.inspect is not None or run.watch is not watch_nothing or run.scope is not Scope
        return cls(run, scope, inputs, demand.backward and not watched and not scope.books.needs_probe)

    def pull(self, first: Read, further: Sequence[Callable[..., Any]], out: Any) -> Pulled | None:
        """The first score's, with others' kept `ready`; None where it has to be explained alone."""
        count = min(1 + len(further), self.most(first)) if self.possible else 1
        if count < 2:
            return None
        reads = [first, *(read_score(replace(self.run, read=reader), out) for reader in further[: count - 1])]
        self.ready.extend(self._pull_all(reads))
        self.possible = bool(self.ready)
        return self.ready.popleft() if self.ready else None

    def most(self, read: Read) -> int:
        """How many scores one backward pass may have: it works on a row per score and position."""
        processor = read.ends[0].device.type == "cpu"
        rows = sum(one.leaf.shape[:-1].numel() for one in self.inputs)
        seeds = sum(end.numel() for end in read.ends)
        by_rows = (ROWS if processor else ROWS_ON_CARD) // max(1, rows)
        by_seeds = (SEEDS if processor else SEEDS_ON_CARD) // max(1, seeds)
        return min(by_rows, by_seeds, self.run.scores_at_once or by_rows)

    def _pull_all(self, reads: list[Read]) -> list[Pulled]:
        """Nothing where they do not start from the same outputs, or an operation cannot be batched."""
        books = self.scope.books
        if any([id(end) for end in read.ends] != [id(end) for end in reads[0].ends] for read in reads):
            return []
        books.scores = len(reads)
        try:
            found = gradients_at_once([one.leaf for one in self.inputs], reads)
            own = books.take_each()
        except (RuntimeError, HeadwaterError):  # one by one, it is said what is wrong, if anything is
            return []
        finally:
            books.take()  # what a pass that broke off has booked
            books.scores = None
        return [Pulled(read, [g[k] for g in found], own[k]) for k, read in enumerate(reads)]


def gradients_at_once(leaves: list[Tensor], reads: list[Read]) -> list[Tensor]:
    """The gradient at each leaf, [scores, …]."""
    seeds = [torch.stack(parts) for parts in zip(*(read.gradients() for read in reads), strict=True)]
    used: list[bool] = []

    def pull(*starts: Tensor) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(reads[0].ends, leaves, starts, retain_graph=True, allow_unused=True)
        used[:] = [gradient is not None for gradient in found]
        if not any(used):
            raise NoSignal("the score does not depend on the input that is to be explained.")
        return tuple(gradient for gradient in found if gradient is not None)

    with torch.autocast(leaves[0].device.type, enabled=False), without_warnings():
        made = iter(torch.vmap(pull)(*seeds))
    return [
        next(made).detach() if one else leaf.new_zeros(len(reads), *leaf.shape)
        for leaf, one in zip(leaves, used, strict=True)
    ]


@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=LOOPS)
        yield
