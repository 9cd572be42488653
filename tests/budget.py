"""How much processor time the quick part of the tests takes, and a line where that is more than it should be.

The quick part is all that is not marked `slow`: what `make test` runs. Times are those of the processor, of a test with
its fixtures and with the processes that it waits for, so that other work on the machine hardly changes them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from missing import describe_skips

QUICK = 360.0  # seconds of processor time: about three minutes on two cores, and a minute to start and collect
DEAREST = 5
SPENT = "processor seconds"


def processor_seconds() -> float:
    """Of this process, and of those that it started and has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Budget:
    """A plugin: the processes that run tests note what each took, and the first process adds it up."""

    def __init__(self, complete: bool) -> None:
        self.complete = complete
        self.quick: Counter[str] = Counter()
        self.skipped: list[str] = []
        self.begun = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self.begun = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            item.user_properties.append((SPENT, processor_seconds() - self.begun))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped.append(report.longrepr[2])
        if report.when == "teardown" and "slow" not in report.keywords:
            self.quick[report.nodeid] += dict(report.user_properties)[SPENT]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent = self.quick.total()
        if spent > QUICK:
            terminalreporter.write_line(self.warning(), yellow=True)
        elif self.complete:
            terminalreporter.write_line(f"quick part: {spent:.0f} s of processor time; its budget is {QUICK:.0f} s")
        if self.skipped:
            terminalreporter.write_line(describe_skips(self.skipped))

    def warning(self) -> str:
        dearest = ", ".join(f"{name} ({seconds:.1f} s)" for name, seconds in self.quick.most_common(DEAREST))
        return (
            f"quick part: {self.quick.total():.0f} s of processor time, more than its budget of {QUICK:.0f} s. "
            f"Make tests cheaper or mark them `slow`. The dearest: {dearest}"
        )
