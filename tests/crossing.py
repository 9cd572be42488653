"""Tests whose parameters are crossed (`@pytest.mark.crossed`): the quick part has every value, all tests every pair.

Of 24 models times five methods, 24 cases are quick: every model once, and every method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest


def mark_slow_cases(items: list[pytest.Item]) -> None:
    """All cases of a crossed test but a few that show every value of every parameter."""
    crossed: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("crossed"):
            crossed[item.nodeid.partition("[")[0]].append(item)
    for cases in crossed.values():
        quick = cover_values([case.callspec.params for case in cases])  # type: ignore[attr-defined]
        for number, case in enumerate(cases):
            if number not in quick:
                case.add_marker(pytest.mark.slow)


def cover_values(cases: Sequence[dict[str, Any]]) -> set[int]:
    """The numbers of few cases that have every value: each time the one with most values that are still missing."""
    shown = [{(name, id(value)) for name, value in case.items()} for case in cases]
    missing, chosen = set().union(*shown), set()
    while missing:
        best = max(range(len(shown)), key=lambda number: len(shown[number] & missing))
        chosen.add(best)
        missing -= shown[best]
    return chosen
