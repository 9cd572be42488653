"""The measurements on graphs: molecules and digits that the model has not seen, in both readings of removal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.evaluation.results import Evaluation
from headwater.evaluation.run import evaluate
from headwater.models.loading import load

from .graph_checkpoints import record_of
from .graph_data import unseen
from .published import ROC_AUC
from .sizes import Size

FLOW = "a-flow"
FLOW_ROWS = (FLOW, "lrp(ah+ln)")  # the second for comparison on the same samples
CHUNK, FLOW_CHUNK = 32, 8  # samples; small, so that workers end together
MASKED = "masked"


class GraphMeasures(NamedTuple):
    """What a trial holds of graphs."""

    main: Evaluation
    flow: Evaluation | None
    masked: Evaluation
    roc_auc: float | None


def check(name: str, path: Path) -> None:
    """Refuses a model whose test part is not known, and graphs whose data or libraries are missing."""
    unseen(name, record_of(path), rows=1)


def measure_graphs(
    name: str, path: Path, out: Path, methods: Sequence[str], flow: bool, size: Size, **shared: Any
) -> GraphMeasures:
    """Evaluate the checkpoint in `path` on its test part; what lies finished in `out` is not measured again.

    `shared` are the options of all its evaluations: where they are computed, by how many workers.
    """
    record = record_of(path)
    model, _ = load(path)
    graphs = unseen(name, record, row_count(name, size), size.seed)
    options: dict[str, Any] = {**shared, "runtime": False, "seed": size.seed, "chunk_size": CHUNK}
    main = evaluate(model, graphs, methods=methods, protocol=reading("induced"), out=out, **options)
    masked = evaluate(model, graphs, methods=methods, protocol=reading(MASKED), out=out / MASKED, **options)
    found = None
    if flow:
        options |= {"batch_size": 1, "limit": flow_limit(name, size), "chunk_size": FLOW_CHUNK}
        options |= {"protocol": reading("induced")}
        found = evaluate(model, graphs, methods=FLOW_ROWS, out=out / FLOW, **options)
    return GraphMeasures(main, found, masked, record["test"]["value"] if name in ROC_AUC else None)


def reading(removal: str) -> str:
    return f"ali2022(removal={removal})"


def row_count(name: str, size: Size) -> int | None:
    """How many graphs are drawn; digits have a number of their own, because each of them takes long."""
    return size.digits if name == "mnist" else size.rows


def flow_limit(name: str, size: Size) -> int | None:
    """How many of them maximum flow is solved for."""
    if name in size.flow_whole and size.rows is None:
        return None
    return min(size.flow_rows, size.flow_digits) if name == "mnist" else size.flow_rows
