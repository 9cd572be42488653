"""The paper's graph models: a 2-layer Graphormer on BACE and one on MNIST superpixels.

`python -m headwater_experiments.paper.graphs prepare --out DIR` makes array files from the datasets, and
`python -m headwater_experiments.paper.graphs train --arrays DIR --out OUT bace` trains on them, which needs torch and
transformers only. Answers are JSON on standard output, progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import set_seed

from headwater.errors import UnknownName
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater_experiments.paper import graph_arrays
from headwater_experiments.paper.graph_arrays import PARTS, Sheet, load_bace, load_mnist, prepare_bace, prepare_mnist
from headwater_experiments.paper.graph_training import (
    GraphPhase,
    Measure,
    Split,
    Vary,
    fit_graphs,
    roc_auc,
    score_rows,
    share_correct,
)

SPLITS = ("random", "scaffold")
VALID_DIGITS = 5000


@dataclass(frozen=True)
class GraphRecipe:
    """The model's size and how it is trained. The paper gives 2 layers, AdamW at 2e-4 and batches of 64."""

    phase: GraphPhase
    hidden_size: int = 128
    intermediate_size: int = 128
    heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.1
    number_hidden_size: int = 0
    post_norm: bool = False  # LayerNorms after the sums of a block, not before its parts
    bent: bool = False  # digits are turned, stretched and shifted a little while they are trained on

    def model(self, base: GraphormerConfig) -> GraphormerForGraphClassification:
        """A new model with random weights, for graphs as `base` describes them."""
        settings = {
            **base.to_diff_dict(),
            "num_labels": base.num_labels,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.heads,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
            "number_hidden_size": self.number_hidden_size,
            "post_norm": self.post_norm,
        }
        return GraphormerForGraphClassification(GraphormerConfig(**settings))


BACE = GraphRecipe(GraphPhase(epochs=1000, patience=100, average=0.98), attention_dropout=0.0)
MNIST = GraphRecipe(
    GraphPhase(epochs=30, rate=1e-3, falling=True, average=0.999),
    intermediate_size=256,
    dropout=0.0,
    attention_dropout=0.0,
    number_hidden_size=256,
    bent=True,
)
RECIPES = {
    "tuned": {"bace": BACE, "mnist": MNIST},
    "paper": {
        "bace": replace(BACE, phase=GraphPhase(epochs=1000)),
        "mnist": replace(MNIST, phase=GraphPhase(epochs=10), bent=False),
    },
}


def graph_recipe_for(dataset: str, name: str, **changes: Any) -> GraphRecipe:
    """The recipe of that name, with other choices in place of some; those that are None are left.

    Both have the same model, whose width and heads the paper does not give. "paper" trains it as the paper says.
    """
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return change_recipe(RECIPES[name][dataset], **changes)


def nearest(dataset: str, recipe: GraphRecipe) -> str:
    """The name of the recipe that it is, or that it has most choices of."""
    given = choices(recipe)
    shared = {name: sum(given[k] == v for k, v in choices(own[dataset]).items()) for name, own in RECIPES.items()}
    return max(shared, key=lambda name: shared[name])


def choices(recipe: GraphRecipe) -> dict[str, Any]:
    """All numbers of a recipe in one level."""
    told = asdict(recipe)
    return {**told.pop("phase"), **told}


@dataclass(frozen=True)
class Trained:
    """One training: the measure on validation and test rows, of the weights as they were written."""

    out: str
    seed: int
    valid: float
    test: float
    epochs: int
    best_epoch: int
    parameters: int
    seconds: float


@dataclass(frozen=True)
class GraphReport:
    """All trainings of one dataset. `measure` is between 0 and 1, higher is better."""

    dataset: str
    split: str
    measure: str
    runs: list[Trained]
    recipe: GraphRecipe

    @property
    def mean(self) -> float:
        return statistics.fmean(run.test for run in self.runs)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return statistics.stdev(run.test for run in self.runs) if len(self.runs) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.dataset} ({self.split}): test {self.measure} {self.mean:.1%} ± {self.spread:.1%}"


def train_bace(
    arrays: Path,
    out: Path,
    *,
    split: str = "random",
    seeds: Sequence[int] = range(5),
    device: str = "cpu",
    recipe: GraphRecipe = BACE,
) -> GraphReport:
    """Whether a molecule inhibits BACE-1, once for each seed; a seed also draws the random split.

    Random: 80 % train, 10 % validation, 10 % test. Scaffold: the dataset's column, largest scaffolds in training.
    """
    sheet, scaffold = load_bace(arrays, device)
    runs = []
    for seed in seeds:
        parts = bace_split(scaffold, split, seed)
        at = out / f"bace-{split}-{seed}"
        runs.append(_train(graph_arrays.BACE, recipe, sheet, parts, roc_auc, at, seed, tested=(sheet, parts[2])))
    return GraphReport("bace", split, "ROC-AUC", runs, recipe)


def bace_split(scaffold: NDArray[np.int8], split: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row numbers of train, validation and test."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if split == "scaffold":
        train, valid, test = (torch.from_numpy(np.nonzero(scaffold == i)[0]) for i in range(len(PARTS)))
    else:
        rows, held = torch.randperm(len(scaffold), generator=torch.Generator().manual_seed(seed)), len(scaffold) // 10
        train, valid, test = rows[2 * held :], rows[:held], rows[held : 2 * held]
    return train, valid, test


def train_mnist(
    arrays: Path,
    out: Path,
    *,
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    recipe: GraphRecipe = MNIST,
    limit: int | None = None,
) -> GraphReport:
    """Which digit a graph of superpixels shows. The epoch is chosen on 5,000 digits held back from training.

    `limit` cuts the training digits, to try the code on a few.
    """
    sheet, test = load_mnist(arrays, "train", device, limit), load_mnist(arrays, "test", device)
    runs = []
    for seed in seeds:
        rows = torch.randperm(len(sheet), generator=torch.Generator().manual_seed(seed))
        held = min(VALID_DIGITS, len(rows) // 10)
        parts = rows[held:], rows[:held]
        tested = test, torch.arange(len(test))
        runs.append(
            _train(graph_arrays.MNIST, recipe, sheet, parts, share_correct, out / f"mnist-{seed}", seed, tested)
        )
    return GraphReport("mnist", "standard", "accuracy", runs, recipe)


def _train(
    base: GraphormerConfig,
    recipe: GraphRecipe,
    sheet: Sheet,
    rows: Sequence[Tensor],
    measure: Measure,
    out: Path,
    seed: int,
    tested: tuple[Sheet, Tensor],
) -> Trained:
    """Train, write in half precision, and measure what was written."""
    began = time.monotonic()
    set_seed(seed)
    device = sheet.labels.device
    model = recipe.model(base).to(device)
    split = Split(rows[0], rows[1])
    vary: Vary | None = distort_centres if recipe.bent else None
    history = fit_graphs(model, sheet, split, recipe.phase, measure, seed=seed, vary=vary, state=out / "state.pt")
    model.half().save_pretrained(out)
    written = GraphormerForGraphClassification.from_pretrained(out, dtype=torch.float32).to(device).eval()
    return Trained(
        out=str(out),
        seed=seed,
        valid=score_rows(written, sheet, split.valid, measure),
        test=score_rows(written, *tested, measure),
        epochs=len(history),
        best_epoch=1 + history.index(max(history)),
        parameters=sum(p.numel() for p in written.parameters()),
        seconds=round(time.monotonic() - began, 1),
    )


def distort_centres(batch: dict[str, Tensor], chance: torch.Generator) -> dict[str, Tensor]:
    """The same graphs, their centres turned, stretched, sheared and shifted a little, each graph in its own way."""
    numbers = batch["node_numbers"]

    def within(limit: float, *shape: int) -> Tensor:
        drawn = torch.rand(len(numbers), *shape, generator=chance, device=numbers.device)
        return (drawn * 2 - 1) * limit

    angle, shear = within(math.radians(12)), within(0.1)
    turn = torch.stack([angle.cos(), shear - angle.sin(), angle.sin(), angle.cos()], -1).unflatten(-1, (2, 2))
    stretch = 1 + within(0.12, 1, 2)
    centres = (numbers[..., 1:] - 0.5) @ turn * stretch + 0.5 + within(0.07, 1, 2)
    return {**batch, "node_numbers": torch.cat([numbers[..., :1], centres], -1)}


def prepare(out: Path, datasets: Sequence[str]) -> dict[str, Any]:
    """Array files, their sizes in bytes, and for digits how many patches they were cut into."""
    make = {"bace": prepare_bace, "mnist": prepare_mnist}
    found: dict[str, Any] = {}
    for name in datasets:
        path = make[name](out)
        found[name] = {"file": str(path), "bytes": path.stat().st_size}
        if name == "mnist":
            found[name]["patches"] = graph_arrays.count_patches(path)
    return found


def train_graphs(
    dataset: str,
    arrays: Path,
    out: Path,
    seeds: int,
    first_seed: int,
    split: str,
    device: str,
    limit: int | None,
    recipe_name: str,
    **changes: float | None,
) -> dict[str, Any]:
    """The report of one dataset, as the command line gives it."""
    recipe = graph_recipe_for(dataset, recipe_name, **changes)
    chosen = range(first_seed, first_seed + seeds)
    if dataset == "bace":
        report = train_bace(arrays, out, split=split, seeds=chosen, device=device, recipe=recipe)
    else:
        report = train_mnist(arrays, out, seeds=chosen, device=device, recipe=recipe, limit=limit)
    return {"summary": str(report), "mean": report.mean, "spread": report.spread, **asdict(report)}


def change_recipe(recipe: GraphRecipe, **changes: Any) -> GraphRecipe:
    """The recipe with other numbers, those that are None left as they are."""
    given = {name: value for name, value in changes.items() if value is not None}
    of_phase = {name: given.pop(name) for name in list(given) if hasattr(recipe.phase, name)}
    return replace(recipe, phase=replace(recipe.phase, **of_phase), **given)


def run_graphs_command(arguments: Sequence[str] | None = None) -> None:
    """Prepare or train from the command line."""
    options = vars(_graphs_parser().parse_args(arguments))
    answer = options.pop("run")(**options)
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")


def _graphs_parser() -> argparse.ArgumentParser:
    name = "python -m headwater_experiments.paper.graphs"
    parser = argparse.ArgumentParser(prog=name, description="The paper's graph models.")
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare", help="make array files from the datasets")
    preparing.add_argument("--out", type=Path, required=True, help="directory for the array files")
    preparing.add_argument("datasets", nargs="*", default=["bace", "mnist"], help="bace, mnist (default: both)")
    preparing.set_defaults(run=prepare)
    training = commands.add_parser("train", help="train on array files")
    training.add_argument("dataset", choices=["bace", "mnist"])
    training.add_argument("--arrays", type=Path, required=True, help="directory of the array files")
    training.add_argument("--out", type=Path, required=True, help="directory for the trained models")
    training.add_argument("--seeds", type=int, default=1, help="how many trainings")
    training.add_argument("--first-seed", type=int, default=0)
    training.add_argument("--split", choices=SPLITS, default="random", help="of BACE")
    training.add_argument("--device", default="cpu")
    training.add_argument("--epochs", type=int, help="at most so many epochs")
    training.add_argument("--rate", type=float, help="peak rate of AdamW")
    training.add_argument("--dropout", type=float)
    training.add_argument("--width", type=int, dest="hidden_size")
    training.add_argument("--hidden", type=int, dest="intermediate_size", help="width of the feed-forward layers")
    training.add_argument("--recipe", dest="recipe_name", choices=tuple(RECIPES), default="tuned")
    training.add_argument("--no-bending", dest="bent", action="store_const", const=False, help="of MNIST")
    training.add_argument("--average", type=float, help="weight of the past in a mean of the weights; 0: none")
    training.add_argument("--limit", type=int, help="so many training digits of MNIST only")
    training.set_defaults(run=train_graphs)
    return parser


if __name__ == "__main__":
    run_graphs_command()
