"""Fitting a classifier: seeded, stopped by the validation part alone, and resumable after every round."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwater.errors import UsageError
from headwater.evaluation.progress import show_progress
from headwater_experiments.training.accuracy import Accuracy

from .tokens import TokenBatch, Tokenised, Tokens


@dataclass(frozen=True)
class TextRecipe:
    """Every choice of a training. The rate rises over the share `warmup` of all steps and falls to nothing at the end.

    Training ends when the validation part has not improved for `patience` rounds. `word_dropout` is the share of
    tokens that training replaces by [UNK]; `average` > 0 keeps a moving average of the weights, of about that many
    steps, and judges and keeps the average. `unscaled` and `ignore_mask` are the two defects of the authors' small
    model; `bfloat16` computes in half precision where there is a card. `rank` > 0 trains a change of that rank to each
    matrix of a pretrained model, and 0 all of its weights.
    """

    rounds: int
    batch: int
    rate: float
    dropout: float = 0.1
    decay: float = 0.01
    smoothing: float = 0.0
    word_dropout: float = 0.0
    average: int = 0
    patience: int = 4
    longest: int = 256
    warmup: float = 0.1
    unscaled: bool = False
    ignore_mask: bool = False
    bfloat16: bool = True
    rank: int = 0

    def rate_at(self, step: int, steps: int) -> float:
        """The share of the highest rate that a step of all `steps` takes."""
        return rise_and_fall(step, steps, self.warmup)


def rise_and_fall(step: int, steps: int, warmup: float) -> float:
    """Up in a line over the share `warmup` of all steps, then down in a line to nothing."""
    rising = warmup * steps
    return (step + 1) / rising if step + 1 < rising else (steps - step) / max(steps - rising, 1.0)


@dataclass(frozen=True)
class Round:
    """What one pass through the training part gave."""

    loss: float
    validation_loss: float
    validation: Accuracy


@dataclass(frozen=True)
class Fitted:
    """The rounds that were run; the model holds the weights of the best one."""

    rounds: tuple[Round, ...]
    seconds: float

    @property
    def best(self) -> Round:
        return min(self.rounds, key=by_validation)


def by_validation(found: Round) -> tuple[float, float]:
    """More correct answers first, then a lower loss."""
    return -found.validation.value, found.validation_loss


def fit_text(
    model: nn.Module, parts: Tokenised, recipe: TextRecipe, seed: int, unknown: int, state: Path | None = None
) -> Fitted:
    """Train on `parts.train` until `parts.validation` no longer improves; `parts.test` is not looked at.

    `unknown` is the id of [UNK]. With `state`, a file is written after every round, and a training that was cut off
    goes on from it: the order of the texts depends on seed and round alone, and the dropout is seeded in every round.
    """
    steps = math.ceil(len(parts.train) / recipe.batch)
    descent = ResumableDescent(model, recipe, steps, unknown)
    done, best, seconds = resume(state, descent, recipe, seed)
    began = time.perf_counter() - seconds
    while len(done) < recipe.rounds and rounds_since_best(done) < recipe.patience:
        torch.manual_seed(seed * 1000 + len(done))
        done.append(one_round(descent, parts, recipe, seed, len(done), steps))
        if min(done, key=by_validation) is done[-1]:
            with descent.use_average():
                best = {name: value.detach().clone() for name, value in trainable_weights(model).items()}
        if state is not None:
            keep(state, descent, seed, Progress(done, best, time.perf_counter() - began))
    model.load_state_dict({**model.state_dict(), **best})
    model.eval()
    return Fitted(tuple(done), round(time.perf_counter() - began, 1))


def rounds_since_best(done: list[Round]) -> int:
    """Rounds since the best one."""
    return len(done) - 1 - done.index(min(done, key=by_validation)) if done else 0


def one_round(
    descent: ResumableDescent, parts: Tokenised, recipe: TextRecipe, seed: int, number: int, steps: int
) -> Round:
    model = descent.model.train()
    total = torch.zeros((), device=descent.device)
    batches = parts.train.shuffle(recipe.batch, seed, number)
    with show_progress(steps, doing=f"round {number + 1}", what="batches") as tick:
        for batch in batches:
            total += descent(batch)
            tick(1)
    with descent.use_average():
        validation, loss = evaluate_loss(model, parts.validation)
    tick.say(f"round {number + 1}: loss {total.item() / steps:.4f}, validation {validation.value:.4f} ({loss:.4f})")
    return Round(total.item() / steps, loss, validation)


def evaluate_loss(model: nn.Module, tokens: Tokens, batch: int = 256) -> tuple[Accuracy, float]:
    """Accuracy and mean loss in evaluation mode, in the precision of the weights."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    correct, loss = torch.zeros((), device=device), torch.zeros((), device=device)
    with torch.inference_mode():
        for rows in tokens.in_order(batch):
            rows = rows.to(device)
            logits = model(input_ids=rows.input_ids, attention_mask=rows.attention_mask).logits.float()
            correct += (logits.argmax(-1) == rows.labels).sum()
            loss += F.cross_entropy(logits, rows.labels, reduction="sum")
    model.train(was_training)
    return Accuracy(int(correct.item()), len(tokens)), loss.item() / len(tokens)


class ResumableDescent:
    """AdamW on what is to be trained, with a rate that rises and falls."""

    def __init__(self, model: nn.Module, recipe: TextRecipe, steps: int, unknown: int) -> None:
        self.model, self.recipe, self.unknown = model, recipe, unknown
        self.device = next(model.parameters()).device
        self.weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in self.weights if p.dim() > 1]
        others = [p for p in self.weights if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.rate, fused=self.device.type == "cuda")
        total = steps * recipe.rounds
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: recipe.rate_at(step, total))
        self.average = [p.detach().clone() for p in self.weights] if recipe.average else []
        self.taken = 0
        self.mixed = recipe.bfloat16 and self.device.type == "cuda"

    def __call__(self, batch: TokenBatch) -> Tensor:
        """One step; the loss before it."""
        batch = batch.to(self.device)
        ids = self.with_gaps(batch.input_ids, batch.attention_mask)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.mixed):
            logits = self.model(input_ids=ids, attention_mask=batch.attention_mask).logits
        loss = F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.recipe.smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.follow()
        return loss.detach()

    def with_gaps(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Some tokens replaced by [UNK], but never the first."""
        if not self.recipe.word_dropout:
            return ids
        gaps = (torch.rand(ids.shape, device=ids.device) < self.recipe.word_dropout) & mask.bool()
        gaps[:, 0] = False
        return ids.masked_fill(gaps, self.unknown)

    def follow(self) -> None:
        """Move the average towards the weights: quickly at first, so that it forgets where training began."""
        self.taken += 1
        if self.average:
            share = 1 / min(self.taken, self.recipe.average)
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.weights, share)

    @contextmanager
    def use_average(self) -> Iterator[None]:
        """The model with the average of its weights, if one is kept."""
        if not self.average:
            yield
            return
        current = [p.detach().clone() for p in self.weights]
        self.put(self.average)
        yield
        self.put(current)

    @torch.no_grad()
    def put(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self.weights, values)


def trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


class Progress(NamedTuple):
    """Where a training stands: its rounds, its best weights, the seconds it took."""

    done: list[Round]
    best: dict[str, Tensor]
    seconds: float


def keep(path: Path, descent: ResumableDescent, seed: int, progress: Progress) -> None:
    """Write the state aside, then put it in its place: a file that is there is whole."""
    found = {
        "recipe": asdict(descent.recipe),
        "seed": seed,
        "weights": dict(trainable_weights(descent.model)),
        "best": progress.best,
        "optimizer": descent.optimizer.state_dict(),
        "schedule": descent.schedule.state_dict(),
        "average": descent.average,
        "taken": descent.taken,
        "rounds": [asdict(r) for r in progress.done],
        "seconds": progress.seconds,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".writing")
    torch.save(found, aside)
    aside.replace(path)


def resume(path: Path | None, descent: ResumableDescent, recipe: TextRecipe, seed: int) -> Progress:
    """Where a training that was cut off stood."""
    if path is None or not path.is_file():
        return Progress([], {}, 0.0)
    found: Mapping[str, Any] = torch.load(path, map_location=descent.device, weights_only=True)
    if found["recipe"] != asdict(recipe) or found["seed"] != seed:
        raise UsageError(
            f"{path} is the state of a training with another recipe or seed. Delete it to begin anew, or name another "
            "directory."
        )
    weights = trainable_weights(descent.model)
    with torch.no_grad():
        for name, value in found["weights"].items():
            weights[name].copy_(value)
    descent.optimizer.load_state_dict(found["optimizer"])
    descent.schedule.load_state_dict(copy.deepcopy(found["schedule"]))
    descent.average, descent.taken = list(found["average"]), int(found["taken"])
    rounds = [Round(r["loss"], r["validation_loss"], Accuracy(**r["validation"])) for r in found["rounds"]]
    return Progress(rounds, dict(found["best"]), float(found["seconds"]))
