"""How many texts per second a method explains, over a whole set of them, all methods in turn on the same batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch import nn

from headwater.api.explain import explain
from headwater.errors import DataError
from headwater.evaluation.cost import Clock
from headwater.viz.tables import Table
from headwater_experiments.bench.cost import machine

BATCH = 16
BATCHES = 4  # after which the next method has its turn


@dataclass(frozen=True)
class Throughput:
    """Seconds for all texts, and how many times as many texts per second as the first method: medians over rounds."""

    name: str
    texts: int
    seconds: float
    ratio: float


def measure_throughput(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    methods: Sequence[str] = ("gi", "lrp"),
    batch_size: int = BATCH,
    clock: Clock = time.perf_counter,
    rounds: int = 1,
) -> list[Throughput]:
    """Texts of like length share a batch; a few batches by every method, then the next."""
    if not texts:
        raise DataError("there are no texts to explain.")
    ordered = sorted(texts, key=len)
    step = batch_size * BATCHES
    parts = [ordered[start : start + step] for start in range(0, len(ordered), step)]

    def once(name: str, part: Sequence[str]) -> float:
        before = clock()
        explain(model, part, tokenizer=tokenizer, method=name, batch_size=batch_size)
        return clock() - before

    for name in methods:  # to warm up
        once(name, parts[0])
    seconds = [dict.fromkeys(methods, 0.0) for _ in range(rounds)]
    for taken in seconds:
        for part in parts:
            for name in methods:
                taken[name] += once(name, part)
    first = methods[0]
    return [
        Throughput(
            name,
            len(texts),
            median(taken[name] for taken in seconds),
            median(taken[first] / taken[name] for taken in seconds),
        )
        for name in methods
    ]


def throughput_table(found: Sequence[Throughput], title: str) -> Table:
    rows = [(t.name, f"{t.seconds:.1f}", f"{t.texts / t.seconds:.1f}", f"{t.ratio:.2f}") for t in found]
    columns = ("method", "seconds", "texts a second", f"times as many as {found[0].name}")
    return Table(f"{title}; {machine()}", columns, rows, left=1)
