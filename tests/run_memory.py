"""Whether memory stays flat over a million rows: `python tests/run_memory.py [--rows N] [--minutes M] [--workers W]`.

Short rows are made, and explained by the bundled model. Every second the memory of the job and of its workers is looked
up; the peak while the first 10,000 rows were done is compared with the peak of all. It stops when its time is over, and
says how far it went.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

import headwater as hw
from headwater.errors import DataError
from headwater.jobs import running

EARLY = 10_000
WORDS = "a the film is was not good bad very dull great moving story acting plot slow funny sad boring fine".split()


def make(path: Path, rows: int) -> None:
    """Rows of two to eight words, written as they are made."""
    draw = random.Random(0)
    with parquet.ParquetWriter(path, pa.schema({"text": pa.string(), "label": pa.int64()})) as writer:
        for start in range(0, rows, 50_000):
            texts = [" ".join(draw.choices(WORDS, k=draw.randint(2, 8))) for _ in range(min(50_000, rows - start))]
            writer.write_table(pa.table({"text": texts, "label": [len(t) % 2 for t in texts]}))


class Watch(threading.Thread):
    """The memory that this process and its children hold, in MiB, each second; and the peaks by rows done."""

    def __init__(self, out: Path, minutes: float) -> None:
        super().__init__(daemon=True)
        self.out, self.until, self.over = out, time.monotonic() + 60 * minutes, threading.Event()
        self.peaks: dict[str, dict[str, int]] = {"early": {}, "all": {}}
        self.rows = 0

    def run(self) -> None:
        while not self.over.wait(1.0):
            try:
                self.rows = len(hw.open_run(self.out))
            except DataError:
                self.rows = 0
            now = {"job": resident(os.getpid()), "worker": max(map(resident, children()), default=0)}
            for name in ("all", *(["early"] if self.rows <= EARLY else [])):
                self.peaks[name] = {who: max(mib, self.peaks[name].get(who, 0)) for who, mib in now.items()}
            if time.monotonic() > self.until:
                os.kill(os.getpid(), 2)
                return


def resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def children() -> list[int]:
    return [int(p) for task in Path("/proc/self/task").glob("*/children") for p in task.read_text().split()]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--minutes", type=float, default=60.0)
    asked.add_argument("--workers", type=int, default=1)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data, out = Path(directory) / "in.parquet", Path(directory) / "out"
        make(data, options.rows)
        watch = Watch(out, options.minutes)
        watch.start()
        began = time.monotonic()
        try:
            running.run(None, data, out, columns=["text", "label"], workers=options.workers)
        except KeyboardInterrupt:
            say("its time is over")
        watch.over.set()
        stored = hw.open_run(out)
        seconds = time.monotonic() - began
        size = sum(file.stat().st_size for file in (out / "shards").iterdir())
        say(f"{len(stored):,} of {options.rows:,} rows in {seconds:.0f} s, {len(stored) / seconds:.0f} rows/s")
        say(f"peak in MiB up to {EARLY:,} rows: {watch.peaks['early']}, of all: {watch.peaks['all']}")
        say(f"{size / max(1, len(stored)):.0f} bytes a row on disk")


if __name__ == "__main__":
    sys.exit(main())
