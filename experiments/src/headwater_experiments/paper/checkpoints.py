"""Where the trained models of the experiments lie: a directory for each recipe, dataset and seed."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.errors import LoadError

DIRECTORY = "HEADWATER_CHECKPOINTS"
RECIPES = ("paper", "tuned")  # of the paper's models, each with a directory; other models have their names


def home() -> Path:
    """The directory that HEADWATER_CHECKPOINTS names, else `checkpoints` of the source tree, else of the cache."""
    named = os.environ.get(DIRECTORY)
    if named:
        return Path(named).expanduser()
    beside = Path(__file__).parents[4] / "checkpoints"
    return beside if beside.is_dir() else Path("~/.cache/headwater/checkpoints").expanduser()


def place(kind: str, dataset: str, seed: int) -> Path:
    """Where this model is written and looked for."""
    return home() / kind / dataset / str(seed)


def seeds(kind: str, dataset: str) -> list[int]:
    """The seeds of the trainings that are there, in order."""
    found = (home() / kind / dataset).glob("*/config.json")
    return sorted(int(config.parent.name) for config in found if config.parent.name.isdigit())


def find(kind: str, dataset: str, seed: int | None = None) -> Path:
    """The directory of a trained model: of that seed, or of the first there is."""
    there = seeds(kind, dataset)
    if there and (seed is None or seed in there):
        return place(kind, dataset, there[0] if seed is None else seed)
    option = f" --recipe {kind}" if kind in RECIPES else f" --model {kind}"
    option += f" --seed {seed}" if seed else ""
    raise LoadError(
        f"there is no trained model in {home() / kind / dataset}{'' if seed is None else f'/{seed}'}. `headwater paper "
        f"train {dataset}{option}` makes it; those of the source tree lie in `checkpoints`, and {DIRECTORY} can name "
        "the directory above them."
    )
