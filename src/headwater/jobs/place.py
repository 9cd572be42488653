"""The directory of a run: begun, taken up again, or refused because it is another job's."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DamagedRun, DataError, HeadwaterError, UsageError
from ..evaluation.provenance import now, shorten
from ..plurals import say_count
from ..store.aside import write_sealed_json
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
from ..store.ranges import Ranges
from ..store.runs import check_errors
from ..store.seal import check_file_seal, check_seal
from .disk import need_directory, need_no_directory, plain_failures, plain_refusals
from .locking import hold_lock
from .reading.sources import InputFile, InputFiles
from .writing import found_shards, gather_errors, job_of_file, shard_numbers

INPUT, LOCK = "input.json", "lock"
UNFINISHED = re.compile(r"shard-\d{6,}\.(unfinished|errors)|input\.json\.unfinished|manifest\.json|errors\.parquet")


@contextmanager
def open_run_directory(path: Path) -> Iterator[RunDirectory]:
    """The directory, ours alone until the block ends."""
    with plain_refusals(path):
        check_ours(path)
        new = not path.exists()
        (path / WORK).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path / WORK / LOCK, path))
        except HeadwaterError:
            if new:
                remove_empty_directory(path, new)
            raise
        try:
            yield RunDirectory(path)
        finally:
            if not has_begun(path):
                remove_empty_directory(path, new)


def has_begun(path: Path) -> bool:
    """Whether a run was begun here, also one that was killed before it wrote its manifest."""
    return holds_run(path) or (path / WORK / INPUT).is_file()


def check_ours(path: Path) -> None:
    """Refuses a directory that is somebody else's, and one in which a part of the run's is not its own."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file: a run is a directory of files. Name another --out.")
    if path.is_dir() and not has_begun(path) and any(child.name != WORK for child in path.iterdir()):
        raise UsageError(f"{path} is not empty and holds no run. Choose a new directory.")
    for name in (WORK, SHARDS):
        need_directory(path / name)
    for name in (MANIFEST, ERRORS):
        need_no_directory(path / name)


def remove_empty_directory(path: Path, new: bool) -> None:
    """A run that was refused before it began leaves no directory behind that was not there."""
    with suppress(OSError):
        (path / WORK / LOCK).unlink(missing_ok=True)
        (path / WORK).rmdir()
        if new:
            path.rmdir()


class RunDirectory:
    """A directory that is locked for us."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: Manifest | None = self._manifest()

    def _manifest(self) -> Manifest | None:
        """None where there is none, or a damaged one: the shards say themselves to which job they belong."""
        if not holds_run(self.path):
            return None
        try:
            return read_manifest(self.path)
        except DamagedRun:
            if not (self.path / WORK / INPUT).is_file():
                raise
            return None

    def read_known_sources(self) -> dict[str, InputFile]:
        """What was found out about the input when the job began; files that are as they were need not be read again."""
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            content = (self.path / WORK / INPUT).read_bytes()
            check_seal(io.BytesIO(content), needed=True)
            files = [InputFile.from_dict(file) for file in json.loads(content)["files"]]
            return {file.path: file for file in files}
        return {}

    def take_up(self, wanted: Manifest, sources: InputFiles) -> Manifest:
        """The manifest to go on from. Refused if what lies here is another job's."""
        wanted = self._following(wanted)
        for number in shard_numbers(self.path):
            need_no_directory(shard_path(self.path, number))
        with plain_failures(self.path):
            remove_partial_files(self.path / WORK)
            write_sealed_json(self.path / WORK / INPUT, self.path / WORK / f"{INPUT}.unfinished", sources.to_dict())
            (self.path / SHARDS).mkdir(exist_ok=True)
            shards = found_shards(self.path, wanted)
        manifest = replace(wanted, done=Ranges.of(shards), counts=sum(shards.values(), Counts()))
        if self.found is not None and self.found.finished and len(shards) == wanted.shards:
            ended = replace(manifest, state="finished")
            manifest = ended if has_errors(self.path, ended) else manifest
        return self.write(manifest)

    def _following(self, wanted: Manifest) -> Manifest:
        """What is wanted, as the continuation of what lies here."""
        if self.found is None:
            check_none_other(self.path, wanted)
            return wanted
        check_same_job(self.path, self.found, wanted)
        return replace(
            wanted,
            format=self.found.format,
            started=self.found.started,
            seconds=self.found.seconds,
            sessions=(*self.found.sessions, *wanted.sessions),
            rules_met=self.found.rules_met,
        )

    def write(self, manifest: Manifest) -> Manifest:
        manifest = replace(manifest, updated=now())
        with plain_failures(self.path):
            write_manifest(self.path, manifest)
        return manifest

    def finish(self, manifest: Manifest) -> Manifest:
        """All shards are in their place, and the bad rows become one file."""
        gather_errors(self.path, manifest)
        return self.write(replace(manifest, state="finished"))

    def stop(self, manifest: Manifest) -> None:
        """Before its end, in order as far as the disk allows."""
        with suppress(Exception):
            gather_errors(self.path, manifest)
            self.write(replace(manifest, state="stopped"))


def remove_partial_files(work: Path) -> None:
    """What a job that was killed had begun to write. Whatever else lies there is left alone."""
    for file in work.iterdir():
        if UNFINISHED.fullmatch(file.name):
            file.unlink()


def has_errors(path: Path, manifest: Manifest) -> bool:
    """Whether the file of the bad rows is whole."""
    if not manifest.counts.errors:
        return True
    from pyarrow import ArrowException, parquet

    try:
        check_file_seal(path / ERRORS, needed=manifest.sealed)
        check_errors(parquet.read_metadata(path / ERRORS), manifest)
    except (OSError, ArrowException):
        return False
    return True


def job_of(asked: Mapping[str, Any]) -> str:
    """What tells a job from every other."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def check_same_job(path: Path, found: Manifest, wanted: Manifest) -> None:
    """Rows of another model, of other data or by other choices must not stand side by side."""
    if found.job == wanted.job:
        check_row_count(path, found, wanted)
        return
    names = dict.fromkeys((*wanted.asked, *found.asked))
    other = [name for name in names if found.asked.get(name) != wanted.asked.get(name)]
    said = "; ".join(describe_difference(name, found, wanted) for name in other)
    raise UsageError(
        f"{path} holds another job: {said}. Choose another --out, or ask for what was asked before to go on with it."
    )


def check_row_count(path: Path, found: Manifest, wanted: Manifest) -> None:
    """The same job has the same rows: a manifest that claims others is not as a run leaves it."""
    if (found.rows, found.shard_rows) != (wanted.rows, wanted.shard_rows):
        raise DataError(
            f"{path / MANIFEST} claims {say_count(found.rows, 'row')} in shards of {found.shard_rows:,}; the input has "
            f"{wanted.rows:,}, in shards of {wanted.shard_rows:,}. Choose another --out."
        )


def check_none_other(path: Path, wanted: Manifest) -> None:
    """Where no manifest says whose shards lie here, they say it themselves."""
    for number in shard_numbers(path):
        job = job_of_file(shard_path(path, number))
        if job not in (None, wanted.job):
            raise UsageError(
                f"{path} has no {MANIFEST} that can be read, and {shard_path(path, number)} is of another job. Choose "
                "another --out, or ask for what was asked before to go on with it."
            )


def describe_difference(name: str, found: Manifest, wanted: Manifest) -> str:
    if name == "input_sha256":
        return describe_changed_input(found.input["files"], wanted.input["files"])
    what = {"model_sha256": "the model's weights", "tokenizer_sha256": "the tokenizer"}.get(name, name)
    unsaid = {"sinks": "show"}.get(name)
    return f"{what} was {shorten(found.asked.get(name, unsaid))}, is {shorten(wanted.asked.get(name, unsaid))}"


def describe_changed_input(found: list[Mapping[str, Any]], wanted: list[Mapping[str, Any]]) -> str:
    """Which file is not what it was."""
    if len(found) != len(wanted):
        return f"the input was {say_count(len(found), 'file')}, is {len(wanted)}"
    for before, after in zip(found, wanted, strict=True):
        if before["sha256"] != after["sha256"]:
            if before["path"] == after["path"]:
                return f"the input {after['path']} has changed since"
            return f"the input was {before['path']}, is {after['path']}"
    return "the input has changed since"
