"""Which results lie in the directories that the server was given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import UsageError
from ...store.manifest import KIND, MANIFEST
from .biases import BiasStore
from .evaluations import EvaluationStore
from .interface import Store
from .runs import RunStore

MOST = 200


def stores_in(paths: Sequence[Path]) -> tuple[Store, ...]:
    """The results in these directories, or one level below; a directory that holds none is refused."""
    found: list[Store] = []
    for path in paths:
        own = list(results_in(path, {store.id for store in found}))
        if not own:
            raise UsageError(f"{path} holds no results. Name what `headwater run`, `evaluate --out` or `bias` wrote.")
        found += own
    return tuple(found[:MOST])


def results_in(path: Path, taken: set[str]) -> Iterator[Store]:
    below = sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []
    for place in [path, *below]:
        kind = kind_of(place)
        if kind is not None:
            yield kind(free_id(place.resolve().name, taken), place.resolve().name, place)
            if place is path:
                return


def kind_of(path: Path) -> type[EvaluationStore] | type[RunStore] | type[BiasStore] | None:
    if (path / "evaluation.json").is_file():
        return EvaluationStore
    if (path / MANIFEST).is_file() and is_of_kind(path / MANIFEST, KIND):
        return RunStore
    return BiasStore if (path / "audit.json").is_file() and (path / "mentions.csv").is_file() else None


def is_of_kind(file: Path, kind: str) -> bool:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("kind") == kind


def free_id(name: str, taken: set[str]) -> str:
    """A name that can stand in an address."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "result"
    found, number = base, 2
    while found in taken:
        found, number = f"{base}-{number}", number + 1
    taken.add(found)
    return found
