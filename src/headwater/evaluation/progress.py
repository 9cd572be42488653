"""A bar on standard error: how many samples are done, how many a second, how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class Rate(ProgressColumn):
    """Samples a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f}/s" if speed < 10 else f"{speed:.0f}/s")


@contextmanager
def bar(
    total: int, done: int, wanted: bool | None, doing: str = "evaluating", what: str = "samples"
) -> Iterator[Callable[[float], None]]:
    """Hears how many samples more are done; parts of one count. Shown on a terminal, or wherever it is `wanted`."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda more: None
        return
    columns = (
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} " + what),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, speed_estimate_period=120) as shown:
        task = shown.add_task("", total=total, completed=done)
        yield lambda more: shown.advance(task, more)
