"""The directory of a run: begun, taken up again, or refused because it is another job's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..measures.provenance import now
from ..measures.saving import short
from ..store.aside import write_json
from ..store.manifest import (
    ERRORS,
    MANIFEST,
    SHARDS,
    WORK,
    Counts,
    Manifest,
    holds_run,
    read_manifest,
    shard_path,
    write_manifest,
)
from .locking import locked
from .reading.sources import Source, Sources
from .writing import found_shards, gather_errors, plain_failures

INPUT, LOCK = "input.json", "lock"


@contextmanager
def workplace(path: Path) -> Iterator[Workplace]:
    """The directory, ours alone until the block ends."""
    try:
        if path.is_dir() and not holds_run(path) and any(child.name != WORK for child in path.iterdir()):
            raise UsageError(f"{path} is not empty and holds no run. Choose a new directory.")
        (path / WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with locked(path / WORK / LOCK, path):
            try:
                yield Workplace(path)
            finally:
                if not holds_run(path):
                    clear(path)
    except PermissionError as error:
        raise UsageError(f"{error.filename or path} cannot be written: {error.strerror}.") from error


def clear(path: Path) -> None:
    """A run that was refused before it began leaves no directory behind."""
    with suppress(OSError):
        (path / WORK / LOCK).unlink()
        (path / WORK).rmdir()
        path.rmdir()


class Workplace:
    """A directory that is locked for us."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found = read_manifest(path) if holds_run(path) else None

    def known_sources(self) -> dict[str, Source]:
        """What was found out about the input when the job began; files that are as they were need not be read again."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((self.path / WORK / INPUT).read_text(encoding="utf-8"))
            files = [Source(**{**file, "offsets": tuple(file["offsets"])}) for file in said["files"]]
            return {file.path: file for file in files}
        return {}

    def taken_up(self, wanted: Manifest, sources: Sources) -> Manifest:
        """The manifest to go on from. Refused if what lies here is another job's."""
        if self.found is not None:
            check_same(self.path, self.found, wanted)
            wanted = replace(wanted, started=self.found.started, seconds=self.found.seconds)
            wanted = replace(wanted, sessions=(*self.found.sessions, *wanted.sessions), rules_met=self.found.rules_met)
        with plain_failures(self.path):
            (self.path / SHARDS).mkdir(exist_ok=True)
        for file in (self.path / WORK).iterdir():
            if file.suffix in (".unfinished", ".errors") or file.name in (MANIFEST, ERRORS):
                file.unlink()
        shards = found_shards(self.path, wanted.job)
        for file in (self.path / SHARDS).iterdir():
            if file not in {shard_path(self.path, number) for number in shards}:
                file.unlink()  # damaged, or left by somebody else: it would be read with the others
        state = (
            "finished" if self.found is not None and self.found.finished and len(shards) == wanted.shards else "running"
        )
        manifest = replace(wanted, state=state, done=frozenset(shards), counts=sum(shards.values(), Counts()))
        with plain_failures(self.path):
            write_json(self.path / WORK / INPUT, self.path / WORK / f"{INPUT}.unfinished", sources.to_dict())
        return self.write(manifest)

    def write(self, manifest: Manifest) -> Manifest:
        manifest = replace(manifest, updated=now())
        with plain_failures(self.path):
            write_manifest(self.path, manifest)
        return manifest

    def finish(self, manifest: Manifest) -> Manifest:
        """All shards are in their place, and the bad rows become one file."""
        gather_errors(self.path)
        return self.write(replace(manifest, state="finished"))

    def stop(self, manifest: Manifest) -> None:
        """Before its end, in order as far as the disk allows."""
        with suppress(Exception):
            gather_errors(self.path)
            self.write(replace(manifest, state="stopped"))


def job_of(asked: Mapping[str, Any]) -> str:
    """What tells a job from every other."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def check_same(path: Path, found: Manifest, wanted: Manifest) -> None:
    """Rows of another model, of other data or by other choices must not stand side by side."""
    if found.job == wanted.job:
        return
    other = [name for name in wanted.asked if found.asked.get(name) != wanted.asked[name]]
    said = "; ".join(difference(name, found, wanted) for name in other)
    raise UsageError(
        f"{path} holds another job: {said}. Choose another --out, or ask for what was asked before to go on with it."
    )


def difference(name: str, found: Manifest, wanted: Manifest) -> str:
    if name == "input_sha256":
        return changed_input(found.input["files"], wanted.input["files"])
    what = {"model_sha256": "the model's weights", "tokenizer_sha256": "the tokenizer"}.get(name, name)
    return f"{what} was {short(found.asked.get(name))}, is {short(wanted.asked[name])}"


def changed_input(found: list[Mapping[str, Any]], wanted: list[Mapping[str, Any]]) -> str:
    """Which file is not what it was."""
    if len(found) != len(wanted):
        return f"the input was {len(found)} files, is {len(wanted)}"
    for before, after in zip(found, wanted, strict=True):
        if before["sha256"] != after["sha256"]:
            if before["path"] == after["path"]:
                return f"the input {after['path']} has changed since"
            return f"the input was {before['path']}, is {after['path']}"
    return "the input has changed since"
