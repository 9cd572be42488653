"""Training of the small vision transformer: the round that is best on the part held back is kept."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwater.evaluation.progress import show_progress
from headwater_experiments.training.accuracy import Accuracy

from .card import digits_card
from .model import SIDE, Digits, image_processor, load_digits, new_vit, parts


@dataclass(frozen=True)
class DigitsRecipe:
    """The model's measures, and how long and how fast it is trained. The rate rises for a while, then falls to 0.

    `shift`: every image is moved by up to so many pixels each way, at random.
    """

    width: int = 64
    layers: int = 4
    heads: int = 4
    inner: int = 128
    rounds: int = 6
    batch: int = 128
    rate: float = 2e-3
    decay: float = 0.05
    warmup: float = 0.5
    shift: int = 2

    def rate_at(self, done: float) -> float:
        """The rate after so many rounds."""
        rise = min(1.0, (done + 1e-3) / self.warmup)
        return self.rate * rise * 0.5 * (1 + math.cos(math.pi * min(1.0, done / self.rounds)))


def train_digits(
    out: Path,
    *,
    recipe: DigitsRecipe | None = None,
    seed: int = 0,
    device: str = "cpu",
    rows: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Train, and write model, processor, card and training.json to `out`. `rows` cuts the training part."""
    recipe = recipe or DigitsRecipe()
    train_part, valid = parts(seed)
    train_part = train_part[: len(train_part) if rows is None else rows]
    model = new_vit(seed, recipe.width, recipe.layers, recipe.heads, recipe.inner).to(device)
    began = time.perf_counter()
    with show_progress(recipe.rounds * len(train_part), 0, progress, "training") as tick:
        history = fit_digits(model, train_part, valid, recipe, seed, tick)
    seconds = time.perf_counter() - began
    found = {
        "dataset": "mnist",
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_on": describe_machine(device),
        "rows": len(train_part),
        "recipe": asdict(recipe),
        "best_round": history.index(max(history)) + 1,
        "rounds": [round(value, 4) for value in history],
        "seconds": round(seconds, 1),
    }
    save_model(model, out)
    found["validation"], found["test"] = (
        describe_accuracy(measure_accuracy(load_stored(out), part)) for part in (valid, load_digits("test"))
    )
    (out / "training.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(digits_card(found), encoding="utf-8")
    return found


def fit_digits(
    model: nn.Module, data: Digits, valid: Digits, recipe: DigitsRecipe, seed: int, tick: Callable[[float], None]
) -> list[float]:
    """Train in place; the model ends with the weights of its best round. The validation accuracy of every round."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]  # biases and norms are not pulled towards 0
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate)
    chance = torch.Generator().manual_seed(seed)
    history: list[float] = []
    best: dict[str, Tensor] = {}
    for number in range(recipe.rounds):
        batches = torch.randperm(len(data), generator=chance).split(recipe.batch)
        for i, rows in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate_at(number + i / len(batches))
            step(model, optimizer, data[rows], recipe.shift, chance)
            tick(len(rows))
        history.append(measure_accuracy(model, valid).value)
        if history[-1] == max(history):
            best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(best)
    model.eval()
    return history


def step(model: nn.Module, optimizer: Any, part: Digits, shift: int, chance: torch.Generator) -> None:
    device = next(model.parameters()).device
    model.train()
    logits = model(pixel_values=shift_images(part.pixels, shift, chance).to(device)).logits
    nn.functional.cross_entropy(logits, part.labels.to(device)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def shift_images(pixels: Tensor, most: int, chance: torch.Generator) -> Tensor:
    """Every image moved by up to `most` pixels each way; what comes in at the border is the border's own pixel."""
    padded = nn.functional.pad(pixels, (most,) * 4, mode="replicate")
    top, left = torch.randint(2 * most + 1, (2, len(pixels)), generator=chance)
    rows = top[:, None] + torch.arange(SIDE)
    columns = left[:, None] + torch.arange(SIDE)
    found: Tensor = padded[torch.arange(len(pixels))[:, None, None], 0, rows[:, :, None], columns[:, None, :]]
    return found.unsqueeze(1)


@torch.inference_mode()
def measure_accuracy(model: nn.Module, part: Digits, size: int = 500) -> Accuracy:
    """How often the largest logit stands at the label, in evaluation mode."""
    model.eval()
    device = next(model.parameters()).device
    said = torch.cat([model(pixel_values=p.to(device)).logits.argmax(-1).cpu() for p in part.pixels.split(size)])
    return Accuracy(int((said == part.labels).sum()), len(part))


def describe_accuracy(found: Accuracy) -> dict[str, Any]:
    low, high = found.interval
    return {"correct": found.correct, "total": found.total, "accuracy": found.value, "low": low, "high": high}


def accuracy_in_words(found: dict[str, Any]) -> str:
    """The same in words."""
    return str(Accuracy(found["correct"], found["total"]))


def save_model(model: Any, out: Path) -> None:
    """Weights in half precision: what they lose is measured, since accuracy is counted on what was written."""
    out.mkdir(parents=True, exist_ok=True)
    model.cpu().half().save_pretrained(out)
    image_processor().save_pretrained(out)


def load_stored(out: Path) -> nn.Module:
    """The model as it was written, computed in float32."""
    from headwater.models.loading import load

    model: nn.Module = load(out)[0]
    return model


def describe_machine(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"
