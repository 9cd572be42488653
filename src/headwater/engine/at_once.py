"""Several scores of one prediction in one backward pass, by torch.vmap over their gradients at the model's outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._functorch.predispatch import lazy_load_decompositions

from ..errors import HeadwaterError, NoSignal
from ..inputs.places import Captured
from ..inputs.restoring import undone
from ..kernels.batching import close_batch, open_batch
from ..rules import Books, Scope
from .forward import Demand, Read, Run, read_score, watch_nothing

ROWS = 2048  # scores times positions of one backward pass on the processor
ROWS_ON_CARD = 16384
SEEDS = 1 << 25  # numbers in the gradients that it starts from: 128 MiB of float32
SEEDS_ON_CARD = 1 << 28


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
        count = share_evenly(1 + len(further), self.most(first)) if self.possible else 1
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


def share_evenly(count: int, most: int) -> int:
    """How many of `count` scores the next backward pass has, where each takes at most `most`: about as many in each."""
    return ceil(count / ceil(count / most)) if most > 0 else 1


def gradients_at_once(leaves: list[Tensor], reads: list[Read]) -> list[Tensor]:
    """The gradient at each leaf, [scores, …]."""
    seeds = [torch.stack(parts) for parts in zip(*(read.gradients() for read in reads), strict=True)]
    opened = pull_batch(leaves, reads[0].ends, seeds)
    if not any(opened):
        raise NoSignal("the score does not depend on the input that is to be explained.")
    return [for_each(one, leaf, len(reads)) for one, leaf in zip(opened, leaves, strict=True)]


Opened = tuple[Tensor, int | None] | None


def pull_batch(leaves: list[Tensor], ends: Sequence[Any], seeds: Sequence[Tensor]) -> list[Opened]:
    """One backward pass from `ends`, for all gradients there, [scores, …]. What arrives at each leaf, if anything."""
    with (
        torch.autocast(leaves[0].device.type, enabled=False),
        undone(partial(warn_of_loops, True)),
        VmapLevel(len(seeds[0])) as level,
    ):
        warn_of_loops(False)
        starts = [close_batch(seed, level) for seed in seeds]
        found = torch.autograd.grad(ends, leaves, starts, retain_graph=True, allow_unused=True)
        return [None if gradient is None else open_batch(gradient) for gradient in found]


def for_each(opened: Opened, leaf: Tensor, scores: int) -> Tensor:
    """Zero where there is no gradient; the same for every score where it does not depend on the score."""
    if opened is None:
        return leaf.new_zeros(scores, *leaf.shape)
    gradient, level = opened
    return gradient.detach() if level is not None else gradient.detach().expand(scores, *leaf.shape)


class VmapLevel(undone):
    """Inside, torch.vmap is active, and a level to make batched tensors of. An interrupt ends it, too."""

    def __init__(self, size: int) -> None:
        lazy_load_decompositions()
        self.size = size
        self.depth: int = count_levels()
        super().__init__(self._end)

    def __enter__(self) -> int:  # type: ignore[override]
        super().__enter__()
        return int(functorch._vmap_increment_nesting(self.size, "error"))

    def _end(self) -> None:
        while count_levels() > self.depth:
            functorch._vmap_decrement_nesting()


def warn_of_loops(yes: bool) -> None:
    """Whether torch says that an operation goes through the scores one by one, for it has no other way."""
    functorch._set_vmap_fallback_warning_enabled(yes)  # type: ignore[attr-defined]


def count_levels() -> int:
    """How many transforms of torch.func are active."""
    return len(functorch.get_interpreter_stack() or ())
