"""A bar on standard error: rows, tokens a second, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class TokensPerSecond(ProgressColumn):
    """Tokens a second since the job began or went on."""

    def render(self, task: Task) -> Text:
        seconds = task.elapsed or 0.0
        return Text(f"{task.fields['tokens'] / seconds:,.0f} tokens/s" if seconds > 1 else "")


@contextmanager
def show_progress(total: int, done: int, wanted: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Hears how many rows and tokens more are done; fewer, where a worker died. Shown on a terminal, or if `wanted`."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda rows, tokens: None
        return
    columns = (
        TextColumn("explaining"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        TokensPerSecond(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, speed_estimate_period=120) as shown:
        task = shown.add_task("", total=total, completed=done, tokens=0)

        def tick(rows: int, tokens: int) -> None:
            shown.update(task, advance=rows, tokens=shown.tasks[0].fields["tokens"] + tokens)

        yield tick
