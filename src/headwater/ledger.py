"""Where a score came from: inputs + biases + constants + readout + unaccounted = score, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}


class Lines(Mapping[str, float]):
    """Named amounts of relevance. Reads like a dict, adds up like a number: `ledger.inputs + ledger.biases`."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, float] | None = None) -> None:
        self._amounts = MappingProxyType(dict(amounts or {}))

    def __getitem__(self, name: str) -> float:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @property
    def total(self) -> float:
        return float(sum(self._amounts.values()))

    def __float__(self) -> float:
        return self.total

    def __add__(self, other: object) -> float:
        if isinstance(other, (int, float, Lines)):
            return self.total + float(other)
        return NotImplemented

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"Lines(total={self.total:.6g}, {len(self)} lines)"

    def __reduce__(self) -> tuple[type[Lines], tuple[dict[str, float]]]:
        return Lines, (dict(self._amounts),)


@dataclass(frozen=True)
class Ledger:
    """The books of one score. Every line is gradient times value where that source enters the model.

    `unaccounted` alone is a remainder: what the gradient lost or invented on its way. `closed` says whether it is
    zero to the precision of `dtype`, measured against the sum of the absolute lines (the score itself may be near 0).
    A difference is known no better than what it is the difference of: `magnitude` is the absolute sum of that.
    """

    score: float
    inputs: float
    biases: Lines = field(default_factory=Lines)
    constants: Lines = field(default_factory=Lines)
    readout: float = 0.0
    dtype: str = "float32"
    magnitude: float = 0.0

    @property
    def unaccounted(self) -> float:
        return self.score - (self.inputs + self.biases.total + self.constants.total + self.readout)

    @property
    def size(self) -> float:
        """Sum of the absolute lines, or the magnitude if that is more: the scale on which an error is judged."""
        lines = [self.inputs, self.readout, *self.biases.values(), *self.constants.values()]
        return max(float(sum(abs(line) for line in lines)), self.magnitude) or abs(self.score) or 1.0

    @property
    def error(self) -> float:
        """|unaccounted| relative to `size`. 0 is a ledger that closes."""
        return abs(self.unaccounted) / self.size

    @property
    def closed(self) -> bool:
        return self.error <= TOLERANCE[self.dtype]

    def to_dict(self) -> dict[str, object]:
        return {
            "score": self.score,
            "inputs": self.inputs,
            "biases": dict(self.biases),
            "constants": dict(self.constants),
            "readout": self.readout,
            "unaccounted": self.unaccounted,
            "error": self.error,
            "closed": self.closed,
            "dtype": self.dtype,
            **({"magnitude": self.magnitude} if self.magnitude else {}),
        }
