"""Fitting a graph classifier whose whole dataset lies on the device: the best epoch by a validation part is kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from headwater.evaluation.progress import show_progress
from headwater_experiments.paper.graph_arrays import Sheet

if TYPE_CHECKING:
    from headwater.models.graphormer import GraphormerForGraphClassification

Measure = Callable[[Tensor, Tensor], float]
Vary = Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]
State = dict[str, Any]
POOL = 6  # batches whose rows are sorted by size together


@dataclass(frozen=True)
class GraphPhase:
    """How long and how fast: rises over `warmup` epochs, then stays, or falls as a cosine if `falling`.

    Training ends early when the validation measure has not risen for `patience` epochs. `average` is the weight of the
    past in a running mean of the weights, which is what is validated and kept; 0 keeps the weights themselves.
    """

    epochs: int
    batch: int = 64
    rate: float = 2e-4
    decay: float = 0.01
    warmup: float = 1.0
    falling: bool = False
    patience: int | None = None
    average: float = 0.0
    smoothing: float = 0.0

    def rate_at(self, epoch: float) -> float:
        """The share of the peak rate at a point of the training."""
        if epoch < self.warmup:
            return (epoch + 1e-3) / self.warmup
        done = (epoch - self.warmup) / max(self.epochs - self.warmup, 1e-9)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1))) if self.falling else 1.0


class Split(NamedTuple):
    """Row numbers, on the CPU: what is trained on, and what chooses the epoch."""

    train: Tensor
    valid: Tensor


def share_correct(logits: Tensor, labels: Tensor) -> float:
    """The share of rows whose largest logit is at their label, 0 to 1, higher is better."""
    return float((logits.argmax(-1) == labels).double().mean())


def roc_auc(logits: Tensor, labels: Tensor) -> float:
    """How often a positive row scores above a negative one, ties counted half; 0 to 1, higher is better."""
    score, label = (logits[:, 1] - logits[:, 0]).double().cpu(), labels.bool().cpu()
    difference = score[label][:, None] - score[~label][None]
    return float(((difference > 0).double() + 0.5 * (difference == 0)).mean())


@torch.inference_mode()
def predict_rows(model: nn.Module, sheet: Sheet, rows: Tensor, size: int = 512) -> Tensor:
    """Logits [rows, classes] in evaluation mode, rows of like size together; the mode it was in is put back."""
    training = model.training
    model.eval()
    order = torch.from_numpy(sheet.sizes[rows.numpy()]).argsort()
    found = [_logits(model, sheet.batch(rows[part])) for part in order.split(size)]
    model.train(training)
    return torch.cat(found)[order.argsort().to(found[0].device)]


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    batch.pop("labels")
    logits: Tensor = model(**batch).logits.float()
    return logits


def score_rows(model: nn.Module, sheet: Sheet, rows: Tensor, measure: Measure) -> float:
    return measure(predict_rows(model, sheet, rows), sheet.labels[rows.to(sheet.labels.device)])


def fit_graphs(
    model: GraphormerForGraphClassification,
    sheet: Sheet,
    split: Split,
    phase: GraphPhase,
    measure: Measure,
    *,
    seed: int = 0,
    vary: Vary | None = None,
    state: Path | None = None,
) -> list[float]:
    """Train in place; the model ends with the weights of its best epoch. The validation measure of every epoch.

    `vary` changes a training batch at random. With `state`, a file, a training that was cut off goes on from there.
    """
    run = GraphTraining(model, sheet, split, phase, measure, seed, vary)
    if state is not None and state.is_file():
        run.resume(torch.load(state, map_location=model.device, weights_only=True))
    with show_progress(phase.epochs, len(run.history), doing=f"seed {seed}", what="epochs") as tick:
        while not run.finished:
            run.epoch()
            tick.note("".join(f", {name} {value}" for name, value in run.summary.items()))
            tick(1)
            if state is not None:
                run.save(state)
    model.load_state_dict(run.best)
    if state is not None:
        state.unlink(missing_ok=True)
    model.eval()
    return run.history


class GraphTraining:
    """All that changes while a model is trained, so that it can be put down and taken up again."""

    def __init__(
        self,
        model: GraphormerForGraphClassification,
        sheet: Sheet,
        split: Split,
        phase: GraphPhase,
        measure: Measure,
        seed: int,
        vary: Vary | None,
    ) -> None:
        self.model, self.sheet, self.split, self.phase = model, sheet, split, phase
        self.measure, self.seed, self.vary = measure, seed, vary
        on_gpu = model.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(_groups(model, phase.decay), lr=phase.rate, fused=on_gpu)
        mean = get_ema_multi_avg_fn(phase.average)
        self.mean = AveragedModel(model, multi_avg_fn=mean) if phase.average else None
        self.loss = nn.CrossEntropyLoss(label_smoothing=phase.smoothing)
        self.history: list[float] = []
        self.best: dict[str, Tensor] = {}
        self.last_loss = math.nan

    @property
    def finished(self) -> bool:
        since_best = len(self.history) - 1 - self._best_epoch if self.history else 0
        stalled = self.phase.patience is not None and since_best >= self.phase.patience
        return stalled or len(self.history) >= self.phase.epochs

    @property
    def _best_epoch(self) -> int:
        return self.history.index(max(self.history))

    @property
    def summary(self) -> dict[str, str]:
        best = max(self.history)
        return {"loss": f"{self.last_loss:.3f}", "valid": f"{self.history[-1]:.4f}", "best": f"{best:.4f}"}

    def epoch(self) -> None:
        """Once through the training rows, in an order that follows from seed and epoch; then look at validation."""
        done = len(self.history)
        order = torch.Generator().manual_seed(self.seed * 100_003 + done)
        torch.manual_seed(self.seed * 100_003 + done)  # dropout, too: a resumed epoch repeats itself
        chance = torch.Generator(self.model.device).manual_seed(self.seed * 100_003 + done)
        batches = self.batches(order)
        self.model.train()
        total = torch.zeros((), device=self.model.device)
        for number, part in enumerate(batches):
            total += self.step(self.sheet.batch(part), chance, self.phase.rate_at(done + number / len(batches)))
        self.last_loss = total.item() / len(batches)
        self.look()

    def batches(self, order: torch.Generator) -> list[Tensor]:
        """All training rows in a new order; rows of like size go together within a pool, so that less is padding."""
        rows = self.split.train[torch.randperm(len(self.split.train), generator=order)]
        pools = rows.split(POOL * self.phase.batch)
        sizes = torch.from_numpy(self.sheet.sizes)
        sorted_pools = torch.cat([pool[sizes[pool].argsort(stable=True)] for pool in pools])
        batches = sorted_pools.split(self.phase.batch)
        return [batches[i] for i in torch.randperm(len(batches), generator=order)]

    def step(self, batch: dict[str, Tensor], chance: torch.Generator, share: float) -> Tensor:
        labels = batch.pop("labels").long()
        inputs = batch if self.vary is None else self.vary(batch, chance)
        for group in self.optimizer.param_groups:
            group["lr"] = self.phase.rate * share
        loss: Tensor = self.loss(self.model(**inputs).logits, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.mean is not None:
            self.mean.update_parameters(self.model)
        return loss.detach()

    def look(self) -> None:
        kept = self.model if self.mean is None else self.mean.module
        self.history.append(score_rows(kept, self.sheet, self.split.valid, self.measure))
        if self._best_epoch == len(self.history) - 1:
            self.best = {name: tensor.clone() for name, tensor in kept.state_dict().items()}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        mean = {} if self.mean is None else self.mean.state_dict()
        found: State = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "mean": mean}
        torch.save({**found, "history": self.history, "best": self.best}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def resume(self, found: State) -> None:
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(copy.deepcopy(found["optimizer"]))
        if self.mean is not None:
            self.mean.load_state_dict(found["mean"])
        self.history, self.best = found["history"], found["best"]


def _groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Biases and norms are not pulled towards 0."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    return [
        {"params": matrices, "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
