"""A bar on standard error: how much is done, how fast, how long it will take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class Speed(ProgressColumn):
    """Samples a second; of what counts tokens, tokens per second since it began or went on."""

    def render(self, task: Task) -> Text:
        if task.fields["tokens"] is not None:
            seconds = task.elapsed or 0.0
            return Text(f"{task.fields['tokens'] / seconds:,.0f} tokens/s" if seconds > 1 else "")
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f}/s" if speed < 10 else f"{speed:.0f}/s")


class Ticker:
    """Hears how much more is done; less, where a worker died. Parts of one count."""

    def __init__(self, console: Console, shown: Progress | None, tokens: int | None) -> None:
        self.console = console
        self.shown = shown
        self.tokens = tokens

    def __call__(self, more: float, tokens: int = 0) -> None:
        if self.tokens is not None:
            self.tokens += tokens
        if self.shown is not None:
            self.shown.update(self.shown.task_ids[0], advance=more, tokens=self.tokens)

    def note(self, text: str) -> None:
        """Stands behind the bar until there is another."""
        if self.shown is not None:
            self.shown.update(self.shown.task_ids[0], note=text)

    def say(self, text: str) -> None:
        """A line above the bar, which stays, also where there is no bar."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def show_progress(
    total: int,
    done: int = 0,
    wanted: bool | None = None,
    doing: str = "evaluating",
    what: str = "samples",
    tokens: bool = False,
) -> Iterator[Ticker]:
    """A bar while the block runs. Shown on a terminal, or wherever it is `wanted`; `tokens`: speed is of tokens."""
    console, counted = Console(stderr=True), 0 if tokens else None
    if not (console.is_terminal if wanted is None else wanted):
        yield Ticker(console, None, counted)
        return
    columns = (
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + what),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("left{task.fields[note]}"),
    )
    with Progress(*columns, console=console, speed_estimate_period=120) as shown:
        shown.add_task("", total=total, completed=done, tokens=counted, note="")
        yield Ticker(console, shown, counted)
