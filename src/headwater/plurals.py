"""A number and what is counted, as one says it: "1 text", "1,234 texts"."""

from __future__ import annotations


def say_count(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun; `plural` where that is not the noun with an s."""
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"
