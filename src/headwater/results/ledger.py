"""Where a score came from, line by line.

inputs + biases + constants + cut off + held + readout + unaccounted = score
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..plurals import say_count
from .display import Shown

# Of `Ledger.size`: so much rounding may leave. One operation rounds to 6e-8 in float32. The errors of a whole model
# partly cancel, so they grow with the root of its depth: thirty layers of a language model leave at most 1e-6, whatever
# the order of their sums, which threads and machines change. A rule that is missing leaves 1e-3 and more.
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}
ROUNDING = 1e-5  # of the score: what is cut off is no remainder, so that coarse types excuse no more than float32
SINK = "attention sink"  # the line of the first token, on which attention that has nowhere to go comes to rest
SPECIAL = "special tokens"  # the line of special tokens that were set aside
BASELINE_SCORE = "score of the baseline"  # of methods that start from an input with nothing in it
HELD = 0.1  # of the lines: past that, what rules hold constant is too much to be set aside


class Lines(Mapping[str, float]):
    """Named amounts of relevance. Reads like a dict, adds up like a number: `ledger.inputs + ledger.biases`."""

    __slots__ = ("_by_name", "_row")

    def __init__(self, amounts: Mapping[str, float] | None = None) -> None:
        self._by_name: Mapping[str, float] | None = MappingProxyType(dict(amounts or {}))
        self._row: tuple[Sequence[str], Sequence[float]] = ((), ())

    @classmethod
    def of_row(cls, names: Sequence[str], amounts: Sequence[float]) -> Lines:
        """Each amount under its name, put together when a line is first asked for. Nobody may change the two."""
        if not names:
            return cls()
        if len(names) != len(amounts):
            raise ValueError(f"{len(names)} names do not fit {len(amounts)} amounts")
        found = cls.__new__(cls)
        found._by_name, found._row = None, (names, amounts)
        return found

    @property
    def _amounts(self) -> Mapping[str, float]:
        if self._by_name is None:
            self._by_name = MappingProxyType(dict(zip(*self._row, strict=True)))
        return self._by_name

    def __getitem__(self, name: str) -> float:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @property
    def total(self) -> float:
        return float(sum(self._amounts.values()))

    @property
    def absolute(self) -> float:
        """The sum of the absolute amounts."""
        return float(sum(abs(amount) for amount in self._amounts.values()))

    def largest(self, count: int = 3) -> str:
        """The largest amounts with their names, for a sentence."""
        found = sorted(self._amounts.items(), key=lambda line: -abs(line[1]))
        said = ", ".join(f"{name!r} {amount:+.4g}" for name, amount in found[:count])
        return said + (f" and {len(found) - count} more" if len(found) > count else "")

    def __float__(self) -> float:
        return self.total

    def __add__(self, other: object) -> float:
        if isinstance(other, (int, float, Lines)):
            return self.total + float(other)
        return NotImplemented

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"Lines(total={self.total:.6g}, {say_count(len(self), 'line')})"

    def __reduce__(self) -> tuple[type[Lines], tuple[dict[str, float]]]:
        return Lines, (dict(self._amounts),)


@dataclass(frozen=True)
class Ledger(Shown):
    """The books of one score. Every line is gradient times value where that source enters the model.

    `cut_off` has what depends on the input, but was cut off from it by the model's own code (`detach`, `no_grad`, a
    look-up by numbers of the input); `held` has parameters that are weighed by what our rules hold constant (a softmax
    over a learned memory). Neither is a bias, for it would change with the input.

    `unaccounted` alone is a remainder: what the gradient lost or invented on its way. A ledger is `closed` if that is
    zero to the precision of `dtype`, nothing was cut off and little is held; else `why` says what stands against it.
    `spread` is the sum of the inputs' absolute relevance, `cut_size` that of what was cut off: parts that cancel in a
    line do not cancel there. A difference is known no better than what it is the
    difference of: `magnitude` is the absolute sum of that. A token that is almost certain has a log-probability near 0,
    which is a logit of 30 minus another number of 30: float32 knows it to a few 1e-6, however small it is. Judged by
    its own size, the same ledger would close on one machine and stay open on the next.
    """

    score: float  # what the lines add up to
    inputs: float  # the relevance of all inputs
    biases: Lines = field(default_factory=Lines)  # of the model, by parameter
    constants: Lines = field(default_factory=Lines)  # all else that the model adds, by name
    readout: float = 0.0  # the curvature of a score that is not linear in the logits
    dtype: str = "float32"  # of the computation
    magnitude: float = 0.0  # of what the score is a difference of, absolute
    cut_off: Lines = field(default_factory=Lines)  # what the model's own code cut off from the input
    held: Lines = field(default_factory=Lines)  # parameters that are weighed by what rules hold constant
    spread: float = 0.0  # the inputs' absolute relevance, summed
    cut_size: float = 0.0  # the same of what was cut off

    @property
    def unaccounted(self) -> float:
        """What is missing: the score minus all lines."""
        return self.score - (self.inputs + self.readout + sum(group.total for group in self.groups.values()))

    @property
    def size(self) -> float:
        """Sum of the absolute lines, or the magnitude if that is more: the scale on which an error is judged."""
        lines = [self.inputs, self.readout, *(line for group in self.groups.values() for line in group.values())]
        return max(float(sum(abs(line) for line in lines)), self.magnitude) or abs(self.score) or 1.0

    @property
    def error(self) -> float:
        """|unaccounted| relative to `size`. 0 is a ledger that closes."""
        return abs(self.unaccounted) / self.size

    @property
    def scale(self) -> str:
        """On which scale what is unaccounted is rounding: that of the "score" and the inputs, or that of the "lines".

        Lines that are large and cancel have rounding errors of their own size. Then only their scale is left.
        """
        return "score" if abs(self.unaccounted) <= self.tolerance * self._near else "lines"

    @property
    def tolerance(self) -> float:
        """The error up to which rounding explains what is missing, for the dtype that was computed in."""
        return TOLERANCE[self.dtype]

    @property
    def closed(self) -> bool:
        """Whether the lines sum to the score, up to rounding."""
        return not self.why

    @property
    def why(self) -> str:
        """Why the ledger is not closed, in a sentence; empty if it is."""
        missing = abs(self.unaccounted)
        if not math.isfinite(missing):
            return "A line is not finite."
        if missing > self.tolerance * self.size:
            return f"{self.unaccounted:+.4g} of {self.score:+.4g} is unaccounted for: `audit` says where it is lost."
        if missing > math.sqrt(self.tolerance) * self._near:
            return (
                f"{self.unaccounted:+.4g} is unaccounted for. That is rounding beside lines that cancel "
                f"({self.size:.4g}), but not beside the score {self.score:+.4g}: compute in a finer dtype."
            )
        if max(self.cut_off.absolute, self.cut_size) > min(self.tolerance, ROUNDING) * self._near:
            return f"The model's own code cuts off what depends on the input: {self.cut_off.largest()}."
        if self.held.absolute > HELD * self.size:
            return (
                "Rules hold constant what weighs parameters, and so keep much of the score from the input: "
                f"{self.held.largest()}."
            )
        return ""

    @property
    def groups(self) -> dict[str, Lines]:
        """The groups of lines by name. What is cut off or held is named only where something is."""
        seldom = {"cut off": self.cut_off, "held": self.held}
        return {
            "biases": self.biases,
            "constants": self.constants,
            **{n: lines for n, lines in seldom.items() if lines},
        }

    @property
    def _near(self) -> float:
        """The scale of the score and of the inputs."""
        return max(abs(self.score), abs(self.inputs), self.spread, self.magnitude)

    def with_aside(self, amounts: Mapping[str, float]) -> Ledger:
        """The same books with these `amounts`, by name, moved from the inputs to lines of the constants."""
        moved = {name: amount + self.constants.get(name, 0.0) for name, amount in amounts.items()}
        return replace(self, inputs=self.inputs - sum(amounts.values()), constants=Lines({**self.constants, **moved}))

    def to_dict(self) -> dict[str, object]:
        """Plain types, ready for JSON; `from_dict` gives the ledger back."""
        return {
            "score": self.score,
            "inputs": self.inputs,
            "biases": dict(self.biases),
            "constants": dict(self.constants),
            **({"cut_off": dict(self.cut_off)} if self.cut_off else {}),
            **({"held": dict(self.held)} if self.held else {}),
            "readout": self.readout,
            "unaccounted": self.unaccounted,
            "error": self.error,
            "closed": self.closed,
            **({"why": self.why} if self.why else {}),
            "scale": self.scale,
            "dtype": self.dtype,
            "spread": self.spread,
            **({"cut_size": self.cut_size} if self.cut_off or self.cut_size else {}),
            **({"magnitude": self.magnitude} if self.magnitude else {}),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Ledger:
        """The ledger again: `found` is what `to_dict` gave. What follows from the lines (`unaccounted`, `closed`, …) is
        computed.
        """
        plain: dict[str, Any] = {name: found[name] for name in ("score", "inputs", "readout", "dtype")}
        plain |= {name: found.get(name, 0.0) for name in ("magnitude", "spread", "cut_size")}
        plain |= {name: Lines(found.get(name, {})) for name in ("biases", "constants", "cut_off", "held")}
        return cls(**plain)
