r"""`python -m headwater_experiments.bench.python_cost`: Python around a played explanation, for which a card may wait.

BERT-base's layers with features so few that next to nothing is computed: what is left is Python. Milliseconds of
processor time on one thread, medians of rounds. A card waits for what comes before the forward pass and for what
comes after its numbers have arrived. What lies between is done while it is at work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import headwater as hw
from headwater.engine.run_graphs import ByOperations
from headwater.inputs.host_copies import HostCopies
from headwater_experiments.bench.cost import machine

LEARNT = 6  # explanations after which plans are there
STAGES = (
    "before the forward pass",
    "between the two passes, while a card is at work",
    "after the backward pass, while a card is at work",
    "after the numbers have arrived",
)
WAITED_FOR = (0, 3)


def build_model() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(hidden_size=24, num_hidden_layers=12, num_attention_heads=12, intermediate_size=24)
    model: nn.Module = BertForSequenceClassification(config)
    return model.eval()


@contextmanager
def note_times(times: list[float]) -> Iterator[None]:
    """Inside, the times at which the parts of a played run begin and end, and that of the wait, are noted."""
    watched = ((ByOperations, "forwards"), (ByOperations, "backwards"), (HostCopies, "wait"))
    plain = [getattr(kind, name) for kind, name in watched]

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            times.append(time.process_time())
            found = function(*args)
            times.append(time.process_time())
            return found

        return noted

    try:
        for (kind, name), function in zip(watched, plain, strict=True):
            setattr(kind, name, noting(function))
        yield
    finally:
        for (kind, name), function in zip(watched, plain, strict=True):
            setattr(kind, name, function)


def measure(explain: Callable[[], list[hw.Explanation]], rounds: int) -> list[float]:
    """Milliseconds of each stage."""
    for _ in range(LEARNT):
        explain()
    found: list[list[float]] = []
    while len(found) < rounds:
        times: list[float] = []
        with note_times(times):
            begin = time.process_time()
            made = explain()
            end = time.process_time()
        if made[0].provenance.way == "plan":  # now and then one is computed plainly
            forward, until, backward, done, *_, wait, _ = times
            found.append([forward - begin, backward - until, wait - done, end - wait])
    return [1e3 * statistics.median(stage) for stage in zip(*found, strict=True)]


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--method", default="lrp")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    model = build_model()
    ids = torch.randint(5, 30000, (given.batch, given.tokens))
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    stages = measure(lambda: hw.explain(model, data, method=given.method), given.rounds)
    lines = [f"{given.batch} x {given.tokens} tokens, {given.method}; {machine()}", "", "| Python | ms |", "|---|---|"]
    lines += [f"| {name} | {stage:.2f} |" for name, stage in zip(STAGES, stages, strict=True)]
    lines.append(f"| in all, for which a card waits | {sum(stages[i] for i in WAITED_FOR):.2f} |")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
