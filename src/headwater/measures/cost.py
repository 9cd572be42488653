"""What an explanation costs, as a ratio to the prediction alone, measured interleaved in one process."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..api import explain
from ..viz.tables import Table

METHODS = ("gi", "lrp(ah+ln)", "lrp")


@dataclass(frozen=True)
class Cost:
    """Median seconds, and the median over rounds of the ratio to that round's forward pass. Lower is better."""

    name: str
    seconds: float
    ratio: float
    low: float
    high: float
    error: float | None


@dataclass(frozen=True)
class Shape:
    """A model by its measures; the default is BERT-base."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522
    positions: int = 512


def random_bert(shape: Shape, seed: int = 0) -> nn.Module:
    """A BERT classifier of that shape with random weights: cost does not depend on what they are."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = BertForSequenceClassification(config).eval()
    return model


def measure(
    model: nn.Module,
    inputs: dict[str, Any],
    methods: Sequence[str] = METHODS,
    rounds: int = 7,
    tick: Callable[[], None] = lambda: None,
    given: Any = None,
    **options: Any,
) -> list[Cost]:
    """Each round times the forward pass and then every method once; a round before the first warms up.

    `given` is what `explain` gets, where that is not the model's arguments. `options` go to `explain`, for methods that
    need a tokenizer or a seed.
    """
    asked = inputs if given is None else given
    jobs: dict[str, Callable[[], Any]] = {"forward": lambda: predict(model, inputs)}
    for name in methods:
        jobs[name] = lambda name=name: explain(model, asked, method=name, **options)  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in jobs}
    errors: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            seconds, result = timed(job, model)
            if number:
                times[name].append(seconds)
            elif name != "forward":
                errors[name] = max(e.ledger.error for e in result)
            tick()
    return [cost(name, times[name], times["forward"], errors.get(name)) for name in jobs]


def predict(model: nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**inputs)


def timed(job: Callable[[], Any], model: nn.Module) -> tuple[float, Any]:
    on_gpu = next(model.parameters()).is_cuda
    start = time.perf_counter()
    result = job()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def cost(name: str, mine: list[float], forward: list[float], error: float | None) -> Cost:
    ratios = [a / b for a, b in zip(mine, forward, strict=True)]
    return Cost(name, statistics.median(mine), statistics.median(ratios), min(ratios), max(ratios), error)


def table(costs: Sequence[Cost], title: str) -> Table:
    """A row for the forward pass and for every method; the title names the machine."""
    rows = [
        (
            c.name,
            f"{c.seconds:.3f}",
            f"{c.ratio:.2f}",
            f"{c.low:.2f} to {c.high:.2f}",
            "" if c.error is None else f"{c.error:.1e}",
        )
        for c in costs
    ]
    columns = ("method", "seconds", "x forward", "lowest to highest", "ledger error")
    return Table(f"{title}; {machine()}", columns, rows, left=1)


def machine() -> str:
    """Where it was measured, in words."""
    threads = torch.get_num_threads()
    return (
        f"{platform.machine()}, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
