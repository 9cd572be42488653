"""SIGKILL at random moments, the long version: `python tests/run_kills.py worker parent actor --kills 20 --rows 5000`.

A job over rows of which some are bad is run undisturbed, and then again while workers, the parent, or actors of Ray are
killed, as often as asked; where the job comes to its end before that, it begins anew. The same command resumes it. In
the end every row must be there exactly once, among the results or among the errors, and every file equal to the
undisturbed run's, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from ray_nodes import actors

import headwater as hw

WORDS = "a the film is was not good bad very dull great moving story acting plot slow funny sad boring fine".split()
ENDED, BAD_ROWS, STOPPED = (0, 3), 3, 4
MOMENTS = 30.0  # seconds from kill to kill at most: a worker takes some to start, and must get to work now and then


def make(path: Path, rows: int) -> None:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 40))) for _ in range(rows)]
    for row in draw.sample(range(rows), rows // 100):
        texts[row] = draw.choice(["", "   ", "good " * 600])
    parquet.write_table(pa.table({"text": texts}), path)


def start(data: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    words = ["run", "--data", str(data), "--out", str(out), "--shard-rows", "250", "--workers", "2", *more]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "headwater", *words], stdout=quiet, stderr=quiet)


def workers_of(parent: int) -> list[int]:
    """The processes that explain: children of the command that multiprocessing started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            said = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"spawn_main" in said:
            found.append(int(process.name))
    return found


class Trial:
    """Kills of one kind, over as many jobs as it takes."""

    def __init__(self, kind: str, data: Path, directory: Path, wanted: dict[str, bytes], seed: int) -> None:
        self.kind, self.data, self.directory, self.wanted = kind, data, directory, wanted
        self.draw = random.Random(seed)
        self.killed = self.jobs = self.resumed = 0

    def go(self, kills: int) -> None:
        while self.killed < kills:
            out = self.directory / f"{self.kind}-{self.jobs}"
            self.jobs += 1
            while (code := self.once(out, kills)) not in ENDED:
                if code not in (-signal.SIGKILL, STOPPED):
                    raise SystemExit(f"{self.kind}: the job ended with {code}")
                self.resumed += 1
            check(out, self.wanted)

    def once(self, out: Path, kills: int) -> int:
        """The command until it ends, by itself or by us."""
        parent = start(self.data, out, *(["--engine", "ray"] if self.kind == "actor" else []))
        while parent.poll() is None:
            self.sleep(parent, MOMENTS)
            if self.killed >= kills or parent.poll() is not None:
                continue
            victims = {"parent": lambda: [parent.pid], "worker": lambda: workers_of(parent.pid), "actor": actors}
            if found := victims[self.kind]():
                self.kill(self.draw.choice(found))
        return parent.wait()

    def sleep(self, parent: subprocess.Popen[bytes], most: float) -> None:
        until = time.monotonic() + self.draw.uniform(0, most)
        while time.monotonic() < until and parent.poll() is None:
            time.sleep(0.02)

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed += 1
        say(f"{self.kind}: kill {self.killed}")


def contents(out: Path) -> dict[str, bytes]:
    files = [*(out / "shards").iterdir(), out / "errors.parquet"]
    return {file.name: file.read_bytes() for file in files}


def check(out: Path, wanted: dict[str, bytes]) -> None:
    """Every row once, and everything equal."""
    run = hw.open_run(out)
    rows = [row["row_id"] for row in run.rows(["row_id"])] + [row["row_id"] for row in run.errors()]
    if sorted(rows) != list(range(run.manifest.rows)):
        raise SystemExit(f"{out}: {len(rows)} rows, {len(set(rows))} different, of {run.manifest.rows}")
    found = contents(out)
    other = [name for name in wanted if found.get(name) != wanted[name]] + [
        name for name in found if name not in wanted
    ]
    if other:
        raise SystemExit(f"{out}: not as the undisturbed run: {', '.join(other)}")
    say(f"{out.name}: {len(rows):,} rows, each once; {len(found)} files equal byte for byte")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("kinds", nargs="*", default=["worker", "parent", "actor"])
    asked.add_argument("--kills", type=int, default=20)
    asked.add_argument("--rows", type=int, default=5000)
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        make(directory / "in.parquet", options.rows)
        whole = directory / "undisturbed"
        if start(directory / "in.parquet", whole).wait() != BAD_ROWS:
            raise SystemExit("the undisturbed run failed")
        check(whole, contents(whole))
        for kind in options.kinds:
            trial = Trial(kind, directory / "in.parquet", directory, contents(whole), options.seed)
            trial.go(options.kills)
            say(f"{kind}: {trial.killed} kills over {trial.jobs} jobs, resumed {trial.resumed} times")


if __name__ == "__main__":
    main()
