"""Results as JSON lines in a file that grows, so that interrupted work goes on. The first line says what they are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError, UsageError
from ..inputs.lines import split_lines

PACKED = b"\x1f\x8b"  # what a file of gzip begins with


@dataclass
class KeptLines:
    """The lines of an earlier run, and the file to which new ones are added; without a file nothing is kept."""

    path: Path | None
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path | None, about: Mapping[str, Any], tools: Mapping[str, Any]) -> KeptLines:
        """`about` must be what the file says of itself; `tools`, with what it was made, may differ."""
        if path is None:
            return cls(None)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"study": about, "made_with": tools}) + "\n", encoding="utf-8")
            return cls(path)
        if path.read_bytes().startswith(PACKED):
            raise UsageError(f"{path} is packed by gzip, and lines cannot be added to it: unpack it first.")
        found = read_lines(path, whole=False)
        if not found or not isinstance(found[0], dict) or "study" not in found[0]:
            raise UsageError(f"{path} holds no study. Name a file that does not exist yet, or one of an earlier call.")
        first, *lines = found
        if first["study"] != about:
            raise UsageError(
                f"{path} holds another study: of another model, other prompts, draws or seed. Name another file."
            )
        cut_off_half_line(path)
        return cls(path, lines)

    def add(self, line: Mapping[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def cut_off_half_line(path: Path) -> None:
    """What was killed while writing leaves a line without an end; it is computed again."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def read_lines(path: Path, whole: bool = True) -> list[dict[str, Any]]:
    """The lines of a file, plain or packed by gzip. Unless it must be `whole`, without a last line that has no end."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(PACKED) else content
        text = (content if whole else content[: content.rfind(b"\n") + 1]).decode("utf-8")
        return [json.loads(line) for line in split_lines(text)]
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is no file of JSON lines: {error}.") from error
