"""What a run's directory says of itself: what is being explained and how, which shards are done, and what they hold.

    manifest.json    this
    shards/          shard-000000.parquet, … : the explanations, in the order of the input
    errors.parquet   rows that could not be explained, each with its reason
    .work/           the lock, what is being written, what is known of the input, and bad rows by shard

A shard lies in `shards/` only when it is whole, and knows in its footer which job it belongs to. The manifest is
written after it. A run that was killed in between finds one shard more than the manifest has, and counts it as done.

Every file carries its checksum, see `seal`. Files of format 1 have none, and are read without.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DamagedRun, DataError
from .aside import write_sealed_json
from .ranges import Ranges, check_whole
from .seal import check_seal

FORMAT = 2
UNSEALED = 1  # the format before files had checksums
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
    done: Ranges = field(default_factory=Ranges)
    counts: Counts = field(default_factory=Counts)
    rules_met: Mapping[str, int] = field(default_factory=dict)
    started: str = ""
    updated: str = ""
    seconds: float = 0.0
    sessions: tuple[Mapping[str, Any], ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuses what cannot be: a number that somebody wrote in would be believed by all that reads."""
        if self.counts.rows + self.counts.errors != self.rows_done:
            told = f"{self.counts.rows:,} rows and {self.counts.errors:,} errors"
            raise ValueError(f"it claims {told} in {len(self.done):,} shards, which have {self.rows_done:,}")

    @property
    def rows(self) -> int:
        """Of the input, bad ones too."""
        return int(self.input["rows"])

    @property
    def shards(self) -> int:
        return -(-self.rows // self.shard_rows)

    def extent(self, shard: int) -> range:
        """The rows of the input that a shard is made of."""
        return shard_extent(shard, self.shard_rows, self.rows)

    @property
    def rows_done(self) -> int:
        """Of the input, in the shards that are done. The last shard may have fewer than the others."""
        last = self.shards - 1
        lacking = self.shard_rows - len(self.extent(last)) if last in self.done else 0
        return len(self.done) * self.shard_rows - lacking

    @property
    def sealed(self) -> bool:
        """Whether all its files have checksums."""
        return self.format > UNSEALED

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    def with_shard(self, number: int, counts: Counts) -> Manifest:
        return replace(self, done=self.done.with_number(number), counts=self.counts + counts)

    def to_dict(self) -> dict[str, Any]:
        """As it lies on the disk. Done shards are told as ranges, both ends included, so that it stays small."""
        return {
            "format": self.format,
            "kind": KIND,
            "state": self.state,
            "job": self.job,
            "rows": self.counts.rows,
            "errors": self.counts.errors,
            "tokens": self.counts.tokens,
            "open_ledgers": self.counts.open,
            "shards": {"count": self.shards, "rows_each": self.shard_rows, "done": self.done.spans},
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
        rows, shard_rows = check_whole(found["input"]["rows"]), check_whole(found["shards"]["rows_each"], 1)
        return cls(
            job=found["job"],
            asked=found["asked"],
            provenance=found["provenance"],
            input=found["input"],
            columns=found["columns"],
            shard_rows=shard_rows,
            state=found["state"],
            done=Ranges.read(found["shards"]["done"], end=-(-rows // shard_rows)),
            counts=Counts(*(check_whole(found[name]) for name in ("rows", "errors", "tokens", "open_ledgers"))),
            rules_met=found["rules_met"],
            started=found["started"],
            updated=found["updated"],
            seconds=found["seconds"],
            sessions=tuple(found["sessions"]),
            format=found["format"],
        )


def shard_extent(shard: int, shard_rows: int, rows: int) -> range:
    """Which of so many rows a shard is made of."""
    return range(shard * shard_rows, min((shard + 1) * shard_rows, rows))


def shard_path(path: Path, number: int) -> Path:
    return path / SHARDS / f"shard-{number:06d}.parquet"


def holds_run(path: str | Path) -> bool:
    """Whether a directory is that of a run."""
    return (Path(path) / MANIFEST).is_file()


def read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no {MANIFEST}; it is written by `headwater run --out {path}`.") from error
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from error
    try:
        found = json.loads(content.decode())
        check_seal(io.BytesIO(content), needed=isinstance(found, dict) and found.get("format") == FORMAT)
    except (OSError, ValueError, RecursionError) as error:
        raise damage_error(file, error) from error
    return parse_manifest(file, found)


def damage_error(file: Path, error: Exception | str) -> DamagedRun:
    said = str(error).rstrip(".")
    return DamagedRun(f"{file} is missing or damaged: {said}. The command that wrote the run makes it again.")


def parse_manifest(file: Path, found: Any) -> Manifest:
    """What a manifest says, if it is one that this version can read."""
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise DataError(f"{file} is not of a run of headwater.")
    if found.get("format") not in (UNSEALED, FORMAT):
        raise DataError(f"{file} has the format {found.get('format')!r}; this version reads {UNSEALED} and {FORMAT}.")
    try:
        return Manifest.from_dict(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{file} is not as a run leaves it: {said}.") from error


def read_footer(footer: Any) -> dict[str, Any]:
    """What a shard says of itself, by its parquet metadata; nothing where it is none of ours."""
    try:
        found = json.loads((footer.metadata or {}).get(FOOTER, b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_sealed_json(path / MANIFEST, path / WORK / MANIFEST, manifest.to_dict())
