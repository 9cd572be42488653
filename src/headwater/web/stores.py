"""Results on disk that the explorer opens: named when the server starts, read through one small interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Store:
    """One result."""

    id: str
    name: str
    kind: Literal["evaluation", "run", "bias"]
    path: Path


def stores_in(paths: Sequence[Path]) -> tuple[Store, ...]:
    return ()
