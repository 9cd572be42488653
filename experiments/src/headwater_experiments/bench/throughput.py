"""How many texts per second a method explains, over a whole set of them, all methods in turn on the same batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from headwater.api.explain import explain
from headwater.errors import DataError
from headwater.evaluation.cost import Clock
from headwater.viz.tables import Table
from headwater_experiments.bench.cost import machine

TORCH = "torch"  # Gradient x Input without this library
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
        if name == TORCH:
            for start in range(0, len(part), batch_size):
                gradient_times_input(model, tokenizer, part[start : start + batch_size])
        else:
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


def gradient_times_input(model: nn.Module, tokenizer: Any, texts: Sequence[str]) -> list[Tensor]:
    """Gradient x Input of the predicted class as one would write it with torch: a number per token, and no ledger."""
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    words = table(batch.pop("input_ids")).detach().requires_grad_(True)
    logits = model(inputs_embeds=words, **batch).logits
    if logits.dim() == 3:  # of a language model: of the last token
        logits = logits[range(len(logits)), batch["attention_mask"].sum(-1) - 1]
    (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), words)
    relevance = (words.detach() * gradient).sum(-1)
    return [row[real] for row, real in zip(relevance, batch["attention_mask"].bool(), strict=True)]


def throughput_table(found: Sequence[Throughput], title: str) -> Table:
    rows = [(t.name, f"{t.seconds:.1f}", f"{t.texts / t.seconds:.1f}", f"{t.ratio:.2f}") for t in found]
    columns = ("method", "seconds", "texts a second", f"times as many as {found[0].name}")
    return Table(f"{title}; {machine()}", columns, rows, left=1)
