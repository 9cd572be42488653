"""Results in files: JSON with the number of its format, read back to the last bit without a model.

JSON writes a number with as many digits as tell it from every other one, so that what is read is what was written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import DataError

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor

RESULT_FORMAT = 1  # of what is written here; a change that an older reader would get wrong makes it 2


class Saved:
    """A result that is written into one JSON file, and read from it."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON. Nothing is left out: `from_dict` gives the result back."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Self:
        """The result again: `found` is what `to_dict` gave, also where it went through JSON."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether both are written alike: the same to the last bit, however they were computed."""
        return self.to_dict() == other.to_dict() if isinstance(other, type(self)) else NotImplemented

    def save(self, path: str | Path) -> None:
        """Writes one JSON file to `path`: what `to_dict` gives, in one line."""
        written = json.dumps(self.to_dict(), ensure_ascii=False) + "\n"
        try:
            Path(path).write_text(written, encoding="utf-8")
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}.") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote to `path`; no model is needed."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise DataError(f"{path} is no saved {cls.kind}: {error}.") from error
        try:
            return cls.from_dict(found if isinstance(found, dict) else {})
        except DataError as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is damaged: the saved {cls.kind} is not whole ({error}).") from error

    @classmethod
    def _stamp(cls) -> dict[str, Any]:
        """The first two entries of every file."""
        return {"format": RESULT_FORMAT, "kind": cls.kind}

    @classmethod
    def _check_stamp(cls, found: dict[str, Any]) -> None:
        kind, version = found.get("kind"), found.get("format")
        if kind != cls.kind:
            other = f"it holds a {kind}" if isinstance(kind, str) else "it does not say what it holds"
            raise DataError(f"this is no saved {cls.kind}: {other}.")
        if version != RESULT_FORMAT:
            raise DataError(f"this {cls.kind} has format {version}; this version reads format {RESULT_FORMAT}.")


def name_dtype(numbers: Tensor) -> str:
    """float32 for torch.float32."""
    return str(numbers.dtype).removeprefix("torch.")


def read_tensor(numbers: list[Any], dtype: str) -> Tensor:
    """Numbers in the type that they had before they were written."""
    import torch

    return torch.tensor(numbers, dtype=getattr(torch, dtype))


def as_tuple(found: Any) -> Any:
    """Lists within lists, as JSON has them, as tuples."""
    return tuple(map(as_tuple, found)) if isinstance(found, (list, tuple)) else found
