"""Numbers of shards as ranges: a claim of many takes no more memory than a claim of one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class Ranges:
    """Numbers from 0 on. Each span is the first and the last of a range, both included."""

    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        return cls(merge_ranges((n, n) for n in numbers))

    @classmethod
    def read(cls, said: Any, end: int) -> Ranges:
        """As a manifest has them; refused if they are none, or go beyond what there can be."""
        spans = tuple((check_whole(first), check_whole(last)) for first, last in said)
        edges = [-1, *chain.from_iterable(spans), end]
        apart = all(before < after for before, after in zip(edges[::2], edges[1::2], strict=True))
        if not apart or any(first > last for first, last in spans):
            raise ValueError(f"its shards {str(said)[:60]} are no ranges below {end:,}")
        return cls(spans)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self.spans, number, key=lambda span: span[0]) - 1
        return at >= 0 and number <= self.spans[at][1]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.spans)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)

    def with_number(self, number: int) -> Ranges:
        return Ranges(merge_ranges([*self.spans, (number, number)]))


def merge_ranges(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """0, 1, 2, 5 -> (0, 2), (5, 5)."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def check_whole(value: Any, least: int = 0) -> int:
    """A count as it was read; refused if it is none."""
    if type(value) is not int or value < least:
        raise ValueError(f"{str(value)[:60]!r} is no whole number from {least} on")
    return value
