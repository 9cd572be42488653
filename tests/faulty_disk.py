"""A disk that fails at the n-th operation that writes: once, from then on, or as if the process was killed there."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """Stands for SIGKILL: nothing that is written after it reaches the disk."""


class FaultyDisk:
    """Counts what writes below `folder`, and fails at operation number `at`, or, if `lasting`, from there on.

    A write that fails has written half of its bytes. With an `error` of 0 the process is killed.
    """

    CALLS = ("open", "mkdir", "unlink", "replace", "fsync", "ftruncate", "write")

    def __init__(self, folder: Path, at: int = 0, error: int = errno.EIO, lasting: bool = False) -> None:
        self.folder, self.at, self.error, self.lasting = folder, at, error, lasting
        self.done: list[str] = []

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in self.CALLS:
            patch.setattr(os, name, self.call(name, getattr(os, name)))
        patch.setattr(io, "open", self.open_file(io.open))

    def fails(self, what: str) -> bool:
        self.done.append(what)
        return len(self.done) >= self.at > 0 if self.lasting else len(self.done) == self.at

    def fail(self) -> None:
        raise OSError(self.error, os.strerror(self.error)) if self.error else Killed

    def step(self, what: str) -> None:
        if self.fails(what):
            self.fail()

    def call(self, name: str, given: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the system, which names a path of ours, or a descriptor."""

        def called(place: Any, *more: Any, **options: Any) -> Any:
            if isinstance(place, int) or self.ours(place):
                self.step(name)
            return given(place, *more, **options)

        return called

    def open_file(self, given: Callable[..., Any]) -> Callable[..., Any]:
        """Files that are written have our own writes beneath their buffer."""

        def opened(place: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if not self.ours(place) or not set(mode) & set("wxa+"):
                return given(place, mode, *more, **options)
            self.step("create")
            file = FaultyFile(place, mode, self)
            return io.BufferedRandom(file) if "+" in mode else io.BufferedWriter(file)

        return opened

    def ours(self, place: Any) -> bool:
        return isinstance(place, (str, os.PathLike)) and Path(place).is_relative_to(self.folder)


class FaultyFile(io.FileIO):
    """The file beneath a buffer: each write is one that reaches the system."""

    def __init__(self, place: Any, mode: str, disk: FaultyDisk) -> None:
        super().__init__(place, mode.replace("b", ""))
        self.disk = disk

    def write(self, content: Any) -> int:
        if self.disk.fails("write"):
            if len(self.disk.done) == self.disk.at:
                super().write(memoryview(content)[: len(content) // 2])
            self.disk.fail()
        return super().write(content)
