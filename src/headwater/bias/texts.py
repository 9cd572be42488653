"""The texts to be audited, in whatever form they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import data as datasets
from ..errors import DataError, UsageError
from ..measures.labelled import column_names, columns_of, text_of

DEFAULT = "sst2"
PARTS = {"sst2": (("train sentences", "sentences"), ("dev", "dev"))}


@dataclass(frozen=True)
class Texts:
    """Texts with their places in the source, and the part of the data that each belongs to, "" where it has none."""

    texts: list[str]
    rows: list[int]
    parts: list[str]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def sha256(self) -> str:
        """Of the texts in their order."""
        digest = hashlib.sha256()
        for text in self.texts:
            digest.update(json.dumps(text, ensure_ascii=False).encode())
        return digest.hexdigest()

    def chosen(self, places: Sequence[int]) -> Texts:
        return replace(
            self,
            texts=[self.texts[i] for i in places],
            rows=[self.rows[i] for i in places],
            parts=[self.parts[i] for i in places],
        )

    def drawn(self, limit: int | None, seed: int) -> Texts:
        """At most `limit` texts, drawn with the seed and left in their order."""
        if limit is None or limit >= len(self):
            return self
        if limit < 1:
            raise UsageError(f"limit must be at least 1, not {limit}.")
        return self.chosen(sorted(np.random.default_rng(seed).permutation(len(self))[:limit].tolist()))


def read_texts(data: Any, text_column: str = "text", part_column: str | None = None, tokenizer: Any = None) -> Texts:
    """`data` is "sst2", a path, a list of texts, a `headwater.data.Table`, or anything with columns by name.

    "sst2" is every whole sentence of the training part (without the phrases cut from them) and the dev part.
    """
    if isinstance(data, str) and data in PARTS:
        return named(data)
    if isinstance(data, (list, tuple)) and all(isinstance(text, str) for text in data):
        data = {text_column: list(data)}
    columns, source = columns_of(data, text_column, "label")
    known = list(map(str, column_names(columns)))
    for name in (text_column, *([part_column] if part_column is not None else [])):
        if name not in known:
            raise DataError(f"{source} has no column {name!r}; it has {', '.join(known) or 'none'}.")
    texts = [text_of(value, i, source, tokenizer) for i, value in enumerate(columns[text_column])]
    if not texts:
        raise DataError(f"{source} has no rows.")
    parts = [""] * len(texts) if part_column is None else [str(value) for value in columns[part_column]]
    return Texts(texts, list(range(len(texts))), parts, source)


def named(name: str) -> Texts:
    """A dataset that the library knows, part after part; rows are counted within each part."""
    tables = [(part, datasets.load(name, split)) for part, split in PARTS[name]]
    return Texts(
        [text for _, table in tables for text in table.texts],
        [row for _, table in tables for row in range(len(table))],
        [part for part, table in tables for _ in table.texts],
        "SST-2: whole sentences of the training part, and the dev part",
    )
