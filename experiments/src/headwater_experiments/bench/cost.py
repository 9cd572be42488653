"""What explanations cost, with recordings and the fastest attention, as a table that names the machine."""

from __future__ import annotations

import math
import platform
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headwater.api.explain import explain
from headwater.errors import UsageError
from headwater.evaluation.cost import Clock, Cost, Job, measure_costs, run_forward, time_job
from headwater.memory.cuda_graphs import Recorder
from headwater.viz.tables import Table

WARM = 4  # lengths
PRESETS = ("gi", "lrp(ah+ln)", "lrp", "lrp-gamma", "lrp-secant", "attnlrp")
GIB = 2**30


def measure_replays(
    model: nn.Module, inputs: dict[str, Any], methods: Sequence[str], rounds: int, clock: Clock, **options: Any
) -> tuple[list[Cost], list[str]]:
    """Every method from a recording, which is made the second time that it runs; and why others are not replayed.

    One method at a time, in turn with the forward pass: its recording is given back before the next one is made.
    """
    found: list[Cost] = []
    reasons: list[str] = []
    for name in methods:
        recorder = Recorder(shapes=1)

        def job(name: str = name, recorder: Recorder = recorder) -> Any:
            with recorder.at_work():
                return explain(model, inputs, method=name, output="logit", **options)

        try:
            found += measure_costs(model, inputs, (), rounds, others={f"{name}, replayed": job}, clock=clock)[1:]
        finally:
            recorder.release()
        reasons += [f"{name}: {why}" for why in recorder.refused.values()]
    return found, reasons


def mixed_lengths(shortest: int, longest: int, count: int, seed: int = 0) -> list[int]:
    """So many lengths between two, none twice, in random order behind the two."""
    if longest - shortest - 1 < count:
        raise UsageError(f"there are no {count} lengths between {shortest} and {longest} tokens.")
    between = random.Random(seed).sample(range(shortest + 1, longest), count)
    return [shortest, longest, *between]


def mixed_costs(jobs: Callable[[int], dict[str, Job]], lengths: Sequence[int], on_card: bool) -> list[Cost]:
    """Jobs on inputs of changing length, each once a length, each first in its turn; the first is the forward pass.

    The first lengths are not counted: what is learned of a model, and which kernels there are, is learned there.
    """
    names = list(jobs(lengths[0]))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number, length in enumerate(lengths):
        todo = jobs(length)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            took = time_job(todo[name], on_card)
            if number >= WARM:
                seconds[name].append(took)
    forward, *_ = seconds.values()
    found = []
    for name, mine in seconds.items():
        ratios = [a / b for a, b in zip(mine, forward, strict=True)]
        middle = (statistics.median(mine), statistics.median(ratios), min(ratios), max(ratios))
        found.append(Cost(name, *middle, None))
    return found


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
                time_job(lambda: run_forward(model, inputs), True)
                seconds[backend] = min(time_job(lambda: run_forward(model, inputs), True) for _ in range(3))
        except RuntimeError:  # it has no kernel for this shape
            continue
    best = min(seconds, key=lambda backend: seconds[backend], default=SDPBackend.MATH)
    with sdpa_kernel([best, SDPBackend.MATH]):
        yield best.name.lower().replace("_", " ")


def cost_table(costs: Sequence[Cost], title: str) -> Table:
    """A row for the forward pass and for every method; the title names the machine."""
    rows = [(c.name, str(c.tokens or ""), *format_cost(c)) for c in costs]
    columns = ("method", "tokens", "seconds", "x forward", "lowest to highest", "GiB above the model", "ledger error")
    return Table(f"{title}; {machine()}", columns, rows, left=1)


def format_cost(c: Cost) -> tuple[str, ...]:
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
        f"{card}{processor_name()}, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )


def processor_name() -> str:
    """The processor's name where the system tells it, else its architecture."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
