"""How much faster the evaluation is than a loop over single sentences, measured interleaved in one process.

The loop is what one writes first: for every sentence and method an explanation, for every step of every curve a
forward pass. It shares nothing with the evaluation but the model and `explain`, so it also serves as its check.

What can be gained on one core is bounded: a batch saves the overhead of a call, not its arithmetic, and each input is
run once. With more cores, or a graphics card, batches gain what single sentences cannot use.
"""

from __future__ import annotations

import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..api import explain
from ..errors import DataError
from ..targets import logits_of
from .evaluation import evaluate
from .tasks import DEFAULT, TASKS, Floats

METHODS = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")
PERCENT = {"comprehensiveness": (1, 5, 10, 20, 50), "sufficiency": (1, 5, 10, 20, 50)}
TENTHS = tuple(range(0, 101, 10))

Curves = dict[str, dict[str, Floats]]


@dataclass(frozen=True)
class Speed:
    """Median seconds of both, and the median over rounds of their ratio.

    `apart` is the largest difference between the curves, relative to the largest value of each.
    """

    samples: int
    methods: tuple[str, ...]
    measures: tuple[str, ...]
    loop: float
    evaluation: float
    ratio: float
    low: float
    high: float
    apart: float


def loop(
    model: nn.Module,
    tokenizer: Any,
    rows: Sequence[tuple[str, int]],
    methods: Sequence[str],
    measures: Sequence[str] = DEFAULT,
) -> Curves:
    """Curves [samples, steps] by method and measure, by protocol `ali2022`, one input at a time."""
    found: dict[str, dict[str, list[list[float]]]] = {method: {name: [] for name in measures} for method in methods}
    for text, label in rows:
        fields = dict(tokenizer(text, return_tensors="pt"))
        whole = predict(model, fields)
        for method in methods:
            relevances: dict[int, list[float]] = {}
            for name in measures:
                target = label if name in DEFAULT else int(whole.argmax())
                if target not in relevances:
                    made = explain(model, text, tokenizer=tokenizer, method=method, target=target)
                    relevances[target] = made.relevance.tolist()
                found[method][name].append([])
                for percent in PERCENT.get(name, TENTHS):
                    missing = replaced_at(name, relevances[target], percent)
                    answer = predict(model, without(fields, missing, tokenizer.unk_token_id))
                    found[method][name][-1].append(read(name, answer, whole, target))
    return {m: {name: np.array(steps) for name, steps in curves.items()} for m, curves in found.items()}


def replaced_at(name: str, relevance: list[float], percent: int) -> set[int]:
    """Which tokens a step replaces."""
    items = range(len(relevance))
    count = math.ceil(percent * len(relevance) / 100)
    if name == "pruning":
        return set(sorted(items, key=lambda i: abs(relevance[i]))[:count])
    best = sorted(items, key=lambda i: -relevance[i])
    return set(best[count:] if name in ("activation", "insertion", "sufficiency") else best[:count])


def without(fields: dict[str, Any], missing: set[int], by: int) -> dict[str, Any]:
    ids = [by if i in missing else token for i, token in enumerate(fields["input_ids"][0].tolist())]
    return {**fields, "input_ids": torch.tensor([ids])}


def predict(model: nn.Module, fields: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return logits_of(model(**fields))[0].double()


def read(name: str, answer: Tensor, whole: Tensor, target: int) -> float:
    if name == "pruning":
        return float((whole - answer).square().sum())
    shown = float(answer.softmax(0)[target])
    return float(whole.softmax(0)[target]) - shown if name in PERCENT else shown


def measure(
    model: nn.Module,
    tokenizer: Any,
    rows: Sequence[tuple[str, int]],
    methods: Sequence[str] = METHODS,
    measures: Sequence[str] = DEFAULT,
    rounds: int = 3,
) -> Speed:
    """Each round times the loop and the evaluation once, on the same rows; a short round before warms both up."""
    if not rows:
        raise DataError("there are no rows to measure on.")
    loop(model, tokenizer, rows[:2], methods, measures)
    times: list[tuple[float, float]] = []
    apart = 0.0
    for _ in range(rounds):
        start = time.perf_counter()
        slow = loop(model, tokenizer, rows, methods, measures)
        between = time.perf_counter()
        fast = evaluate(
            model, list(rows), methods=methods, measures=measures, tokenizer=tokenizer, runtime=False, progress=False
        )
        times.append((between - start, time.perf_counter() - between))
        apart = max(apart, *(furthest(slow[m], fast.samples.values[m]) for m in fast.methods))
    ratios = [a / b for a, b in times]
    slower, faster = (statistics.median(column) for column in zip(*times, strict=True))
    spread = (statistics.median(ratios), min(ratios), max(ratios))
    return Speed(len(rows), tuple(methods), tuple(measures), slower, faster, *spread, apart)


def furthest(slow: dict[str, Floats], fast: Any) -> float:
    return max(float(np.abs(curve - fast[name]).max() / np.abs(curve).max()) for name, curve in slow.items())


def table(found: Sequence[Speed]) -> Iterator[str]:
    """Markdown, with the machine in it."""
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    first = found[0]
    yield f"{first.samples} sentences, {len(first.methods)} methods ({', '.join(first.methods)}); {machine}"
    yield ""
    yield "| measures | one at a time, s | `evaluate`, s | times faster | lowest to highest | largest difference |"
    yield "|---|---|---|---|---|---|"
    for s in found:
        yield (
            f"| {', '.join(s.measures)} | {s.loop:.1f} | {s.evaluation:.1f} | {s.ratio:.1f} | "
            f"{s.low:.1f} to {s.high:.1f} | {s.apart:.0e} |"
        )


def main(samples: int = 48, rounds: int = 3) -> None:
    """`python -m headwater.measures.speed`: the bundled model on the first sentences of SST-2 dev."""
    from ..data import load
    from ..models.bundled import load_bundled

    model, tokenizer = load_bundled()
    data = load("sst2", "dev")
    rows = list(zip(data.texts, data.labels, strict=True))[:samples]
    found = [measure(model, tokenizer, rows, measures=names, rounds=rounds) for names in (DEFAULT, tuple(TASKS))]
    sys.stdout.write("\n".join(table(found)) + "\n")


if __name__ == "__main__":
    main()
