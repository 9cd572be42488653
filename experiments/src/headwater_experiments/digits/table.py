"""How faithful methods are to the small vision transformer, patch by patch, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.evaluation.results import Evaluation
from headwater.evaluation.run import evaluate
from headwater.models.bundled import DIGITS, bundled_path
from headwater.models.loading import load_image_model
from headwater_experiments.models.superpixels import load_mnist_images

METHODS = (
    "random",
    "rollout",
    "gi",
    "lrp(ah+ln)",
    "lrp",
    "lrp-gamma(0.05)",
    "attnlrp",
    "integrated-gradients",
)


def measure_methods(
    methods: Sequence[str] = METHODS,
    *,
    model: str | Path | None = None,
    rows: int = 300,
    seed: int = 0,
    out: Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Evaluation:
    """Activation and pruning by patch on so many of MNIST's test digits, drawn with the seed."""
    loaded, processor = load_image_model(bundled_path(DIGITS) if model is None else model)
    if model is None:
        loaded.config._name_or_path = DIGITS  # where this copy of it lies says nothing
    images, labels = load_mnist_images("test")
    pairs = list(zip(images, labels.tolist(), strict=True))
    return evaluate(
        loaded,
        draw_pairs(pairs, rows, seed),
        methods=methods,
        processor=processor,
        seed=seed,
        out=out,
        progress=progress,
        **options,
    )


def draw_pairs(pairs: Sequence[Any], rows: int, seed: int) -> list[Any]:
    """So many of them, in their order, before any is prepared."""
    import numpy as np

    kept = sorted(np.random.default_rng(seed).permutation(len(pairs))[:rows].tolist())
    return [pairs[i] for i in kept]


def table_markdown(found: Evaluation) -> str:
    """A row per method, with 95 % intervals over digits and the cost as a ratio to the prediction."""
    columns = ("method", "AUAC, higher is better", "AU-MSE, lower is better", "unaccounted, at most", "x forward")
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    rows = []
    for name in found.methods:
        one = found[name]
        cost = "" if one.runtime is None else f"{one.runtime.ratio:.1f}"
        error = f"{one.conservation.largest_unaccounted:.0e}"
        rows.append(f"| `{name}` | {interval(one, 'auac')} | {interval(one, 'aumse')} | {error} | {cost} |")
    return "\n".join([*head, *rows]) + "\n"


def interval(one: Any, measure: str) -> str:
    low, high = one.interval(measure)
    return f"{getattr(one, measure):.3f} ({low:.3f} to {high:.3f})"
