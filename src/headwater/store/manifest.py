"""What a run's directory says of itself: what is being explained and how, which shards are done, and what they hold.

    manifest.json    this
    shards/          shard-000000.parquet, … : the explanations, in the order of the input
    errors.parquet   rows that could not be explained, each with its reason
    .work/           the lock, what is being written, what is known of the input, and bad rows by shard

A shard lies in `shards/` only when it is whole, and knows in its footer which job it belongs to. The manifest is
written after it: a run that was killed in between finds a shard more than the manifest says, and takes it as done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DataError
from .aside import write_json

FORMAT = 1
MANIFEST, SHARDS, ERRORS, WORK = "manifest.json", "shards", "errors.parquet", ".work"
KIND = "headwater run"
FOOTER = b"headwater"  # of a shard: what it says of itself


@dataclass(frozen=True)
class Counts:
    """What done shards hold. `open` are rows whose ledger does not close."""

    rows: int = 0
    errors: int = 0
    tokens: int = 0
    open: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


@dataclass(frozen=True)
class Manifest:
    """`asked` is what the results depend on: a run that is asked anything else is another job."""

    job: str
    asked: Mapping[str, Any]
    provenance: Mapping[str, Any]
    input: Mapping[str, Any]
    columns: Mapping[str, str]
    shard_rows: int
    state: str = "running"
    done: frozenset[int] = frozenset()
    counts: Counts = field(default_factory=Counts)
    rules_met: Mapping[str, int] = field(default_factory=dict)
    started: str = ""
    updated: str = ""
    seconds: float = 0.0
    sessions: tuple[Mapping[str, Any], ...] = ()

    @property
    def rows(self) -> int:
        """Of the input, bad ones too."""
        return int(self.input["rows"])

    @property
    def shards(self) -> int:
        return -(-self.rows // self.shard_rows)

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    def with_shard(self, number: int, counts: Counts) -> Manifest:
        return replace(self, done=self.done | {number}, counts=self.counts + counts)

    def to_dict(self) -> dict[str, Any]:
        """As it lies on the disk. Done shards are told as ranges, both ends included, so that it stays small."""
        return {
            "format": FORMAT,
            "kind": KIND,
            "state": self.state,
            "job": self.job,
            "rows": self.counts.rows,
            "errors": self.counts.errors,
            "tokens": self.counts.tokens,
            "open_ledgers": self.counts.open,
            "shards": {"count": self.shards, "rows_each": self.shard_rows, "done": ranges(self.done)},
            "columns": dict(self.columns),
            "asked": dict(self.asked),
            "provenance": dict(self.provenance),
            "rules_met": dict(self.rules_met),
            "input": dict(self.input),
            "started": self.started,
            "updated": self.updated,
            "seconds": round(self.seconds, 3),
            "sessions": [dict(session) for session in self.sessions],
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Manifest:
        return cls(
            job=found["job"],
            asked=found["asked"],
            provenance=found["provenance"],
            input=found["input"],
            columns=found["columns"],
            shard_rows=found["shards"]["rows_each"],
            state=found["state"],
            done=frozenset(n for first, last in found["shards"]["done"] for n in range(first, last + 1)),
            counts=Counts(found["rows"], found["errors"], found["tokens"], found["open_ledgers"]),
            rules_met=found["rules_met"],
            started=found["started"],
            updated=found["updated"],
            seconds=found["seconds"],
            sessions=tuple(found["sessions"]),
        )


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """0, 1, 2, 5 -> [0, 2], [5, 5]."""
    found: list[list[int]] = []
    for n in sorted(numbers):
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found


def shard_path(path: Path, number: int) -> Path:
    return path / SHARDS / f"shard-{number:06d}.parquet"


def holds_run(path: str | Path) -> bool:
    """Whether a directory is that of a run."""
    return (Path(path) / MANIFEST).is_file()


def read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no {MANIFEST}; it is written by `headwater run --out {path}`.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise DataError(f"{file} is not of a run of headwater.")
    if found.get("format") != FORMAT:
        raise DataError(f"{file} has the format {found.get('format')!r}; this version reads {FORMAT}.")
    try:
        return Manifest.from_dict(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{file} is not as a run leaves it: {said}.") from error


def said_in(footer: Any) -> dict[str, Any]:
    """What a shard says of itself, by its parquet metadata; nothing where it is none of ours."""
    try:
        found = json.loads((footer.metadata or {}).get(FOOTER, b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_json(path / MANIFEST, path / WORK / MANIFEST, manifest.to_dict())
