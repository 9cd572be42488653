"""Results on disk, as the commands leave them: of an evaluation, of a run over a dataset, of a bias audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.explanation import Explanation
from headwater.models.bundled import load_bundled

TEXTS = (
    ("a warm and funny film about growing old", "positive"),
    ("the jokes fall flat and the ending is a cheat", "negative"),
    ("one of the finest films of the year", "positive"),
    ("a dull and lifeless film that nobody needed", "negative"),
    ("a clever, tense and beautifully shot film", "positive"),
    ("the plot makes no sense", "negative"),
)
GROUPS = {"films": ["film", "films", "plot"], "parts": ["ending", "jokes", "year"]}


def evaluation(folder: Path) -> None:
    model, tokenizer = load_bundled()
    hw.evaluate(
        model, list(TEXTS), tokenizer=tokenizer, methods=["gi", "lrp"], out=folder, runtime=False, progress=False
    )


def bias(folder: Path) -> None:
    model, tokenizer = load_bundled()
    texts = {"text": [text for text, _ in TEXTS]}
    hw.audit_bias(
        model, texts, tokenizer=tokenizer, groups=GROUPS, target="positive", permutations=200, progress=False
    ).save(folder)


def run(folder: Path) -> list[Explanation]:
    """As `headwater run` lays it out: docs of its layout are docs/jobs.md."""
    model, tokenizer = load_bundled()
    made = [hw.explain(model, text, tokenizer=tokenizer) for text, _ in TEXTS]
    write_run(folder, made, {"label": [label for _, label in TEXTS]})
    return made


def write_run(folder: Path, made: Sequence[Explanation], more: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "shards").mkdir(parents=True)
    maps = pa.map_(pa.string(), pa.float64())
    table = pa.table(
        {
            **{name: [record(i, e)[name] for i, e in enumerate(made)] for name in record(0, made[0])},
            "bias_lines": pa.array([list(e.ledger.biases.items()) for e in made], maps),
            "constant_lines": pa.array([list(e.ledger.constants.items()) for e in made], maps),
            **more,
        }
    )
    parquet.write_table(table.slice(0, 4), folder / "shards" / "shard-000000.parquet")
    parquet.write_table(table.slice(4), folder / "shards" / "shard-000001.parquet")
    told = {
        "format": 1,
        "kind": "headwater run",
        "state": "finished",
        "rows": len(made),
        "errors": 0,
        "open_ledgers": 0,
        "asked": {"method": made[0].method},
        "provenance": asdict(made[0].provenance),
    }
    (folder / "manifest.json").write_text(json.dumps(told), encoding="utf-8")


def record(number: int, e: Explanation) -> dict[str, Any]:
    offsets = e.offsets or ()
    return {
        "row_id": number,
        "text": e.text,
        "tokens": list(e.tokens),
        "relevance": e.relevance.double().tolist(),
        "special": list(e.special),
        "starts": [start for start, _ in offsets],
        "ends": [end for _, end in offsets],
        "word_ids": list(e.word_ids or ()),
        "segments": list(e.segments),
        "score": e.score,
        "target": e.target,
        "output": e.output,
        "prediction": e.prediction,
        "inputs": e.ledger.inputs,
        "biases": e.ledger.biases.total,
        "constants": e.ledger.constants.total,
        "readout": e.ledger.readout,
        "unaccounted": e.ledger.unaccounted,
        "ledger_error": e.ledger.error,
        "closed": e.ledger.closed,
        "magnitude": e.ledger.magnitude,
        "precision": e.ledger.dtype,
        "method": e.method,
        "at": e.at,
        "windows": e.windows,
    }
