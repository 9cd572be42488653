"""What an explanation costs, as a ratio to the prediction alone, measured interleaved in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..api.explain import explain
from .peak_memory import Meter

METHODS = ("gi", "lrp(ah+ln)", "lrp")

Clock = Callable[[], float]
Job = Callable[[], Any]


@dataclass(frozen=True)
class Cost:
    """Median seconds, and the median over rounds of the ratio to that round's forward pass. Lower is better.

    `memory` is the most that was held above the model, in bytes. What did not fit has no times.
    """

    name: str
    seconds: float
    ratio: float
    low: float
    high: float
    error: float | None
    memory: int | None = None
    tokens: int | None = None
    batch: int | None = None


def measure_costs(
    model: nn.Module,
    inputs: dict[str, Any],
    methods: Sequence[str] = METHODS,
    rounds: int = 7,
    others: Mapping[str, Job] | None = None,
    clock: Clock = time.perf_counter,
    **options: Any,
) -> list[Cost]:
    """Each round times the forward pass and then every method once; a round before the first warms up.

    In that one memory is measured too. `options` go to `explain`, for methods that need a tokenizer or a seed.
    `others` are timed beside the methods.
    """
    jobs: dict[str, Job] = {"forward": lambda: run_forward(model, inputs)}
    for name in methods:
        jobs[name] = lambda name=name: explain(model, inputs, method=name, **options)  # type: ignore[misc]
    jobs |= others or {}
    on_card = next(model.parameters()).is_cuda
    meter = Meter.start(on_card)
    first = {name: try_job(job, meter) for name, job in jobs.items()}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            if first[name] is not None:
                times[name].append(time_job(job, on_card, clock))
    return [cost(name, times[name], times["forward"], first[name], inputs) for name in jobs]


@dataclass(frozen=True)
class First:
    """What is seen of a job the first time."""

    error: float | None
    memory: int | None


def try_job(job: Job, meter: Meter | None) -> First | None:
    """None where memory was too little. On a card it is seen twice, for kernels are chosen in the first run."""
    try:
        result, memory = (job(), None) if meter is None else meter.peak(job)
        if meter is not None and meter.on_card:
            result, memory = meter.peak(job)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
    explained = isinstance(result, list) and result and hasattr(result[0], "ledger")
    return First(max(e.ledger.error for e in result) if explained else None, memory)


def run_forward(model: nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**inputs)


def time_job(job: Job, on_card: bool, clock: Clock = time.perf_counter) -> float:
    if on_card:
        torch.cuda.synchronize()
    start = clock()
    job()
    if on_card:
        torch.cuda.synchronize()
    return clock() - start


def cost(name: str, mine: list[float], forward: list[float], first: First | None, inputs: dict[str, Any]) -> Cost:
    ids = inputs.get("input_ids")
    batch, tokens = (None, None) if ids is None else (len(ids), ids.shape[1])
    if first is None:
        never = float("nan")
        return Cost(name, never, never, never, never, None, None, tokens, batch)
    ratios = [a / b for a, b in zip(mine, forward, strict=True)]
    middle = (statistics.median(mine), statistics.median(ratios), min(ratios), max(ratios))
    return Cost(name, *middle, first.error, first.memory, tokens, batch)
