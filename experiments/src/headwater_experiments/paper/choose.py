"""The default for encoders, chosen on validation parts by the rule in docs/studies/encoder-default.md.

`python -m headwater_experiments.paper.choose prepare --out parts.jsonl.gz` draws the samples, `… measure --parts
parts.jsonl.gz --out found.npz --device cuda --processes 12` measures every candidate and row on every model, and
`… compare found.npz` says which candidate the rule picks. `prepare --part test` draws the test parts of the 16 columns,
on which the chosen one is reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from headwater.methods import resolve_method

from . import path_gradients  # noqa: F401 - registers the method
from .validation_parts import (
    BUNDLED,
    KINDS,
    MINILM,
    TEST,
    VALIDATION,
    kind_of,
    list_models,
    part_key,
    read_parts,
    write_parts,
)
from .verdicts import MEASURES, ROWS, Found, read_found, write_found, write_verdicts


def spell_secant(*rules: str) -> str:
    return "lrp(" + "+".join(("ah=secant+ln+act+gate", *rules)) + ")"


def spell_shares(q: float, k: float, v: float, *rules: str) -> str:
    return "lrp(" + "+".join((f"ah=shares(q={q},k={k},v={v})+ln+act+gate", *rules)) + ")"


CANDIDATES = (
    *(f"lrp-gamma({g})" for g in (0.005, 0.01, 0.02, 0.1)),
    *(spell_secant(*rules) for rules in ((), ("gamma=0.01",), ("gamma=0.02",), ("gamma=0.05",))),
    *(spell_secant("gamma=0.01", rule) for rule in ("token=1", "residual=1")),
    spell_shares(0.25, 0.25, 0.5, "gamma=0.01"),
    "lrp-difference",
    *(f"lrp-difference({g})" for g in (0.005, 0.01, 0.02, 0.05, 0.1)),
)

TEXT_METHODS = (  # the rows that are first in some column, and the candidates that are left for texts
    *("rollout", "gae", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma(0.05)", "attnlrp", "path-gradients"),
    *("lrp-gamma(0.02)", *(spell_secant(*rules) for rules in ((), ("gamma=0.01",), ("gamma=0.02",), ("gamma=0.05",)))),
    *("lrp-difference", "lrp-difference(0.01)", "lrp-difference(0.02)", "lrp-difference(0.05)"),
)


@dataclass(frozen=True)
class Task:
    """One model and the methods that it is to be explained by."""

    model: str
    parts: Path
    methods: tuple[str, ...]
    rows: int | None
    device: str | None
    batch_size: int


def measure_model(task: Task) -> Found:
    """Every method's scores, sample by sample; perturbed inputs that methods have in common are run once."""
    from headwater.evaluation.run import evaluate

    samples = read_parts(task.parts)[part_key(task.model)][: task.rows]
    model, tokenizer = load_model(task.model)
    names = [resolve_method(name).name for name in task.methods]
    began = time.perf_counter()
    options: dict[str, Any] = {"device": task.device, "batch_size": task.batch_size, "tokenizer": tokenizer}
    found = evaluate(model, samples, methods=names, runtime=False, progress=False, **options)
    scores = {m.score: np.stack([found.totals(name, m.score) for name in names]) for m in MEASURES}
    errors = [found[name].conservation.largest_unaccounted for name in names]
    return {"methods": names, "errors": errors, "seconds": time.perf_counter() - began, **scores}


def load_model(name: str) -> tuple[Any, Any]:
    """A model by KIND/DATASET/SEED, and its tokenizer; graphs have none."""
    from headwater.models.bundled import load_bundled
    from headwater.models.loading import load
    from headwater_experiments.models import register

    from .checkpoints import find

    register()
    if name == BUNDLED:
        return load_bundled()
    kind, dataset, seed = name.split("/")
    return load(find(kind, dataset, int(seed)))


def measure_all(tasks: Sequence[Task], processes: int) -> Iterator[tuple[str, Found]]:
    """The models as they are done, in so many processes; a model that fails is named, and the others go on."""
    if processes <= 1:
        yield from ((task.model, measure_model(task)) for task in tasks)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), one_thread) as pool:
        waiting = {pool.submit(measure_model, task): task.model for task in tasks}
        for done in as_completed(waiting):
            if done.exception() is not None:
                sys.stderr.write(f"{waiting[done]} failed: {done.exception()!r}\n")
            else:
                yield waiting[done], done.result()


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def sort_by_cost(models: Sequence[str]) -> list[str]:
    """The slowest first, so that processes end together: long texts, then MiniLM, then graphs."""

    def cost(model: str) -> int:
        return 4 * ("imdb" in model) + 2 * (MINILM in model) + ("mnist" in model)

    return sorted(models, key=cost, reverse=True)


def prepare(out: Path, part: str, rows: int, reviews: int, digits: int) -> str:
    counts = write_parts(out, rows, reviews, digits, part)
    return json.dumps({"file": str(out), "bytes": out.stat().st_size, "samples": counts}, indent=2) + "\n"


def measure(
    parts: Path,
    out: Path,
    models: Sequence[str],
    methods: Path | None,
    texts: bool,
    rows: int | None,
    device: str | None,
    batch_size: int,
    processes: int,
) -> str:
    """Measures the models that are asked for, or all, and writes the file after each."""
    chosen = TEXT_METHODS if texts else (*ROWS, *CANDIDATES)
    if methods is not None:
        chosen = tuple(methods.read_text(encoding="utf-8").split())
    tasks = [Task(model, parts, chosen, rows, device, batch_size) for model in sort_by_cost(models or list_models())]
    found: dict[str, Found] = {}
    began = time.monotonic()
    for model, one in measure_all(tasks, processes):
        found[model] = one
        write_found(out, found)
        said = (
            f"{len(found)}/{len(tasks)} {model}: {float(one['seconds']):.0f} s, {time.monotonic() - began:.0f} s in all"
        )
        sys.stderr.write(said + "\n")
    return f"{out}: {len(found)} models, {len(chosen)} methods\n"


def compare(files: Sequence[Path], methods: Sequence[str], kind: str | None) -> str:
    found = read_found(files)
    return write_verdicts({m: one for m, one in found.items() if kind in (None, kind_of(m))}, methods)


def run_choose_command(arguments: Sequence[str] | None = None) -> None:
    """Prepare, measure or compare from the command line."""
    options = vars(_choose_parser().parse_args(arguments))
    sys.stdout.write(options.pop("run")(**options))


def _choose_parser() -> argparse.ArgumentParser:
    name = "python -m headwater_experiments.paper.choose"
    parser = argparse.ArgumentParser(prog=name, description="The default for encoders, chosen on validation parts.")
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare", help="draw the samples of all parts into one file")
    preparing.add_argument("--out", type=Path, required=True)
    preparing.add_argument("--part", choices=(VALIDATION, TEST), default=VALIDATION, help="(default: validation)")
    preparing.add_argument("--rows", type=int, default=200, help="texts or molecules of a part (default: 200)")
    preparing.add_argument("--reviews", type=int, default=80, help="of IMDB (default: 80)")
    preparing.add_argument("--digits", type=int, default=60, help="of MNIST (default: 60)")
    preparing.set_defaults(run=prepare)
    measuring = commands.add_parser("measure", help="measure rows and candidates on models")
    measuring.add_argument("models", nargs="*", help="KIND/DATASET/SEED, or bundled (default: all)")
    measuring.add_argument("--parts", type=Path, required=True, help="the file of `prepare`")
    measuring.add_argument("--out", type=Path, required=True, help="the file to write, .npz")
    measuring.add_argument("--methods", type=Path, help="a file of names (default: the rows and the candidates)")
    measuring.add_argument("--texts", action="store_true", help="the rows and candidates that are left for texts")
    measuring.add_argument("--rows", type=int, help="at most so many samples of a part")
    measuring.add_argument("--device")
    measuring.add_argument("--batch-size", type=int, default=128)
    measuring.add_argument("--processes", type=int, default=1)
    measuring.set_defaults(run=measure)
    comparing = commands.add_parser("compare", help="say which candidate the rule picks")
    comparing.add_argument("files", nargs="+", type=Path)
    comparing.add_argument("--kind", choices=KINDS, help="only the columns of one kind (default: both)")
    comparing.add_argument("--method", dest="methods", action="append", default=[], help="show its cells")
    comparing.set_defaults(run=compare)
    return parser


if __name__ == "__main__":
    run_choose_command()
