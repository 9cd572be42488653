"""How many texts a second a method explains, over a whole set of them, all methods in turn on the same batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..api import explain
from ..errors import DataError
from ..viz.tables import Table
from .cost import Clock, machine

BATCH = 16
BATCHES = 4  # after which the next method has its turn


@dataclass(frozen=True)
class Throughput:
    """Seconds for all texts, and how many times as many texts a second as the first method."""

    name: str
    texts: int
    seconds: float
    ratio: float


def measure(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    methods: Sequence[str] = ("gi", "lrp"),
    batch_size: int = BATCH,
    clock: Clock = time.perf_counter,
) -> list[Throughput]:
    """Texts of like length share a batch; a few batches by every method, then the next."""
    if not texts:
        raise DataError("there are no texts to explain.")
    ordered = sorted(texts, key=len)
    step = batch_size * BATCHES
    seconds = dict.fromkeys(methods, 0.0)
    for start in range(-step, len(ordered), step):  # the first turn warms up
        part = ordered[max(start, 0) : max(start, 0) + step]
        for name in methods:
            before = clock()
            explain(model, part, tokenizer=tokenizer, method=name, batch_size=batch_size)
            seconds[name] += (clock() - before) * (start >= 0)
    first = seconds[methods[0]]
    return [Throughput(name, len(texts), seconds[name], first / seconds[name]) for name in methods]


def table(found: Sequence[Throughput], title: str) -> Table:
    rows = [(t.name, f"{t.seconds:.1f}", f"{t.texts / t.seconds:.1f}", f"{t.ratio:.2f}") for t in found]
    columns = ("method", "seconds", "texts a second", f"times as many as {found[0].name}")
    return Table(f"{title}; {machine()}", columns, rows, left=1)
