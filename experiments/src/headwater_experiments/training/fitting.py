"""Fitting a text classifier: batches made ahead, a rate that rises and falls, the best round kept."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from headwater.evaluation.progress import show_progress
from headwater_experiments.data import LabelledTexts
from headwater_experiments.training.accuracy import Accuracy, count_correct
from headwater_experiments.training.distillation import Collate, DistillationBatch, Rounds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

POOL = 8  # batches whose texts are sorted by length together


@dataclass(frozen=True)
class Phase:
    """One run of the optimiser: how often through the table, in batches of what size, at what peak rate."""

    rounds: int
    batch: int
    rate: float
    varied: int = 0


@dataclass(frozen=True)
class Batches:
    """All batches of a training, made by other processes while the model computes; the count is known ahead."""

    rows: Rounds
    collate: Collate
    workers: int

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.collate.size)

    def __iter__(self) -> Iterator[DistillationBatch]:
        shuffled = random.Random(self.rows.seed)
        pools = DataLoader(
            self.rows,
            POOL * self.collate.size,
            sampler=list(self.rows.order()),
            collate_fn=self.collate,
            num_workers=self.workers,
        )
        for pool in pools:
            yield from shuffled.sample(pool, len(pool))


def fit(
    model: PreTrainedModel,
    loss: Callable[[DistillationBatch], Tensor],
    batches: Batches,
    phase: Phase,
    validation: LabelledTexts,
    tokenizer: PreTrainedTokenizerBase,
) -> Accuracy:
    """Minimise the loss; the model ends with the weights of the round that did best on the validation sentences."""
    learner = loss if isinstance(loss, nn.Module) else model
    descend = Descent(learner.parameters(), phase.rate, len(batches), str(model.device))
    best, weights = Accuracy(0, len(validation)), {}
    model.train()
    with show_progress(len(batches), doing=type(model).__name__, what="batches") as tick:
        for step, batch in enumerate(batches, start=1):
            value = descend(loss, batch)
            tick(1)
            if step % (len(batches) // phase.rounds) == 0:
                accuracy = count_correct(model, tokenizer, validation)
                tick.note(f", validation {accuracy.value:.3f}, loss {value.item():.3f}")
                if accuracy.correct >= best.correct:
                    best, weights = accuracy, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    model.eval()
    return best


class Descent:
    """AdamW with a rate that rises over the first tenth of the steps and then falls to nothing."""

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float, steps: int, device: str) -> None:
        self.parameters, self.device = list(parameters), device
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, rate, total_steps=steps, pct_start=0.1, anneal_strategy="linear"
        )

    def __call__(self, loss: Callable[[DistillationBatch], Tensor], batch: DistillationBatch) -> Tensor:
        """One step; the loss before it."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.startswith("cuda")):
            value = loss(batch.to(self.device))
        value.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return value.detach()
