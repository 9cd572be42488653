"""Results on disk, as the commands leave them: of an evaluation, of a run over a dataset, of a bias audit."""

from __future__ import annotations

from pathlib import Path

import jobs_here

import headwater as hw
from headwater.models.bundled import load_bundled
from headwater.results.explanation import Explanation

TEXTS = (
    ("a warm and funny film about growing old", "positive"),
    ("the jokes fall flat and the ending is a cheat", "negative"),
    ("one of the finest films of the year", "positive"),
    ("a dull and lifeless film that nobody needed", "negative"),
    ("a clever, tense and beautifully shot film", "positive"),
    ("the plot doesn't make any sense", "negative"),
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
    """In two shards, and once more by another method; and what `explain` says of the same texts."""
    columns = {"text": [text for text, _ in TEXTS], "label": [label for _, label in TEXTS]}
    made = jobs_here.made(folder, columns, shard_rows=4, method="lrp")
    jobs_here.made(folder.with_name(f"{folder.name} by gi"), columns, shard_rows=4, method="gi")
    model, tokenizer = load_bundled()
    assert len(made) == len(TEXTS)
    return [hw.explain(model, text, tokenizer=tokenizer, method="lrp") for text in columns["text"]]
