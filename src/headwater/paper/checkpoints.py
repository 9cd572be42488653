"""Where the trained models of the experiments lie."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.errors import LoadError

DIRECTORY = "HEADWATER_CHECKPOINTS"


def home() -> Path:
    """The directory that HEADWATER_CHECKPOINTS names, else `checkpoints` of the source tree, else of the cache."""
    named = os.environ.get(DIRECTORY)
    if named:
        return Path(named).expanduser()
    beside = Path(__file__).parents[3] / "checkpoints"
    return beside if beside.is_dir() else Path("~/.cache/headwater/checkpoints").expanduser()


def place(kind: str, dataset: str) -> Path:
    """Where this model is written and looked for."""
    return home() / kind / dataset


def kept(kind: str, dataset: str) -> bool:
    """Whether this model is there."""
    return (place(kind, dataset) / "config.json").is_file()


def find(kind: str, dataset: str) -> Path:
    """The directory of a trained model."""
    path = place(kind, dataset)
    if kept(kind, dataset):
        return path
    option = "" if kind in ("small", "graph") else f" --model {kind}"
    raise LoadError(
        f"there is no trained model in {path}. `headwater paper train {dataset}{option}` makes it; the small ones are "
        f"kept in the source tree, and {DIRECTORY} can name the directory above them."
    )
