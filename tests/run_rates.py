"""Rows a second of a run: `python tests/run_rates.py bare local ray --rows 8000 --workers 1`.

`bare` is a loop over `hw.explain` with the very batches of the run, in this process. The others are runs of two sizes:
the difference is the rate, the rest is the fixed cost: starting processes or a cluster, loading, planning. Results
are written to disk in both. The bundled model, one thread a worker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
from run_kills import make

import headwater as hw
from headwater.jobs.explaining import Care, Explainer
from headwater.jobs.planning import Layout
from headwater.jobs.reading.sources import find_sources
from headwater.jobs.settings import Settings
from headwater.models.bundled import load_bundled

FEW = 1000


def bare(data: Path, rows: int) -> float:
    """Rows a second of `hw.explain`, on the batches that a run makes of the same file."""
    torch.set_num_threads(1)
    model, tokenizer = load_bundled()
    settings = Settings()
    explainer = Explainer(model, tokenizer, settings, find_sources(data, settings.columns))
    batches = []
    for chunk in Layout(rows, settings.shard_rows).left(()):
        found = explainer.reading.read(chunk.start, chunk.stop)
        usable, _ = explainer.usable(found.start, found.texts, Care())
        batches += [[row.text for row in batch] for batch in explainer.batches(usable)]
    hw.explain(model, batches[0], tokenizer=tokenizer)
    began = time.perf_counter()
    for batch in batches:
        hw.explain(model, batch, tokenizer=tokenizer, batch_size=len(batch))
    return sum(map(len, batches)) / (time.perf_counter() - began)


def seconds(data: Path, out: Path, engine: str, workers: int) -> float:
    began = time.perf_counter()
    hw.run(None, data, out, engine=engine, workers=workers)
    return time.perf_counter() - began


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
                sys.stdout.write(f"bare: {bare(directory / 'many.parquet', options.rows):.1f} rows/s\n")
                continue
            few, many = (
                seconds(directory / f"{name}.parquet", directory / f"{what}-{name}", what, options.workers)
                for name in ("few", "many")
            )
            rate = (options.rows - FEW) / (many - few)
            fixed = few - FEW / rate
            sys.stdout.write(
                f"{what}, workers {options.workers}: {rate:.1f} rows/s, fixed cost {fixed:.1f} s, "
                f"{options.rows:,} rows in {many:.1f} s\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
