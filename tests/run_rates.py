"""Rows a second of a run: `python tests/run_rates.py bare local ray --rows 8000 --workers 1`.

`bare` is a loop over `hw.explain` with the very batches of the run, in this process. The others are runs of two sizes:
the difference is the rate, the rest is the fixed cost: starting processes or a cluster, loading, planning. Results are
written to disk in both. The bundled model, one thread a worker. Beside the clock stands what the job and all processes
that it started took of the processor, which says more on a machine where others work, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from run_kills import make

import headwater as hw
from headwater.jobs.explaining import Explainer
from headwater.jobs.failures import RetryState
from headwater.jobs.planning import Layout
from headwater.jobs.reading.sources import find_sources
from headwater.jobs.settings import JobSettings
from headwater.models.bundled import load_bundled

FEW = 1000
TICKS = os.sysconf("SC_CLK_TCK")


def bare(data: Path, rows: int) -> Rate:
    """Rows a second of `hw.explain`, on the batches that a run makes of the same file."""
    torch.set_num_threads(1)
    model, tokenizer = load_bundled()
    settings = JobSettings()
    explainer = Explainer(model, tokenizer, settings, find_sources(data, settings.columns))
    batches = []
    for chunk in Layout(rows, settings.shard_rows).left(()):
        found = explainer.reading.read(chunk.start, chunk.stop)
        usable, _ = explainer.usable(found.start, found.texts, RetryState())
        batches += [[row.text for row in batch] for batch in explainer.batches(usable)]
    hw.explain(model, batches[0], tokenizer=tokenizer, method="lrp")
    began, used = time.perf_counter(), time.process_time()
    for batch in batches:
        hw.explain(model, batch, tokenizer=tokenizer, batch_size=len(batch), method="lrp")
    rows = sum(map(len, batches))
    return Rate(rows / (time.perf_counter() - began), 1000 * (time.process_time() - used) / rows)


@dataclass(frozen=True)
class Rate:
    """Rows a second by the clock, and milliseconds of the processor a row."""

    rows: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.rows:.1f} rows/s, {self.cpu:.2f} ms of the processor a row"


class Used(threading.Thread):
    """Seconds of the processor that this process and everything it started has taken, looked up five times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.seconds = threading.Event(), dict[str, float]()

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.look()

    def look(self) -> None:
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(stat.parent.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS, fields[19])
        ours = {os.getpid()}
        while more := {pid for pid, (parent, *_) in found.items() if parent in ours} - ours:
            ours |= more
        for pid in ours:
            self.seconds[f"{pid} {found[pid][2]}"] = found[pid][1]

    def total(self) -> float:
        return sum(self.seconds.values())


def seconds(data: Path, out: Path, engine: str, workers: int) -> tuple[float, float]:
    """By the clock, and of the processor."""
    used, began = Used(), time.perf_counter()
    used.look()
    before = used.total()
    used.start()
    hw.run(None, data, out, engine=engine, workers=workers, method="lrp")
    took = time.perf_counter() - began
    used.over.set()
    used.join()
    used.look()
    return took, used.total() - before


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("what", nargs="+", choices=["bare", "local", "ray"])
    asked.add_argument("--rows", type=int, default=8000)
    asked.add_argument("--workers", type=int, default=1)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        make(directory / "many.parquet", options.rows)
        make(directory / "few.parquet", FEW)
        for what in options.what:
            if what == "bare":
                sys.stdout.write(f"bare: {bare(directory / 'many.parquet', options.rows)}\n")
                continue
            few, many = (
                seconds(directory / f"{name}.parquet", directory / f"{what}-{name}", what, options.workers)
                for name in ("few", "many")
            )
            more = options.rows - FEW
            rate = Rate(more / (many[0] - few[0]), 1000 * (many[1] - few[1]) / more)
            sys.stdout.write(
                f"{what}, workers {options.workers}: {rate}; {options.rows:,} rows in {many[0]:.1f} s; fixed cost "
                f"{few[0] - FEW / rate.rows:.1f} s, {few[1] - FEW * rate.cpu / 1000:.1f} s of the processor\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
