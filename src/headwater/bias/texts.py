"""The texts to be audited, in whatever form they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import plugins
from ..errors import DataError
from ..evaluation.sources import check_columns, columns_of, sample_rows, text_of
from ..inputs.table import LabelledTexts

DEFAULT = "sst2"


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

    def choose(self, places: Sequence[int]) -> Texts:
        return replace(
            self,
            texts=[self.texts[i] for i in places],
            rows=[self.rows[i] for i in places],
            parts=[self.parts[i] for i in places],
        )

    def draw(self, limit: int | None, seed: int) -> Texts:
        """At most `limit` texts, drawn with the seed and left in their order."""
        kept = sample_rows(len(self), limit, seed)
        return self if kept is None else self.choose(kept)


def read_texts(data: Any, text_column: str = "text", part_column: str | None = None, tokenizer: Any = None) -> Texts:
    """`data` is a dataset's name, a path, a list of texts, a `LabelledTexts`, or anything with columns by name.

    Names come from plug-ins. Those of headwater-experiments know "sst2": every whole sentence of the training part
    (without the phrases cut from them) and the dev part.
    """
    known = plugins.load_all(plugins.DATASETS)
    if isinstance(data, str) and data in known:
        return join_tables(*known[data]())
    if isinstance(data, str) and data == DEFAULT and not Path(data).exists():
        raise DataError(
            f"the dataset {data!r} is known to headwater-experiments, which is not installed: pip install "
            "headwater-experiments. Or pass texts of your own: a path, or a list."
        )
    if isinstance(data, (list, tuple)) and all(isinstance(text, str) for text in data):
        data = {text_column: list(data)}
    part = [] if part_column is None else [part_column]
    columns, source = columns_of(data, text_column, "label", *part)
    check_columns(columns, [text_column, *part], source)
    texts = [text_of(value, i, source, tokenizer) for i, value in enumerate(columns[text_column])]
    if not texts:
        raise DataError(f"{source} has no rows.")
    parts = [""] * len(texts) if part_column is None else [str(value) for value in columns[part_column]]
    return Texts(texts, list(range(len(texts))), parts, source)


def join_tables(source: str, tables: Sequence[tuple[str, LabelledTexts]]) -> Texts:
    """Part after part; rows are counted within each part."""
    return Texts(
        [text for _, table in tables for text in table.texts],
        [row for _, table in tables for row in range(len(table))],
        [part for part, table in tables for _ in table.texts],
        source,
    )
