"""How much faster the evaluation is than a loop over single sentences, measured interleaved in one process.

The loop is what one writes first: for every sentence and method an explanation, for every step of every curve a
forward pass. It shares nothing with the evaluation but the model and `explain`, so it also serves as its check.

What can be gained on one core is bounded: a batch saves the overhead of a call, not its arithmetic, and each input is
run once. With more cores, or a graphics card, batches gain what single sentences cannot use.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwater.api.explain import explain
from headwater.engine.model import where_it_is
from headwater.errors import DataError, check_least
from headwater.evaluation.measures import DEFAULT, resolve_measures
from headwater.evaluation.protocols import ali2022
from headwater.evaluation.ranking import Floats
from headwater.evaluation.run import evaluate, read_labelled_texts
from headwater.inputs.readouts import logits_of
from headwater.inputs.text import length_limit
from headwater.methods import resolve_method
from headwater.viz.tables import Table
from headwater_experiments.bench.cost import machine

METHODS = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")
PERCENT = {"comprehensiveness": (1, 5, 10, 20, 50), "sufficiency": (1, 5, 10, 20, 50)}
TENTHS = tuple(range(0, 101, 10))

Curves = dict[str, dict[str, Floats]]


@dataclass(frozen=True)
class Speed:
    """Median seconds of both, and the median over rounds of their ratio.

    `apart` is the largest difference between the curves, relative to the largest value of each. It is rounding, except
    where that swaps two tokens of almost equal relevance: in double precision it is near 1e-16.
    """

    samples: int
    methods: tuple[str, ...]
    measures: tuple[str, ...]
    rounds: int
    threads: int
    loop: float
    evaluation: float
    ratio: float
    low: float
    high: float
    apart: float


def draw_rows(
    model: nn.Module, tokenizer: Any, data: Any, limit: int | None = None, seed: int = 0
) -> list[tuple[str, int]]:
    """Labelled texts in any form that `evaluate` takes, checked and drawn as it does."""
    table = read_labelled_texts(model, tokenizer, data, "text", "label", ali2022).draw(limit, seed)
    assert table.labels is not None  # the protocol explains the true class: a row without a label was refused
    return list(zip(table.texts, table.labels, strict=True))


def loop(
    model: nn.Module,
    tokenizer: Any,
    rows: Sequence[tuple[str, int]],
    methods: Sequence[str],
    measures: Sequence[str] = DEFAULT,
) -> Curves:
    """Curves [samples, steps] by method and measure, by protocol `ali2022`, one input at a time."""
    found: dict[str, dict[str, list[list[float]]]] = {method: {name: [] for name in measures} for method in methods}
    limit = min(n for n in (length_limit(model, tokenizer), ali2022.max_length) if n is not None)
    device = where_it_is(model)[0]
    for text, label in rows:
        fields = dict(tokenizer(text, return_tensors="pt", truncation=True, max_length=limit).to(device))
        whole = predict_logits(model, fields)
        for method in methods:
            relevances: dict[int, list[float]] = {}
            for name in measures:
                target = label if name in DEFAULT else int(whole.argmax())
                if target not in relevances:
                    (made,) = explain(model, fields, tokenizer=tokenizer, method=method, target=target)
                    relevances[target] = made.relevance.tolist()
                found[method][name].append([])
                for percent in PERCENT.get(name, TENTHS):
                    missing = tokens_to_replace(name, relevances[target], percent)
                    answer = predict_logits(model, without(fields, missing, tokenizer.unk_token_id))
                    found[method][name][-1].append(read(name, answer, whole, target))
    return {m: {name: np.array(steps) for name, steps in curves.items()} for m, curves in found.items()}


def tokens_to_replace(name: str, relevance: list[float], percent: int) -> set[int]:
    """Which tokens a step replaces."""
    items = range(len(relevance))
    count = math.ceil(percent * len(relevance) / 100)
    if name == "pruning":
        return set(sorted(items, key=lambda i: abs(relevance[i]))[:count])
    best = sorted(items, key=lambda i: -relevance[i])
    return set(best[count:] if name in ("activation", "insertion", "sufficiency") else best[:count])


def without(fields: dict[str, Any], missing: set[int], by: int) -> dict[str, Any]:
    ids = [by if i in missing else token for i, token in enumerate(fields["input_ids"][0].tolist())]
    return {**fields, "input_ids": torch.tensor([ids], device=fields["input_ids"].device)}


def predict_logits(model: nn.Module, fields: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return logits_of(model(**fields))[0].double()


def read(name: str, answer: Tensor, whole: Tensor, target: int) -> float:
    if name == "pruning":
        return float((whole - answer).square().sum())
    shown = float(answer.softmax(0)[target])
    return float(whole.softmax(0)[target]) - shown if name in PERCENT else shown


def measure_speed(
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
    check_least("rounds", rounds)
    methods = list(dict.fromkeys(resolve_method(name).name for name in methods))
    measures = [measure.name for measure in resolve_measures(measures)]
    options: Any = {"methods": methods, "measures": measures, "tokenizer": tokenizer}
    options |= {"runtime": False, "progress": False}
    loop(model, tokenizer, rows[:2], methods, measures)
    evaluate(model, list(rows[:2]), **options)
    times: list[tuple[float, float]] = []
    apart = 0.0
    for _ in range(rounds):
        start = time.perf_counter()
        slow = loop(model, tokenizer, rows, methods, measures)
        between = time.perf_counter()
        fast = evaluate(model, list(rows), **options)
        times.append((between - start, time.perf_counter() - between))
        apart = max(apart, *(furthest(slow[m], fast.samples.values[m]) for m in fast.methods))
    ratios = [a / b for a, b in times]
    slower, faster = (statistics.median(column) for column in zip(*times, strict=True))
    spread = (statistics.median(ratios), min(ratios), max(ratios))
    about = (len(rows), tuple(methods), tuple(measures), rounds, torch.get_num_threads())
    return Speed(*about, slower, faster, *spread, apart)


def furthest(slow: dict[str, Floats], fast: Any) -> float:
    return max(float(np.abs(curve - fast[name]).max() / np.abs(curve).max()) for name, curve in slow.items())


def speed_table(found: Speed) -> Table:
    """One row; the title says what was measured, and where."""
    methods = f"{len(found.methods)} method{'s' if len(found.methods) > 1 else ''} ({', '.join(found.methods)})"
    row = (
        ", ".join(found.measures),
        f"{found.loop:.2f}",
        f"{found.evaluation:.2f}",
        f"{found.ratio:.1f}",
        f"{found.low:.1f} to {found.high:.1f}",
        f"{found.apart:.0e}",
    )
    columns = ("measures", "one at a time, s", "evaluate, s", "times faster", "lowest to highest", "largest difference")
    return Table(f"{found.samples} texts, {methods}, {found.rounds} rounds; {machine()}", columns, [row], left=1)
