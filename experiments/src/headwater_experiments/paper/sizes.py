"""How much of the paper's tables is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How much is measured: `rows` samples of a dataset, `digits` of MNIST, drawn with the seed; None takes all.

    Maximum flow takes seconds for a sentence and half an hour for a review, so `flow_rows` texts of at most
    `flow_tokens` tokens stand for the dataset, except where a dataset is named in `flow_whole`. A
    digit takes it 8 seconds, so `flow_digits` of them are enough.
    """

    rows: int | None = None
    flow_rows: int = 200
    flow_tokens: int = 64
    flow_whole: tuple[str, ...] = ("sst2", "bace")
    max_length: int | None = None
    seed: int = 0
    digits: int | None = 1000
    flow_digits: int = 50


FULL = Size()
QUICK = Size(rows=16, flow_rows=4, flow_tokens=20, flow_whole=(), max_length=48, digits=4, flow_digits=1)
