"""What an explanation costs, as a ratio to the prediction alone, measured interleaved in one process."""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..api import explain
from ..viz.tables import Table
from .memory import Meter
from .peers import Job

METHODS = ("gi", "lrp(ah+ln)", "lrp")
PRESETS = ("gi", "lrp(ah+ln)", "lrp", "lrp-gamma", "lrp-secant", "attnlrp")
GIB = 2**30

Clock = Callable[[], float]


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


def measure(
    model: nn.Module,
    inputs: dict[str, Any],
    methods: Sequence[str] = METHODS,
    rounds: int = 7,
    tick: Callable[[], None] = lambda: None,
    given: Any = None,
    others: Mapping[str, Job] | None = None,
    clock: Clock = time.perf_counter,
    **options: Any,
) -> list[Cost]:
    """Each round times the forward pass and then every method once; a round before the first warms up.

    In that one memory is measured too. `given` is what `explain` gets, where that is not the model's arguments.
    `options` go to `explain`, for methods that need a tokenizer or a seed. `others` are timed beside the methods.
    """
    asked = inputs if given is None else given
    jobs: dict[str, Job] = {"forward": lambda: predict(model, inputs)}
    for name in methods:
        jobs[name] = lambda name=name: explain(model, asked, method=name, **options)  # type: ignore[misc]
    jobs |= others or {}
    on_card = next(model.parameters()).is_cuda
    meter = Meter.started(on_card)
    first = {name: tried(job, meter) for name, job in jobs.items()}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            if first[name] is not None:
                times[name].append(timed(job, on_card, clock))
            tick()
    return [cost(name, times[name], times["forward"], first[name], inputs) for name in jobs]


@dataclass(frozen=True)
class First:
    """What is seen of a job the first time."""

    error: float | None
    memory: int | None


def tried(job: Job, meter: Meter | None) -> First | None:
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


def predict(model: nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**inputs)


def timed(job: Job, on_card: bool, clock: Clock = time.perf_counter) -> float:
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


@contextmanager
def fastest_attention(model: nn.Module, inputs: dict[str, Any]) -> Iterator[str]:
    """Everything inside runs with the attention kernel of torch that makes the forward pass fastest; its name.

    On the processor there is one. On a card torch chooses by rules of thumb, of which the clock knows better.
    """
    if not next(model.parameters()).is_cuda:
        yield ""
        return
    seconds: dict[SDPBackend, float] = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                timed(lambda: predict(model, inputs), True)
                seconds[backend] = min(timed(lambda: predict(model, inputs), True) for _ in range(3))
        except RuntimeError:  # it has no kernel for this shape
            continue
    best = min(seconds, key=lambda backend: seconds[backend], default=SDPBackend.MATH)
    with sdpa_kernel([best, SDPBackend.MATH]):
        yield best.name.lower().replace("_", " ")


def table(costs: Sequence[Cost], title: str) -> Table:
    """A row for the forward pass and for every method; the title names the machine."""
    rows = [(c.name, str(c.tokens or ""), *written(c)) for c in costs]
    columns = ("method", "tokens", "seconds", "x forward", "lowest to highest", "GiB above the model", "ledger error")
    return Table(f"{title}; {machine()}", columns, rows, left=1)


def written(c: Cost) -> tuple[str, ...]:
    if math.isnan(c.seconds):
        return ("out of memory", "", "", "", "")
    return (
        f"{c.seconds:.3f}",
        f"{c.ratio:.2f}",
        f"{c.low:.2f} to {c.high:.2f}",
        "" if c.memory is None else f"{c.memory / GIB:.2f}",
        "" if c.error is None else f"{c.error:.1e}",
    )


def machine() -> str:
    """Where it was measured, in words."""
    threads = torch.get_num_threads()
    card = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return (
        f"{card}{processor()}, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )


def processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
