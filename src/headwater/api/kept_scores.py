"""Scores of passages in a file, chunk by chunk: a ranking that was interrupted goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, UsageError
from .comparers import Comparer

KIND = "headwater: scores of passages"
PROBES = 8  # first passages that are compared again, to see that model and options are those of the file
ROOM = 1e-3  # scores of the same model may differ so much between machines, in units of the largest

OTHER = {"query": "another query", "first": "other passages", "scores": "another model or other options"}


@dataclass
class KeptScores:
    """A file of JSON lines: the query with the scores of the first passages, then a line per chunk of passages."""

    path: Path
    known: dict[str, list[float]] = field(default_factory=dict)  # by what the passages of a chunk are

    @classmethod
    def open(cls, path: str | os.PathLike[str], comparer: Comparer, query: Any, texts: Sequence[Any]) -> KeptScores:
        """The file as it is, or a new one. One that belongs to another ranking is refused."""
        if not all(isinstance(text, str) for text in (query, *texts)):
            raise UsageError("keep= takes passages and a query that are texts.")
        place = Path(path)
        probes = comparer.score(query, texts[:PROBES])
        head = {"kind": KIND, "query": query, "first": name_texts(texts[:PROBES])}
        if not place.exists():
            try:
                place.write_text(write_line({**head, "scores": probes.tolist()}), encoding="utf-8")
            except OSError as error:
                raise DataError(f"{place} cannot be written: {error}.") from error
            return cls(place)
        first, *chunks = read_chunks(place)
        check_head(place, head, first, probes)
        return cls(place, {chunk["passages"]: chunk["scores"] for chunk in chunks})

    def find(self, texts: Sequence[str]) -> Tensor | None:
        found = self.known.get(name_texts(texts))
        return None if found is None else torch.tensor(found, dtype=torch.float64)

    def add(self, texts: Sequence[str], scores: Tensor) -> None:
        """One line at the end, which is on the disk before the next chunk begins."""
        with self.path.open("r+b") as file:
            end_last_line(file)
            file.write(write_line({"passages": name_texts(texts), "scores": scores.tolist()}).encode())
            file.flush()
            os.fsync(file.fileno())


def name_texts(texts: Sequence[str]) -> str:
    """The same for the same texts in the same order."""
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


def write_line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def end_last_line(file: Any) -> None:
    """Goes to the end. What was written of a line that broke off is cut away."""
    whole = file.read()
    file.seek(whole.rfind(b"\n") + 1)
    file.truncate()


def read_chunks(path: Path) -> list[dict[str, Any]]:
    """All lines that were written to their end."""
    try:
        *lines, _ = path.read_text(encoding="utf-8").split("\n")
        found = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as kept scores: {error}.") from error
    if not found or not isinstance(found[0], dict) or found[0].get("kind") != KIND:
        raise DataError(f"{path} holds no kept scores: name a file that does not exist yet, or one of an earlier call.")
    return found


def check_head(path: Path, asked: dict[str, Any], found: dict[str, Any], probes: Tensor) -> None:
    """Refuses scores of another query, of other passages, or of another model."""
    differs = next((name for name in ("query", "first") if found[name] != asked[name]), None)
    if differs is None:
        kept = torch.tensor(found["scores"], dtype=torch.float64)
        differs = None if bool(((kept - probes).abs() <= ROOM * kept.abs().max()).all()) else "scores"
    if differs is not None:
        raise UsageError(f"{path} has the scores of {OTHER[differs]}: name another file, or remove this one.")
